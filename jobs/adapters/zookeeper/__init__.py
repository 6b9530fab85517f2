"""ZooKeeper: connections, bulk reads, the controllership, the lease, and what stands in the tree."""
