"""What is, against what was planned: premises, waves, progress, limits."""
