"""Where every replica should live: the optimiser behind `plan reassign`, on arrays, without Spark and without I/O.

Corresponds to what kafka-reassign-partitions --generate only pretends to do, and to topicmappr and Cruise Control's
goals for counts and racks. `problem` says what goes in and comes out, `solve` runs the steps: `seed` makes the forced
changes, `descend` evens out over the broker graph of `exchange` (replicas) and `leaders`, `outcome` accounts for it,
`waves` cuts it into pieces.
"""
