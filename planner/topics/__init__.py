"""New topics and partitions: where their replicas go, who leads first, how large a znode gets."""
