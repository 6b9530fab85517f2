"""Checks before a write: the current state of the cluster, compared with the state that the plan was computed from."""
