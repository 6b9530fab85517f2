"""The frame of a command: settings, options, input files and output."""
