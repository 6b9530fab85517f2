"""Checks of a cluster and its environment: the status, the checks of doctor, and those before a migration."""
