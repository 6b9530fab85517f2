"""What people's tools ask of the controller: topics, reassignments and elections."""
