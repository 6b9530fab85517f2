"""Questions about topics: created, extended, deleted, and their configs."""
