"""Checks before a write: the current state in ZooKeeper, compared with the state that the plan was computed from."""
