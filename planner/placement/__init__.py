"""The optimiser of `plan reassign`: replica placement on numpy arrays, without Spark and without I/O.

Corresponds to kafka-reassign-partitions --generate, which ignores what exists, to topicmappr, and to Cruise Control's
goals for counts and racks. `problem` defines input and output, and `solve` runs the steps. `forced_moves` makes the
required changes, `descent` balances over the broker graphs of `exchange_graph` (replicas) and `leaders`, `result`
computes loads and bounds, and `waves` cuts the moves into waves.
"""
