"""Where a new topic's replicas go: round robin from a start index, followers at a shift that grows.

Corresponds to `AdminUtils.assignReplicasToBrokersRackUnaware`, seed 001 "AdminUtils.assignReplicasToBrokers": partition
p leads at broker (p + start) mod n; follower j sits at 1 + (shift + j) mod (n - 1) from it; the shift grows by one
every n partitions. `simple` is seed 004's rule: replica j of partition i at broker (i + j) mod n. In: a frame of
partition numbers. Out: topic, partition, replicas.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def _broker(brokers: Sequence[int], index: Column) -> Column:
    listed = F.array(*(F.lit(broker) for broker in brokers))
    return F.get(listed, (index % len(brokers)).cast("int"))


def rounds(partition: Column, brokers: int, first_partition: Column) -> Column:
    """How often the leaders have gone round since `first_partition`, the lowest that is assigned now.

    >>> rows = spark.range(9, 12).select(rounds(F.col("id"), 5, F.lit(10)).alias("rounds"))
    >>> [row.rounds for row in rows.collect()]
    [0, 1, 1]
    """
    before = F.greatest(first_partition, F.lit(1)) - 1
    return F.floor(partition / brokers) - F.floor(before / brokers)


def kafka_replicas(
    brokers: Sequence[int],
    replication_factor: int,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> Column:
    """Replicas of `partition` by Kafka's algorithm, on brokers in the order given.

    `first_partition` is the lowest that is assigned now: 0 for a new topic, else how many there were.

    >>> rows = spark.range(10).select(F.col("id").cast("int").alias("partition"))
    >>> replicas = F.array_join(kafka_replicas([0, 1, 2, 3, 4], 3, start_index=0, shift=0), "")
    >>> " ".join(row[0] for row in rows.select(replicas).collect())
    '012 123 234 340 401 023 134 240 301 412'
    """
    n = len(brokers)
    partition = F.col("partition")
    first = partition + start_index
    shifted = F.lit(shift) + rounds(partition, n, F.lit(first_partition))
    leader = F.array(_broker(brokers, first))
    if replication_factor == 1:
        return leader
    followers = F.transform(
        F.sequence(F.lit(0), F.lit(replication_factor - 2)),
        lambda j: _broker(brokers, first + 1 + (shifted + j) % (n - 1)),
    )
    return F.concat(leader, followers)


def simple_replicas(brokers: Sequence[int], replication_factor: int) -> Column:
    """Replicas of `partition` by seed 004's rule.

    >>> rows = spark.range(3).select(F.col("id").cast("int").alias("partition"))
    >>> rows.select(F.array_join(simple_replicas([0, 1, 2], 2), "").alias("replicas")).collect()
    [Row(replicas='01'), Row(replicas='12'), Row(replicas='20')]
    """
    offsets = F.sequence(F.lit(0), F.lit(replication_factor - 1))
    return F.transform(offsets, lambda j: _broker(brokers, F.col("partition") + j))


def assign_topic(partition_ids: DataFrame, topic: str, replicas: Column) -> DataFrame:
    """Assign each row of `partition_ids` (partition) its replicas: topic, partition, replicas."""
    return partition_ids.select(F.lit(topic).alias("topic"), "partition", replicas.alias("replicas"))
