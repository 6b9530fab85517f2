"""Placement of the replicas of new partitions: round robin from a start index, followers at a growing shift.

Corresponds to `AdminUtils.assignReplicasToBrokers`. Without racks, partition p is led by broker (p + start) mod n,
follower j is 1 + (shift + j) mod (n - 1) brokers after it, and the shift grows by one every n partitions. With racks,
the same is done on a broker list in which racks alternate. The strategy `simple` puts replica j of partition i on
broker (i + j) mod n. In: any number of topics, with their options (NEW_TOPICS). Out: topic, partition, replicas.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

NEW_TOPICS: Final = (
    "topic string, first_partition int, partitions int, replication_factor int, start_index bigint, shift bigint, "
    "replica_assignment array<array<int>>"
)
"""Columns of requested topics.

Partitions are numbered from `first_partition` (the number that exist) up to `partitions` (the number wanted).
`start_index` and `shift` start the round; `replica_assignment` lists explicit replicas from `first_partition` on.
"""

LISTS: Final = "replication_factor int, first int, jump int, replicas array<int>"
"""Columns of the table that `assign_rack_aware` joins."""


def partition_ids(topics: DataFrame) -> DataFrame:
    """Return one row per partition that a topic of NEW_TOPICS gets.

    >>> topics = spark.sql("SELECT 'a' topic, 2 first_partition, 4 partitions UNION SELECT 'b', 0, 1")
    >>> partition_ids(topics).select("topic", "partition").orderBy("topic", "partition").collect()
    [Row(topic='a', partition=2), Row(topic='a', partition=3), Row(topic='b', partition=0)]
    """
    numbers = F.sequence(F.col("first_partition"), F.col("partitions") - 1)
    return topics.select("*", F.explode(numbers).alias("partition"))


def rounds(partition: Column, brokers: int, first_partition: Column) -> Column:
    """Return how often the leaders have gone round since `first_partition`, the first one assigned now.

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
    """Assign partitions by `assignReplicasToBrokersRackUnaware`, on brokers in the order given.

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
    """Assign replica j of partition i to broker (i + j) mod n.

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


def assign_rack_aware(partition_ids: DataFrame, lists: DataFrame, racks: Mapping[int, str]) -> DataFrame:
    """Assign partitions by `assignReplicasToBrokersRackAware`, on the list of `getRackAlternatedBrokerList`.

    The replicas of a partition depend on the position of its leader in that list and on the jump of its followers. So
    all possible lists form a table of at most n (n - 1) rows per replication factor, for any number of partitions and
    topics. `lists` holds these rows for each replication factor that occurs, as `rack_aware_lists` of
    `planner.rules.replica_placement` computes them.

    >>> racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    >>> from planner.rules.replica_placement import rack_aware_lists
    >>> lists = spark.createDataFrame(list(rack_aware_lists(racks, 3)), LISTS)
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
