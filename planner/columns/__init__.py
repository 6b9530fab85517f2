"""Building blocks of the rules: change and rejection rows, live brokers, derived columns, and rules on arrays."""
