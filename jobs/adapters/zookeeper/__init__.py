"""ZooKeeper: connections, bulk reads, the controllership, the lease, and the znodes of a cluster."""
