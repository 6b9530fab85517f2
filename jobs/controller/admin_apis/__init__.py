"""Requests of Kafka's admin tools to the controller: topics, reassignments and elections."""
