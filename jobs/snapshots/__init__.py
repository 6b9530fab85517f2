"""Snapshots of a cluster in the tables: taking, comparing and deleting them, replica sizes and health figures."""
