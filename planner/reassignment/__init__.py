"""Moves of replicas: targets, what is refused, and the ways back."""
