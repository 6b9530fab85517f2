"""The commands, the resident controller, and the adapters for external systems; the rules are in `planner`."""
