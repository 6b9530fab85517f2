"""Stored plans: their rows, names and commit outcomes."""
