"""New topics and partitions: placement of replicas, first leaders, znode size."""
