"""Plans for topics: creation, expansion, deletion and configs."""
