"""Reassignments: targets, their checks, cancellation and rollback."""
