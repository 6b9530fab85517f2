"""Text and JSON output of the commands."""
