"""Who is alive: the broker sets every rule asks for, joined to the partitions.

Not understood is not dead: a registered broker whose znode could not be decoded counts as `live`, so nothing is
elected away from it, but never as `eligible`, so nothing is given to it. Corresponds to
`ControllerContext.liveBrokerIds` and `shuttingDownBrokerIds`: a drained broker is alive, and the last choice of an
election; and to `replicasOnOfflineDirs`: for a partition whose log dir failed on it, a broker is as good as gone. In:
partitions, topics, brokers. Out: the partitions with what else rules need.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.text import DRAINED_LEADS
from schemas.enums import DrainMode

DRAIN_MODE: Final = "drain_mode"
"""Column beside those of BROKERS: how a broker is drained, null if it is not."""

FAILED: Final = "failed_replicas"
"""Column beside those of PARTITIONS: live brokers whose log dir failed for it; absent where there are none at all."""

_CANDIDATES: Final = ("eligible", "electable", "informed")
"""Sets of nearly all live brokers: quickest to compute from the few that are not in them."""

EMPTY: Final = "CAST(array() AS array<int>)"
"""No broker at all, in SQL."""

_LED: Final = "coalesce(array_contains(live, leader) AND array_contains(isr, leader), false)"


def with_drained(brokers: DataFrame, drained: DataFrame) -> DataFrame:
    """Add how each broker is drained; DRAINED in. Frames of brokers without that column have none drained.

    A resident drain stops the replicas of one registration, so it has ended where the broker has registered again.
    """
    marks = drained.selectExpr("broker_id", "mode", "broker_epoch AS drained_epoch")
    has_ended = f"mode = '{DrainMode.RESIDENT}' AND coalesce(drained_epoch < broker_epoch, false)"
    return brokers.join(F.broadcast(marks), "broker_id", "left").selectExpr(
        *brokers.columns, f"IF({has_ended}, NULL, mode) AS {DRAIN_MODE}"
    )


def with_failed(partitions: DataFrame, failed_responses: DataFrame) -> DataFrame:
    """Add FAILED; `told`: topic, partition, broker_id and the leader_epoch it was told when it answered 56.

    What was told of a later epoch is of an earlier topic of that name; and whoever leads under a later epoch than it
    was told was elected since, by a controller that knew better.
    """
    counts = "told.leader_epoch <= leader_epoch AND (told.broker_id <> leader OR told.leader_epoch = leader_epoch)"
    failed = f"transform(filter(tellings, told -> {counts}), told -> told.broker_id)"
    tellings = failed_responses.groupBy("topic", "partition").agg(
        F.sort_array(F.collect_list(F.struct("broker_id", "leader_epoch"))).alias("tellings")
    )
    joined = partitions.join(F.broadcast(tellings), ["topic", "partition"], "left")
    return joined.withColumns({FAILED: F.expr(f"coalesce({failed}, {EMPTY})")}).drop("tellings")


def live_brokers(brokers: DataFrame) -> DataFrame:
    """One row of broker ids ascending.

    `live`: registered; `eligible`: understood; `drained`: the last to lead; `electable`: eligible and not drained;
    `informed`: eligible and told of every change; one whose replicas a drain stopped is told where it is in sync.
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


def with_live_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add what `live_brokers` says to every partition; `live` and `electable` without those of FAILED."""
    joined = partitions.crossJoin(F.broadcast(live_brokers(brokers)))
    if FAILED not in partitions.columns:
        return joined.withColumns({FAILED: no_brokers()})
    return joined.withColumns({name: F.array_except(name, FAILED) for name in ("live", "electable")})


def with_referenced_brokers(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Add that part of what `live_brokers` says which concerns the replicas, the ISR and the leader of each partition.

    For rules that look at no other brokers: set operations on the ids of a hundred brokers took most of their time.
    """
    referenced = "concat(coalesce(replicas, array()), coalesce(isr, array()), array(leader))"
    has_failed = FAILED in partitions.columns
    columns = partitions.columns if has_failed else [*partitions.columns, f"{EMPTY} AS {FAILED}"]
    excluded = [f"array_except(live, {name}) AS not_{name}" for name in _CANDIDATES]
    sets = live_brokers(brokers).selectExpr("live AS all_live", "drained AS all_drained", *excluded)
    return partitions.crossJoin(F.broadcast(sets)).selectExpr(
        *columns,
        f"array_intersect(all_live, {referenced}) AS registered",
        f"array_except(registered, {FAILED}) AS live" if has_failed else "registered AS live",
        "array_intersect(registered, all_drained) AS drained",
        "array_except(registered, not_eligible) AS eligible",
        "array_except(live, not_electable) AS electable",
        "array_except(registered, not_informed) AS informed",
    )


def with_topic(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Add `topic_id`, `config` and `deletion_requested` of each partition's topic."""
    topic_columns = topics.selectExpr("topic", "topic_id", "config", "deletion_requested")
    requested = F.expr("coalesce(deletion_requested, false)")
    return partitions.join(F.broadcast(topic_columns), "topic", "left").withColumns({"deletion_requested": requested})


def no_brokers() -> Column:
    """No broker at all."""
    return F.expr(EMPTY)


def is_led_in_isr() -> Column:
    """Whether a live member of the ISR leads; copies are taken from nobody else."""
    return F.expr(_LED)


def drained_leads(leader: str) -> str:
    """In SQL, what to say where a drained broker is the last choice, else nothing."""
    return f"IF(array_contains(drained, {leader}), concat('; {DRAINED_LEADS}', string({leader}), ' leads'), '')"


def leaderless_reason() -> Column:
    """What to say of a partition that nobody alive in its ISR leads, and why it must not move."""
    fault = F.concat(
        F.lit("no live leader in its ISR (leader "),
        F.coalesce(F.col("leader").cast("string"), F.lit("none")),
        F.lit(", ISR ["),
        format_ids(F.coalesce("isr", no_brokers())),
    )
    then = (
        "]): nobody could copy from it, and an empty replica could be elected; `surveyor plan reconcile` finds it a "
        "leader where an ISR member is alive, else `surveyor plan recover`"
    )
    return F.concat(fault, F.lit(then))


def intersect(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are in `others`, their order kept."""
    return F.array_intersect(broker_ids, others)


def difference(broker_ids: Column, others: Column) -> Column:
    """Those of `broker_ids` that are not in `others`, their order kept."""
    return F.array_except(broker_ids, others)


def in_order_of_choice(candidates: str) -> str:
    """In SQL, those of `candidates` that may lead, in their order: drained brokers come last and are not left out."""
    able = f"array_intersect(array_intersect({candidates}, eligible), live)"
    return f"concat(array_intersect({candidates}, electable), array_except({able}, electable))"


def first_choice(candidates: Column) -> Column:
    """The first of `candidates` that may lead: a drained broker where no other can, null where none can."""
    undrained = first(intersect(candidates, F.col("electable")))
    return F.coalesce(undrained, first(intersect(intersect(candidates, F.col("eligible")), F.col("live"))))


def first(broker_ids: Column) -> Column:
    """The first broker id, null if there is none."""
    return F.get(broker_ids, F.lit(0))


def format_ids_sql(broker_ids: str) -> str:
    """In SQL, broker ids as people write them."""
    return f"array_join(CAST({broker_ids} AS array<string>), ', ')"


def format_ids(broker_ids: Column) -> Column:
    """Broker ids as people write them.

    >>> spark.range(1).select(format_ids(F.array(F.lit(2), F.lit(0))).alias("who")).first().who
    '2, 0'
    """
    return F.array_join(broker_ids.cast("array<string>"), ", ")
