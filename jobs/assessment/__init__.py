"""What is, against what was planned: premises, waves, standings, limits."""
