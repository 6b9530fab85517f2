"""What a reassignment must not be: the checks every plan passes, ours and foreign ones.

Corresponds to `ReassignPartitionsCommand.parsePartitionAssignmentData` and the validation of
`KafkaController.processApiPartitionReassignment`, and goes further: racks, replication factor, min.insync.replicas, who
leads, and the size of /brokers/topics/T while replicas are added. The checks judge the change, not the state: racks,
min.insync.replicas, dead replicas and the size of a znode are faults only where the target is worse than what is
assigned now; what is as bad as before is a warning of the review. A list that Kafka itself refuses is always a fault.
In: targets (topic, partition, replicas) and the tables of a snapshot. Out: one row a fault (topic, partition, code,
fault); none if the plan may be made.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.reassignment.pending import is_moving, moving_in_words, with_requests_known
from planner.rows.changes import surroundings
from planner.rows.derived import default_min_isr, min_isr_override
from planner.rows.liveness import FAILED, in_words, is_led, leaderless_in_words, nobody, not_among
from schemas.names import LintCode

ZNODE_LIMIT: Final = 1_000_000
"""Bytes: below ZooKeeper's jute.maxbuffer of 1 MB, with room for the request around the data."""

_ZNODE_FRAME: Final = 128
"""Bytes of /brokers/topics/T around its lists: version, topic id, names."""


def placement_faults(  # noqa: PLR0913 - five tables and two permissions
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    factor_may_change: bool = False,
    given_up: AbstractSet[str] = frozenset(),
) -> DataFrame:
    """Faults of `targets`: topic, partition, code, fault; a plan with one is refused as a whole.

    `given_up`: racks that are to be empty, and may be lost.
    """
    lists = targets.select("topic", "partition", F.col("replicas").alias("target"))
    return (
        lists.transform(considered, partitions, topics, brokers, broker_configs)
        .transform(exploded, _faults(given_up, factor_may_change=factor_may_change))
        .unionByName(_named_twice(lists))
        .unionByName(_large_znodes(lists, partitions))
        .orderBy("topic", "partition", "code")
    )


def considered(
    lists: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
) -> DataFrame:
    """Join to lists asked for (`target`) what the checks need."""
    return (
        lists.join(
            partitions.drop(FAILED).transform(with_requests_known).transform(surroundings, topics, brokers),
            ["topic", "partition"],
            "left",
        )
        .crossJoin(F.broadcast(_rack_of(brokers)))
        .crossJoin(F.broadcast(default_min_isr(broker_configs)))
    )


def exploded(rows: DataFrame, faults: list[Column]) -> DataFrame:
    """One row a fault: topic, partition, code, fault."""
    named = rows.select("topic", "partition", F.explode(F.array_compact(F.array(*faults))).alias("named"))
    return named.select("topic", "partition", "named.code", "named.fault")


def _faults(given_up: AbstractSet[str], *, factor_may_change: bool) -> list[Column]:
    target, replicas = F.coalesce("target", nobody()), F.col("replicas")
    known, changes = replicas.isNotNull(), ~F.coalesce(F.col("target") == replicas, F.lit(False))  # noqa: FBT003
    resized = known & (F.size(target) != F.size(replicas)) & (F.size(target) > 0)
    faults = [
        _fault(~known, LintCode.UNKNOWN_PARTITION, "no such partition in the snapshot: take a new one if it is newer"),
        _fault(known & ~F.col("understood"), LintCode.NOT_UNDERSTOOD, "its znode is in quarantine"),
        _fault(F.col("deletion_requested"), LintCode.DELETION_REQUESTED, "its topic is queued for deletion"),
        _fault(is_moving(), LintCode.REASSIGNMENT_IN_PROGRESS, moving_in_words()),
        _fault(known & F.col("understood") & changes & ~is_led(), LintCode.NO_LIVE_LEADER, leaderless_in_words()),
        _fault(F.size(target) == 0, LintCode.NO_REPLICAS, "no replicas"),
        duplicate_fault(target),
        dead_fault(target, changes),
        min_isr_fault(target, changes & known),
        rack_fault(target, F.size(target), known & changes, given_up),
    ]
    if factor_may_change:
        return faults
    counts = F.concat(F.lit("replication factor "), F.size(replicas), F.lit(" → "), F.size(target))
    text = F.concat(counts, F.lit(": not asked for"))
    return [*faults, _fault(resized, LintCode.REPLICATION_FACTOR_CHANGED, text)]


def duplicate_fault(target: Column) -> Column:
    text = F.concat(F.lit("names a broker twice: "), in_words(target))
    return _fault(F.size(F.array_distinct(target)) < F.size(target), LintCode.DUPLICATE_BROKER, text)


def dead_fault(target: Column, concerned: Column) -> Column:
    """A dead replica that stays is nobody's choice now; reviewers are warned of it."""
    dead = not_among(not_among(target, F.coalesce("replicas", nobody())), F.col("eligible"))
    text = F.concat(F.lit("adds brokers not alive in the snapshot: "), in_words(dead))
    return _fault(concerned & (F.size(dead) > 0), LintCode.BROKER_NOT_ALIVE, text)


def min_isr_fault(target: Column, concerned: Column) -> Column:
    """Fewer replicas than min.insync.replicas, and fewer than now."""
    least = F.coalesce(min_isr_override(), "default_min_isr")
    after, before = F.size(F.array_distinct(target)), F.size(F.array_distinct(F.coalesce("replicas", nobody())))
    worse = (F.size(target) > 0) & (after < F.least(least, before))
    replicas = F.when(F.size(target) == 1, " replica").otherwise(" replicas")
    text = F.concat(F.size(target), replicas, F.lit(" can never reach min.insync.replicas="), least)
    return _fault(worse & concerned, LintCode.MIN_ISR_UNREACHABLE, text)


def _fault(condition: Column, code: LintCode, text: str | Column) -> Column:
    fault = F.lit(text) if isinstance(text, str) else text
    return F.when(condition, F.struct(F.lit(code.value).alias("code"), fault.alias("fault")))


def _rack_of(brokers: DataFrame) -> DataFrame:
    """One row: `rack_of`, broker id to rack, for brokers that have one."""
    entry = F.when(F.col("rack").isNotNull(), F.struct("broker_id", "rack"))
    return brokers.agg(F.map_from_entries(F.collect_list(entry)).alias("rack_of"))


def rack_fault(target: Column, size: Column, concerned: Column, given_up: AbstractSet[str]) -> Column:
    """Fewer racks than now, as far as `size` replicas can have as many; a broker that is gone is in no rack.

    Racks `given_up` count as if they were gone.
    """
    now, then = _racks(F.col("replicas")), _racks(target)
    if given_up:
        now = F.array_except(now, F.array(*map(F.lit, sorted(given_up))))
    text = F.concat(F.lit("racks "), F.size(now), F.lit(" → "), F.size(then), F.lit(": ["), F.array_join(then, ", "))
    fewer = concerned & (F.size(target) > 0) & (F.size(then) < F.least(F.size(now), size))
    return _fault(fewer, LintCode.RACKS_LOST, F.concat(text, F.lit("]")))


def _racks(broker_ids: Column) -> Column:
    return F.array_distinct(F.array_compact(F.transform(broker_ids, lambda broker: F.col("rack_of")[broker])))


def _named_twice(lists: DataFrame) -> DataFrame:
    return (
        lists.groupBy("topic", "partition")
        .agg(F.count("*").alias("times"))
        .where("times > 1")
        .select(
            "topic",
            "partition",
            F.lit(LintCode.NAMED_TWICE.value).alias("code"),
            F.concat(F.lit("the plan names this partition "), "times", F.lit(" times")).alias("fault"),
        )
    )


def _large_znodes(lists: DataFrame, partitions: DataFrame) -> DataFrame:
    """Topics whose znode would not fit while the reassignment runs: each list then holds old and new replicas.

    A znode that is larger than the limit already was let in by ZooKeeper's settings; it must not grow.
    """
    target = F.coalesce("target", "replicas")
    during = (
        F.array_union(target, F.col("replicas")),
        not_among(target, F.col("replicas")),
        not_among(F.col("replicas"), target),
    )
    now = (F.col("replicas"), *(F.coalesce(name, nobody()) for name in ("adding_replicas", "removing_replicas")))
    sizes, sizes_now = (sum(map(_bytes_of, fields), F.lit(0)) for fields in (during, now))
    grown = (
        partitions.join(lists.select("topic").distinct(), "topic", "left_semi")
        .join(lists, ["topic", "partition"], "left")
        .groupBy("topic")
        .agg((F.sum(sizes) + _ZNODE_FRAME).alias("bytes"), (F.sum(sizes_now) + _ZNODE_FRAME).alias("bytes_now"))
        .where(F.col("bytes") > F.greatest(F.lit(ZNODE_LIMIT), "bytes_now"))
    )
    limit = F.lit(f" bytes while this runs, more than {ZNODE_LIMIT}: plan the topic in several parts")
    return lists.join(grown, "topic").select(
        "topic",
        "partition",
        F.lit(LintCode.ZNODE_TOO_LARGE.value).alias("code"),
        F.concat(F.lit("/brokers/topics/"), "topic", F.lit(" would take "), "bytes", limit).alias("fault"),
    )


def _bytes_of(replicas: Column) -> Column:
    """Bytes of `"P":[1,2],`, none for an empty list."""
    written = F.length(F.array_join(replicas.cast("array<string>"), ",")) + F.length(F.col("partition").cast("string"))
    return F.when(F.size(replicas) > 0, written + len('"":[],')).otherwise(0)
