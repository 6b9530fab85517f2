"""Plans as tables hold them: stored, named, found, and what became of each row."""
