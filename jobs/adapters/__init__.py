"""Adapters for external systems: ZooKeeper, brokers, Delta, Spark, embedded servers."""
