"""Batch mode: the controllership, fenced multis, and who is told."""
