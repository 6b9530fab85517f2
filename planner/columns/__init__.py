"""Building blocks of the rules: change and rejection rows, sets of live brokers, columns derived from znodes."""
