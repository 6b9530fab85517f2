"""Placement of replicas: goals for the optimiser, given targets, and their checks."""
