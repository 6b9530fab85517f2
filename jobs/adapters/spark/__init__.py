"""Spark: its session, and what is different under spark-submit."""
