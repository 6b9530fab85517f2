"""Placement of replicas over racks: Kafka's algorithm on a broker list in which racks alternate.

Corresponds to `AdminUtils.assignReplicasToBrokersRackAware` and `getRackAlternatedBrokerList`. The replicas of a
partition depend on the position of its leader in the list and on the jump of its followers. So all possible lists form
a table of at most n (n - 1) rows per replication factor, for any number of partitions and topics. `lists_for` of
`planner.rules.replica_placement` computes it in plain Python, and `assign_rack_aware` joins it. In:
`assignment.partition_ids`. Out: topic, partition, replicas.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.topics.assignment import rounds

LISTS = "replication_factor int, first int, jump int, replicas array<int>"
"""Columns of the table that `assign_rack_aware` joins."""


def assign_rack_aware(partition_ids: DataFrame, lists: DataFrame, racks: Mapping[int, str]) -> DataFrame:
    """Assign each row its replicas: topic, partition, replicas.

    `lists` holds the rows of `rack_aware_lists` for each replication factor that occurs.

    >>> racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    >>> from planner.rules.replica_placement import rack_aware_lists
    >>> lists = spark.createDataFrame(list(rack_aware_lists(racks, 3)), LISTS)
    >>> from planner.topics.assignment import partition_ids
    >>> topics = spark.sql("SELECT 't' topic, 0 first_partition, 7 partitions, 3 replication_factor, 0 start_index, "
    ...                    "0 shift")
    >>> rows = topics.transform(partition_ids).transform(assign_rack_aware, lists, racks).orderBy("partition")
    >>> " ".join("".join(map(str, row.replicas)) for row in rows.collect())
    '031 315 154 542 420 203 042'
    """
    n, steps = len(racks), max(len(racks) - 1, 1)
    shift = F.col("shift") + rounds(F.col("partition"), n, F.col("first_partition"))
    placed = partition_ids.select(
        "topic",
        "partition",
        "replication_factor",
        ((F.col("partition") + F.col("start_index")) % n).cast("int").alias("first"),
        (shift * len(set(racks.values())) % steps).cast("int").alias("jump"),
    )
    return placed.join(F.broadcast(lists), ["replication_factor", "first", "jump"]).select(
        "topic",
        "partition",
        "replicas",
    )
