"""What every room may use: errors and their exit codes, signals, units."""
