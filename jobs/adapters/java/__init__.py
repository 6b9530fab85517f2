"""Java: its location, and the jars it runs."""
