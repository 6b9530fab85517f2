"""Embedded servers: a real ZooKeeper and real brokers as child processes."""
