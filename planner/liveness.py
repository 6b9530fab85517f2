"""Who is alive: the broker sets every rule asks for, joined to the partitions.

Not understood is not dead: a registered broker whose znode could not be decoded counts as `live`, so nothing is
elected away from it, but never as `eligible`, so nothing is given to it. Corresponds to
`ControllerContext.liveBrokerIds`. In: partitions, topics, brokers. Out: the partitions with what rules need beside.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def live_brokers(brokers: DataFrame) -> DataFrame:
    """One row: `live`, the registered broker ids ascending, and `eligible`, those of them that were understood."""
    ids = F.sort_array(F.collect_set("broker_id"))
    eligible = F.sort_array(F.collect_set(F.when(F.col("understood"), F.col("broker_id"))))
    return brokers.agg(ids.alias("live"), eligible.alias("eligible"))


def with_live_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add `live` and `eligible` to every partition."""
    return partitions.crossJoin(F.broadcast(live_brokers(brokers)))


def with_topic(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Add `topic_id`, `config` and `deletion_requested` of each partition's topic."""
    known = topics.select("topic", "topic_id", "config", "deletion_requested")
    return partitions.join(F.broadcast(known), "topic", "left").withColumns(
        {"deletion_requested": F.coalesce("deletion_requested", F.lit(False))},  # noqa: FBT003 - a Spark literal
    )


def among(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are in `others`, their order kept."""
    return F.array_intersect(broker_ids, others)


def not_among(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are not in `others`, their order kept."""
    return F.array_except(broker_ids, others)


def first(broker_ids: Column) -> Column:
    """The first broker id, null if there is none."""
    return F.get(broker_ids, F.lit(0))


def in_words(broker_ids: Column) -> Column:
    """Broker ids as people write them.

    >>> spark.range(1).select(in_words(F.array(F.lit(2), F.lit(0))).alias("who")).first().who
    '2, 0'
    """
    return F.array_join(broker_ids.cast("array<string>"), ", ")
