"""Decisions of the resident controller, from what it knows of the cluster."""
