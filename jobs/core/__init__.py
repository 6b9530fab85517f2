"""Modules that every package may import: errors and exit codes, signals, units."""
