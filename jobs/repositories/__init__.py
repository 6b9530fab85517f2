"""Typed access to the tables: snapshots, broker responses, plans and figures."""
