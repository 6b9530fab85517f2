"""Snapshots, answers and figures as tables hold them: read, stored, typed."""
