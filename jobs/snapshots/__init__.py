"""Snapshots of a cluster in the tables: taking, comparing and deleting them, replica sizes and health figures.

`cluster_view` shows a cluster to rules alike as it is now and as a snapshot has it.
"""
