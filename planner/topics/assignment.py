"""Where the replicas of new partitions go: round robin from a start index, followers at a shift that grows.

Corresponds to `AdminUtils.assignReplicasToBrokersRackUnaware`, seed 001 "AdminUtils.assignReplicasToBrokers": partition
p leads at broker (p + start) mod n; follower j sits at 1 + (shift + j) mod (n - 1) from it; the shift grows by one
every n partitions. `simple` is seed 004's rule: replica j of partition i at broker (i + j) mod n. In: topics, any
number at once, with what the rule asks of each (NEW_TOPICS). Out: topic, partition, replicas.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

NEW_TOPICS: Final = (
    "topic string, first_partition int, partitions int, replication_factor int, start_index bigint, shift bigint, "
    "replica_assignment array<array<int>>"
)
"""What is asked for: partitions from `first_partition`, how many there were, up to `partitions`, how many there are to
be; where and how its round begins, or replicas by hand from `first_partition` on."""


def partition_ids(topics: DataFrame) -> DataFrame:
    """One row for each partition that a topic of NEW_TOPICS is to get.

    >>> topics = spark.sql("SELECT 'a' topic, 2 first_partition, 4 partitions UNION SELECT 'b', 0, 1")
    >>> partition_ids(topics).select("topic", "partition").orderBy("topic", "partition").collect()
    [Row(topic='a', partition=2), Row(topic='a', partition=3), Row(topic='b', partition=0)]
    """
    numbers = F.sequence(F.col("first_partition"), F.col("partitions") - 1)
    return topics.select("*", F.explode(numbers).alias("partition"))


def rounds(partition: Column, brokers: int, first_partition: Column) -> Column:
    """How often the leaders have gone round since `first_partition`, the lowest that is assigned now.

    >>> rows = spark.range(9, 12).select(rounds(F.col("id"), 5, F.lit(10)).alias("rounds"))
    >>> [row.rounds for row in rows.collect()]
    [0, 1, 1]
    """
    before = F.greatest(first_partition, F.lit(1)) - 1
    return F.floor(partition / brokers) - F.floor(before / brokers)


def _placed(partition_ids: DataFrame, replicas: Column) -> DataFrame:
    return partition_ids.select("topic", "partition", replicas.alias("replicas"))


def _broker(brokers: Sequence[int], index: Column) -> Column:
    listed = F.array(*(F.lit(broker) for broker in brokers))
    return F.get(listed, (index % len(brokers)).cast("int"))


def _offsets() -> Column:
    return F.sequence(F.lit(0), F.col("replication_factor") - 1)


def assign_rack_unaware(partition_ids: DataFrame, brokers: Sequence[int]) -> DataFrame:
    """Assign partitions by Kafka's algorithm, on brokers in the order given.

    >>> topics = spark.sql("SELECT 't' topic, 0 first_partition, 10 partitions, 3 replication_factor, 0 start_index, "
    ...                    "0 shift")
    >>> rows = topics.transform(partition_ids).transform(assign_rack_unaware, [0, 1, 2, 3, 4]).orderBy("partition")
    >>> " ".join("".join(map(str, row.replicas)) for row in rows.collect())
    '012 123 234 340 401 023 134 240 301 412'
    """
    n = len(brokers)
    first = F.col("partition") + F.col("start_index")
    shift = F.col("shift") + rounds(F.col("partition"), n, F.col("first_partition"))
    steps = max(n - 1, 1)

    def replica(nth: Column) -> Column:
        step = F.when(nth == 0, F.lit(0)).otherwise(1 + (shift + nth - 1) % steps)
        return _broker(brokers, first + step)

    return _placed(partition_ids, F.transform(_offsets(), replica))


def assign_simple(partition_ids: DataFrame, brokers: Sequence[int]) -> DataFrame:
    """Assign partitions by seed 004's rule.

    >>> topics = spark.sql("SELECT 't' topic, 0 first_partition, 3 partitions, 2 replication_factor")
    >>> rows = topics.transform(partition_ids).transform(assign_simple, [0, 1, 2]).orderBy("partition")
    >>> " ".join("".join(map(str, row.replicas)) for row in rows.collect())
    '01 12 20'
    """
    return _placed(partition_ids, F.transform(_offsets(), lambda j: _broker(brokers, F.col("partition") + j)))


def assign_by_hand(topics: DataFrame) -> DataFrame:
    """Assign partitions the replicas that `replica_assignment` lists.

    >>> topics = spark.sql("SELECT 't' topic, 7 first_partition, array(array(2, 0), array(0, 1)) replica_assignment")
    >>> assign_by_hand(topics).orderBy("partition").collect()
    [Row(topic='t', partition=7, replicas=[2, 0]), Row(topic='t', partition=8, replicas=[0, 1])]
    """
    listed = topics.select("topic", "first_partition", F.posexplode("replica_assignment").alias("nth", "replicas"))
    return listed.select("topic", (F.col("first_partition") + F.col("nth")).alias("partition"), "replicas")
