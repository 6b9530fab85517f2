"""What is found in a cluster and its surroundings: its status, the checks of doctor, those before a migration."""
