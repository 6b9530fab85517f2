"""Java: where it is, and the jars it runs."""
