"""Load of partitions and brokers: samples of offsets and sizes, imports, and what is computed from them."""
