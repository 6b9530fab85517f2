"""Balancing of brokers: replicas, leaders, topics and bytes."""
