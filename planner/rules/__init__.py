"""Kafka's rules for one partition in plain Python: what a controller decides on its context in memory.

The transforms of `planner.leadership` and `planner.reconciliation` decide the same for whole tables. Tests hold both
equal, so that each is the oracle of the other.
"""
