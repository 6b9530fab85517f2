"""Load of partitions and brokers, computed from samples of offsets and log sizes."""
