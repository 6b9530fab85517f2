"""How a command runs: settings, options, input files, and what it says."""
