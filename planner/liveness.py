"""Who is alive: the broker sets every rule asks for, joined to the partitions.

Not understood is not dead: a registered broker whose znode could not be decoded counts as `live`, so nothing is
elected away from it, but never as `eligible`, so nothing is given to it. Corresponds to
`ControllerContext.liveBrokerIds` and `shuttingDownBrokerIds`: a drained broker is alive, but never elected. In:
partitions, topics, brokers. Out: the partitions with what rules need beside.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.names import DrainMode

DRAIN_MODE: Final = "drain_mode"
"""Column beside those of BROKERS: how a broker is drained, null if it is not."""

_NEARLY_ALL: Final = ("eligible", "electable", "informed")
"""Sets that lack few live brokers, and so are told quickest by whom they lack."""

NOBODY: Final = "CAST(array() AS array<int>)"
"""No broker at all, in SQL."""


def with_drained(brokers: DataFrame, drained: DataFrame) -> DataFrame:
    """Add how each broker is drained; DRAINED in. Frames of brokers without that column have none drained."""
    modes = drained.select("broker_id", F.col("mode").alias(DRAIN_MODE))
    return brokers.join(F.broadcast(modes), "broker_id", "left")


def live_brokers(brokers: DataFrame) -> DataFrame:
    """One row of broker ids ascending.

    `live`: registered; `eligible`: understood; `drained`: never to lead; `electable`: eligible and not drained;
    `informed`: eligible and told of changes, as a broker whose replicas a drain stopped is not.
    """
    mode = DRAIN_MODE if DRAIN_MODE in brokers.columns else "NULL"
    who = {
        "live": "true",
        "eligible": "understood",
        "drained": f"{mode} IS NOT NULL",
        "electable": f"understood AND {mode} IS NULL",
        "informed": f"understood AND NOT {mode} <=> '{DrainMode.RESIDENT}'",
    }
    ids = "sort_array(collect_set(broker_id) FILTER (WHERE {})) AS {}"
    return brokers.selectExpr(*(ids.format(condition, name) for name, condition in who.items()))


def with_live_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add what `live_brokers` says to every partition."""
    return partitions.crossJoin(F.broadcast(live_brokers(brokers)))


def with_brokers_named(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add of what `live_brokers` says what concerns the replicas, the ISR and the leader of each partition.

    For rules that look at no other brokers: set operations on the ids of a hundred brokers took most of their time.
    """
    named = "concat(coalesce(replicas, array()), coalesce(isr, array()), array(leader))"
    excluded = [f"array_except(live, {name}) AS not_{name}" for name in _NEARLY_ALL]
    sets = live_brokers(brokers).selectExpr("live AS all_live", "drained AS all_drained", *excluded)
    return partitions.crossJoin(F.broadcast(sets)).selectExpr(
        *partitions.columns,
        f"array_intersect(all_live, {named}) AS live",
        "array_intersect(live, all_drained) AS drained",
        *(f"array_except(live, not_{name}) AS {name}" for name in _NEARLY_ALL),
    )


def with_topic(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Add `topic_id`, `config` and `deletion_requested` of each partition's topic."""
    known = topics.selectExpr("topic", "topic_id", "config", "deletion_requested")
    requested = F.expr("coalesce(deletion_requested, false)")
    return partitions.join(F.broadcast(known), "topic", "left").withColumns({"deletion_requested": requested})


def nobody() -> Column:
    """No broker at all."""
    return F.expr(NOBODY)


def among(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are in `others`, their order kept."""
    return F.array_intersect(broker_ids, others)


def not_among(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are not in `others`, their order kept."""
    return F.array_except(broker_ids, others)


def first(broker_ids: Column) -> Column:
    """The first broker id, null if there is none."""
    return F.get(broker_ids, F.lit(0))


def words(broker_ids: str) -> str:
    """In SQL, broker ids as people write them."""
    return f"array_join(CAST({broker_ids} AS array<string>), ', ')"


def in_words(broker_ids: Column) -> Column:
    """Broker ids as people write them.

    >>> spark.range(1).select(in_words(F.array(F.lit(2), F.lit(0))).alias("who")).first().who
    '2, 0'
    """
    return F.array_join(broker_ids.cast("array<string>"), ", ")
