"""Where replicas live: questions to the optimiser, targets that others give, and their lint."""
