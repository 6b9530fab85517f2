"""Comparison of snapshots: which partitions changed, and the events shown to users."""
