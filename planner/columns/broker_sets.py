"""Broker sets that every rule needs, joined to the partitions: live, eligible, electable and drained brokers.

A registered broker whose znode could not be decoded may well be live. It counts as `live`: no rule elects a leader
away from it. It never counts as `eligible`: no rule assigns anything to it. Corresponds to
`ControllerContext.liveBrokerIds` and `shuttingDownBrokerIds`: a drained broker is live and the last choice of an
election. Also corresponds to `replicasOnOfflineDirs`: a broker does not count as live for a partition whose log dir
failed on it. In: partitions, topics, brokers. Out: the partitions with these sets as columns.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.enums import DrainMode

DRAIN_MODE: Final = "drain_mode"
"""Additional column of BROKERS frames: the drain mode of the broker, null if it is not drained."""

FAILED_COLUMN: Final = "failed_replicas"
"""Additional column of PARTITIONS frames: live brokers on which the partition's log dir failed, if there are any."""

_CANDIDATES: Final = ("eligible", "electable", "informed")
"""Sets that hold nearly all live brokers; computing them from the few brokers not in them is faster."""

NO_BROKERS_SQL: Final = "CAST(array() AS array<int>)"
"""An empty array of broker ids, in SQL."""

IS_LED_SQL: Final = "coalesce(array_contains(live, leader) AND array_contains(isr, leader), false)"
"""Whether a live broker in the ISR leads a partition, in SQL."""

REFERENCED_SQL: Final = "concat(coalesce(replicas, array()), coalesce(isr, array()), array(leader))"
"""The brokers that a partition names as replicas, in its ISR or as leader, in SQL."""


def with_drained(brokers: DataFrame, drained: DataFrame) -> DataFrame:
    """Add the drain mode of each broker from rows of DRAINED; without the column no broker counts as drained.

    A resident drain stops the replicas of one registration, so it ends when the broker registers again.
    """
    marks = drained.selectExpr("broker_id", "mode", "broker_epoch AS drained_epoch")
    has_ended = f"mode = '{DrainMode.RESIDENT}' AND coalesce(drained_epoch < broker_epoch, false)"
    return brokers.join(F.broadcast(marks), "broker_id", "left").selectExpr(
        *brokers.columns, f"IF({has_ended}, NULL, mode) AS {DRAIN_MODE}"
    )


def with_failed(partitions: DataFrame, failed_responses: DataFrame) -> DataFrame:
    """Add FAILED_COLUMN.

    `failed_responses` has topic, partition, broker_id and the leader_epoch of the LeaderAndIsr request that the broker
    answered with error 56 (KAFKA_STORAGE_ERROR). A response with a later leader epoch than the partition's belongs to
    an earlier topic of that name. A leader whose epoch is later than the one in its response was elected after it, by a
    controller with newer information.
    """
    not_of_earlier_topic = "r.leader_epoch <= leader_epoch"
    not_elected_since = "(r.broker_id <> leader OR r.leader_epoch = leader_epoch)"

    failed = f"transform(filter(responses, r -> {not_of_earlier_topic} AND {not_elected_since}), r -> r.broker_id)"
    responses = failed_responses.groupBy("topic", "partition").agg(
        F.sort_array(F.collect_list(F.struct("broker_id", "leader_epoch"))).alias("responses")
    )
    joined = partitions.join(F.broadcast(responses), ["topic", "partition"], "left")
    return joined.withColumns({FAILED_COLUMN: F.expr(f"coalesce({failed}, {NO_BROKERS_SQL})")}).drop("responses")


def live_brokers(brokers: DataFrame) -> DataFrame:
    """Return one row of broker id arrays, ascending.

    `live`: registered. `eligible`: registered and understood. `drained`: chosen as leader last. `electable`: eligible
    and not drained. `informed`: eligible, and receives LeaderAndIsr of every change. (A broker whose replicas a drain
    stopped receives it only if it is in sync.)
    """
    mode = DRAIN_MODE if DRAIN_MODE in brokers.columns else "NULL"
    conditions = {
        "live": "true",
        "eligible": "understood",
        "drained": f"{mode} IS NOT NULL",
        "electable": f"understood AND {mode} IS NULL",
        "informed": f"understood AND NOT {mode} <=> '{DrainMode.RESIDENT}'",
    }
    ids = "sort_array(collect_set(broker_id) FILTER (WHERE {})) AS {}"
    return brokers.selectExpr(*(ids.format(condition, name) for name, condition in conditions.items()))


def with_live_brokers(partitions: DataFrame, brokers: DataFrame, is_known: Column | None = None) -> DataFrame:
    """Add the columns of `live_brokers` to every partition; `live` and `electable` leave out those in FAILED_COLUMN.

    With `is_known`, to the rows for which it holds; the columns of the others are null. Rows must not be shuffled or
    kept afterwards if they are many: each has the ids of all brokers several times.
    """
    sets = F.broadcast(live_brokers(brokers))
    joined = partitions.crossJoin(sets) if is_known is None else partitions.join(sets, is_known, "left")
    if FAILED_COLUMN not in partitions.columns:
        return joined.withColumns({FAILED_COLUMN: no_brokers() if is_known is None else F.when(is_known, no_brokers())})
    return joined.withColumns({name: F.array_except(name, FAILED_COLUMN) for name in ("live", "electable")})


def with_referenced_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add the brokers of `live_brokers` that are among the replicas, the ISR or the leader of each partition.

    For rules that consider no other brokers: set operations on a hundred broker ids per row took most of their time.
    """
    has_failed = FAILED_COLUMN in partitions.columns
    own = partitions.columns if has_failed else [*partitions.columns, f"{NO_BROKERS_SQL} AS {FAILED_COLUMN}"]
    columns = [*partitions.columns] if has_failed else [*partitions.columns, FAILED_COLUMN]
    excluded = [f"array_except(live, {name}) AS not_{name}" for name in _CANDIDATES]
    sets = live_brokers(brokers).selectExpr("live AS all_live", "drained AS all_drained", *excluded)
    registered = f"array_intersect(all_live, {REFERENCED_SQL}) AS registered"
    live = f"array_except(registered, {FAILED_COLUMN}) AS live" if has_failed else "registered AS live"
    return (
        partitions.crossJoin(F.broadcast(sets))
        .selectExpr(*own, "all_drained", *(f"not_{name}" for name in _CANDIDATES), registered)
        .selectExpr("*", live)
        .selectExpr(
            *columns,
            *("registered", "live"),
            "array_intersect(registered, all_drained) AS drained",
            "array_except(registered, not_eligible) AS eligible",
            "array_except(live, not_electable) AS electable",
            "array_except(registered, not_informed) AS informed",
        )
    )


def with_topic(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Add `topic_id`, `config` and `deletion_requested` of each partition's topic."""
    topic_columns = topics.selectExpr("topic", "topic_id", "config", "deletion_requested")
    requested = F.expr("coalesce(deletion_requested, false)")
    return partitions.join(F.broadcast(topic_columns), "topic", "left").withColumns({"deletion_requested": requested})


def no_brokers() -> Column:
    """Return an empty array of broker ids."""
    return F.expr(NO_BROKERS_SQL)


def is_led_in_isr() -> Column:
    """Return whether a live member of the ISR leads the partition. Followers can only copy from such a leader."""
    return F.expr(IS_LED_SQL)


def intersect(broker_ids: Column, others: Column) -> Column:
    """Return the brokers of `broker_ids` that are in `others`, in their order."""
    return F.array_intersect(broker_ids, others)


def difference(broker_ids: Column, others: Column) -> Column:
    """Return the brokers of `broker_ids` that are not in `others`, in their order."""
    return F.array_except(broker_ids, others)


def in_order_of_choice(candidates: str) -> str:
    """Return SQL for the brokers of `candidates` that may lead, in their order, with drained brokers last."""
    able = f"array_intersect(array_intersect({candidates}, eligible), live)"
    return f"concat(array_intersect({candidates}, electable), array_except({able}, electable))"


def first_choice(candidates: Column) -> Column:
    """Return the first of `candidates` that may lead: a drained broker only if no other can, null if none can."""
    undrained = first(intersect(candidates, F.col("electable")))
    return F.coalesce(undrained, first(intersect(intersect(candidates, F.col("eligible")), F.col("live"))))


def first(broker_ids: Column) -> Column:
    """Return the first broker id, null if the array is empty."""
    return F.get(broker_ids, F.lit(0))


def format_ids_sql(broker_ids: str) -> str:
    """Return SQL that formats broker ids as a comma-separated list."""
    return f"array_join(CAST({broker_ids} AS array<string>), ', ')"


def format_ids(broker_ids: Column) -> Column:
    """Format broker ids as a comma-separated list.

    >>> spark.range(1).select(format_ids(F.array(F.lit(2), F.lit(0))).alias("ids")).first().ids
    '2, 0'
    """
    return F.array_join(broker_ids.cast("array<string>"), ", ")
