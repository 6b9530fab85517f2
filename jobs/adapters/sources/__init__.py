"""Sources of a cluster's metadata: ZooKeeper, and the Admin API of a KRaft cluster, behind one interface."""
