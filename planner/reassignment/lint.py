"""Checks of reassignment targets, for Surveyor's own plans and for given ones.

Corresponds to `ReassignPartitionsCommand.parsePartitionReassignmentData` and to the validation of
`KafkaController.processApiPartitionReassignment`. It also checks racks, the replication factor, min.insync.replicas,
the leader, and the size of /brokers/topics/T while replicas are added. The checks compare the target with the current
assignment: racks, min.insync.replicas, dead replicas and znode size are faults only if the target is worse. If it is as
bad as before, the review shows a warning. A list that Kafka itself refuses is always a fault. In: targets (topic,
partition, replicas) and the tables of a snapshot. Out: one row per fault (topic, partition, code, fault), none if the
plan is allowed.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import DRAIN_MODE, FAILED_COLUMN, difference, is_led_in_isr, no_brokers
from planner.columns.change_rows import join_current
from planner.columns.derived_columns import default_min_isr, min_isr_override
from planner.columns.sentences import leaderless_reason, sentence
from planner.columns.shape import false, true
from planner.reassignment.pending_requests import is_being_reassigned_or_requested, moving_reason, with_request_column
from schemas import reasons
from schemas.enums import LintCode
from schemas.internal_topics import pattern_of_internal
from schemas.znode_size import ZNODE_LIMIT

MAX_REPLICAS_SPREAD: Final = 64
"""Number of replicas of a partition up to which the best spread over racks is computed."""

_ZNODE_FRAME: Final = 128
"""Bytes of /brokers/topics/T around its lists: version, topic id, names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackRules:
    """Facts about racks in addition to the registered brokers.

    `given_up`: racks that will be empty and may be lost. `may_hold`: brokers that may receive replicas, None for all
    that are understood and not drained. `last_seen`: BROKERS_LAST_SEEN, for the racks of brokers that are gone.
    """

    given_up: AbstractSet[str] = frozenset()
    may_hold: AbstractSet[int] | None = None
    last_seen: DataFrame | None = None


INTERNAL_BY_NAME: Final = pattern_of_internal()

NO_RULES: Final = RackRules()


def placement_faults(  # noqa: PLR0913 - five tables, a permission, and facts about racks
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    factor_may_change: bool = False,
    rules: RackRules = NO_RULES,
    internal: str = INTERNAL_BY_NAME,
    max_bytes: int | None = ZNODE_LIMIT,
) -> DataFrame:
    """Return the faults of `targets` (topic, partition, code, fault); a plan with a fault is refused as a whole.

    `internal` is a regex that the names of internal topics match. `max_bytes` is the maximum size of a topic's
    assignment; None without a limit.
    """
    lists = targets.select("topic", "partition", F.col("replicas").alias("target"))
    faults = (
        lists.transform(_with_lint_inputs, partitions, topics, brokers, broker_configs, rules)
        .transform(explode_faults, _faults(rules.given_up, internal, factor_may_change=factor_may_change))
        .unionByName(_named_twice(lists))
    )
    faults = faults if max_bytes is None else faults.unionByName(_large_znodes(lists, partitions, max_bytes))
    return faults.orderBy("topic", "partition", "code")


def _with_lint_inputs(  # noqa: PLR0913, PLR0917 - five tables, and facts about racks
    lists: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    rules: RackRules,
) -> DataFrame:
    """Join the columns that the checks need to requested lists (`target`)."""
    return (
        lists.transform(join_current, partitions.drop(FAILED_COLUMN).transform(with_request_column), topics, brokers)
        .crossJoin(F.broadcast(_racks_of_all(brokers, rules)))
        .crossJoin(F.broadcast(default_min_isr(broker_configs)))
    )


def explode_faults(rows: DataFrame, faults: list[Column]) -> DataFrame:
    """Return one row per fault: topic, partition, code, fault."""
    faults_by_row = rows.select("topic", "partition", F.explode(F.array_compact(F.array(*faults))).alias("named"))
    return faults_by_row.select("topic", "partition", "named.code", "named.fault")


def _faults(given_up: AbstractSet[str], internal: str, *, factor_may_change: bool) -> list[Column]:
    target, replicas = F.coalesce("target", no_brokers()), F.col("replicas")
    exists, changes = replicas.isNotNull(), ~F.coalesce(F.col("target") == replicas, false())
    resized = exists & (F.size(target) != F.size(replicas)) & (F.size(target) > 0)
    faults = [
        _fault(~exists, LintCode.UNKNOWN_PARTITION, sentence(reasons.UNKNOWN_TAKE_SNAPSHOT)),
        _fault(exists & ~F.col("understood"), LintCode.NOT_UNDERSTOOD, sentence(reasons.QUARANTINED)),
        _fault(F.col("deletion_requested"), LintCode.DELETION_REQUESTED, sentence(reasons.DELETION_REQUESTED)),
        _fault(is_being_reassigned_or_requested(), LintCode.REASSIGNMENT_IN_PROGRESS, moving_reason()),
        _fault(exists & F.col("understood") & changes & ~is_led_in_isr(), LintCode.NO_LIVE_LEADER, leaderless_reason()),
        _fault((F.size(target) == 0) & changes, LintCode.NO_REPLICAS, sentence(reasons.NO_REPLICAS)),
        _duplicate_fault(target),
        _dead_fault(target, changes),
        _min_isr_fault(target, changes & exists),
        _rack_fault(target, F.size(target), exists & changes, given_up),
        _crowded_fault(target, exists & changes, given_up),
        _internal_fault(target, resized & F.col("topic").rlike(internal)),
    ]
    if factor_may_change:
        return faults
    text = sentence(reasons.FACTOR_CHANGES, now=F.size(replicas), then=F.size(target))
    return [*faults, _fault(resized, LintCode.REPLICATION_FACTOR_CHANGED, text)]


def _internal_fault(target: Column, concerned: Column) -> Column:
    """A fault if an internal topic gets fewer replicas; to move them is as safe as in any topic."""
    before = F.size("replicas")
    text = sentence(reasons.INTERNAL_FEWER, now=before, then=F.size(target))
    return _fault(concerned & (F.size(target) < before), LintCode.INTERNAL_TOPIC, text)


def _duplicate_fault(target: Column) -> Column:
    text = sentence(reasons.DUPLICATE_BROKER, target=target)
    return _fault(F.size(F.array_distinct(target)) < F.size(target), LintCode.DUPLICATE_BROKER, text)


def _dead_fault(target: Column, concerned: Column) -> Column:
    """A fault if dead brokers are added; a dead replica that stays is only a warning of the review."""
    dead = difference(difference(target, F.coalesce("replicas", no_brokers())), F.col("eligible"))
    text = sentence(reasons.ADDS_DEAD, dead=dead)
    return _fault(concerned & (F.size(dead) > 0), LintCode.BROKER_NOT_ALIVE, text)


def _min_isr_fault(target: Column, concerned: Column) -> Column:
    """A fault if there are fewer replicas than min.insync.replicas, and fewer than now."""
    least = F.coalesce(min_isr_override(), "default_min_isr")
    after, before = F.size(F.array_distinct(target)), F.size(F.array_distinct(F.coalesce("replicas", no_brokers())))
    worse = (F.size(target) > 0) & (after < F.least(least, before))
    noun = F.when(F.size(target) == 1, "replica").otherwise("replicas")
    text = sentence(reasons.MIN_ISR_UNREACHABLE, count=F.size(target), noun=noun, min_isr=least)
    return _fault(worse & concerned, LintCode.MIN_ISR_UNREACHABLE, text)


def _fault(condition: Column, code: LintCode, text: Column) -> Column:
    return F.when(condition, F.struct(F.lit(code.value).alias("code"), text.alias("fault")))


def _racks_of_all(brokers: DataFrame, rules: RackRules) -> DataFrame:
    """Return one row: `rack_of` (broker id to rack, for brokers that are gone as last seen) and `least_in_one`.

    The nth entry of `least_in_one` is the lowest possible number of n replicas in one rack; racks fill up evenly.
    """
    drained = F.col(DRAIN_MODE) if DRAIN_MODE in brokers.columns else F.lit(None)
    may_hold = F.when(F.col("understood") & drained.isNull(), true()).otherwise(false())
    if rules.may_hold is not None:
        may_hold = F.col("broker_id").isin([int(broker) for broker in rules.may_hold])
    all_brokers = brokers.select("broker_id", "rack", may_hold.alias("may_hold"))
    if rules.last_seen is not None:
        gone = rules.last_seen.select("broker_id", "rack", false().alias("may_hold"))
        all_brokers = all_brokers.unionByName(gone)
    entry = F.when(F.col("rack").isNotNull(), F.struct("broker_id", "rack"))
    return all_brokers.agg(
        F.map_from_entries(F.collect_list(entry)).alias("rack_of"),
        F.collect_list(F.when(F.col("may_hold"), F.col("rack"))).alias("room"),
        F.count(F.when(F.col("may_hold") & F.col("rack").isNull(), 1)).alias("elsewhere"),
    ).select("rack_of", _least_in_one().alias("least_in_one"))


def _least_in_one() -> Column:
    sizes = F.transform(F.array_distinct("room"), lambda rack: F.size(F.filter("room", lambda member: member == rack)))
    brokers = F.size("room") + F.col("elsewhere")

    def holds(level: Column) -> Column:
        return F.aggregate(sizes, F.col("elsewhere"), lambda sum_, size: sum_ + F.least(size, level).cast("bigint"))

    def least(replicas: Column) -> Column:
        levels = F.filter(F.sequence(F.lit(1), replicas), lambda level: holds(level) >= replicas)
        return F.get(levels, F.lit(0))

    counts = F.sequence(F.lit(1), F.least(brokers, F.lit(MAX_REPLICAS_SPREAD)).cast("int"))
    return F.when(brokers > 0, F.transform(counts, least)).otherwise(F.array().cast("array<int>"))


def _crowded_fault(target: Column, concerned: Column, given_up: AbstractSet[str], goal: Column | None = None) -> Column:
    """A fault if more replicas share a rack than now, than necessary, and than in the final list (`goal`).

    If racks are lost, that fault is reported instead.
    """
    now, then = _most_in_one(F.col("replicas")), _most_in_one(F.array_distinct(target))
    needed = F.coalesce(F.get("least_in_one", F.size(target) - 1), F.size(target))
    allowed = F.greatest(now, needed) if goal is None else F.greatest(now, needed, _most_in_one(goal))
    crowded = concerned & (F.size(target) > 0) & (then > allowed) & ~_fewer_racks(target, F.size(target), given_up)
    racks = F.array_join(F.transform(target, lambda broker: F.coalesce(F.col("rack_of")[broker], F.lit("none"))), ", ")
    text = sentence(reasons.RACK_CROWDED, now=now, then=then, racks=racks, needed=needed)
    return _fault(crowded, LintCode.RACK_CROWDED, text)


def _most_in_one(broker_ids: Column) -> Column:
    """Return the largest number of these brokers in one rack."""
    racks = _racks_of(broker_ids)
    counts = F.transform(F.array_distinct(racks), lambda rack: F.size(F.filter(racks, lambda member: member == rack)))
    apart = F.size(F.array_distinct(racks)) == F.size(racks)
    return F.when(apart, F.least(F.size(racks), F.lit(1))).otherwise(F.array_max(counts))


def _rack_fault(target: Column, size: Column, concerned: Column, given_up: AbstractSet[str]) -> Column:
    """A fault if there are fewer racks than now and fewer than `size` replicas can have.

    Brokers that are gone count with their last rack. Racks `given_up` do not count.
    """
    now, then = _racks_now(given_up), _racks(target)
    text = sentence(reasons.RACKS_LOST, now=F.size(now), then=F.size(then), racks=F.array_join(then, ", "))
    fewer = concerned & (F.size(target) > 0) & _fewer_racks(target, size, given_up)
    return _fault(fewer, LintCode.RACKS_LOST, text)


def _fewer_racks(target: Column, size: Column, given_up: AbstractSet[str]) -> Column:
    return F.size(_racks(target)) < F.least(F.size(_racks_now(given_up)), size)


def _racks_now(given_up: AbstractSet[str]) -> Column:
    now = _racks(F.col("replicas"))
    return F.filter(now, lambda rack: ~rack.isin(sorted(given_up))) if given_up else now


def _racks(broker_ids: Column) -> Column:
    return F.array_distinct(_racks_of(broker_ids))


def _racks_of(broker_ids: Column) -> Column:
    """Return the rack of each broker that has one."""
    return F.array_compact(F.transform(broker_ids, lambda broker: F.col("rack_of")[broker]))


def _named_twice(lists: DataFrame) -> DataFrame:
    return (
        lists.groupBy("topic", "partition")
        .agg(F.count("*").alias("times"))
        .where("times > 1")
        .select(
            "topic",
            "partition",
            F.lit(LintCode.NAMED_TWICE.value).alias("code"),
            sentence(reasons.NAMED_TWICE, times=F.col("times")).alias("fault"),
        )
    )


def _large_znodes(lists: DataFrame, partitions: DataFrame, max_bytes: int) -> DataFrame:
    """Return topics whose znode would not fit while the reassignment runs: each list then holds old and new replicas.

    If a znode is already larger than the limit, ZooKeeper's settings allow it; then it must not grow.
    """
    target = F.coalesce("target", "replicas")
    during = (
        F.array_union(target, F.col("replicas")),
        difference(target, F.col("replicas")),
        difference(F.col("replicas"), target),
    )
    now = (F.col("replicas"), *(F.coalesce(name, no_brokers()) for name in ("adding_replicas", "removing_replicas")))
    sizes, sizes_now = (sum(map(_bytes_of, fields), F.lit(0)) for fields in (during, now))
    grown = (
        partitions.join(lists.select("topic").distinct(), "topic", "left_semi")
        .join(lists, ["topic", "partition"], "left")
        .groupBy("topic")
        .agg((F.sum(sizes) + _ZNODE_FRAME).alias("bytes"), (F.sum(sizes_now) + _ZNODE_FRAME).alias("bytes_now"))
        .where(F.col("bytes") > F.greatest(F.lit(max_bytes), "bytes_now"))
    )
    size = F.format_number("bytes", 0)
    text = sentence(reasons.ZNODE_TOO_LARGE, topic=F.col("topic"), size=size, limit=F.lit(f"{max_bytes:,}"))
    return lists.join(grown, "topic").select(
        "topic",
        "partition",
        F.lit(LintCode.ZNODE_TOO_LARGE.value).alias("code"),
        text.alias("fault"),
    )


def _bytes_of(replicas: Column) -> Column:
    """Return the bytes of `"P":[1,2],`, 0 for an empty list."""
    written = F.length(F.array_join(replicas.cast("array<string>"), ",")) + F.length(F.col("partition").cast("string"))
    return F.when(F.size(replicas) > 0, written + len('"":[],')).otherwise(0)


def intermediate_faults(  # noqa: PLR0913 - five tables, and facts about racks
    ways: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    rules: RackRules = NO_RULES,
) -> DataFrame:
    """Return the faults of lists that a later wave replaces; a plan with one is refused as a whole.

    An intermediate list was not requested. It has no broker twice or dead, no fewer racks than now (if the final list
    can have as many), no more replicas in one rack than at the worse end, and is no further below min.insync.replicas
    than now. The znode is not measured again, as it is never larger than with all moves at once. `ways` has topic,
    partition, wave, replicas, and goal, the final list.
    """
    lists = ways.select("topic", "partition", "wave", "goal", F.col("replicas").alias("target"))
    target, known = F.col("target"), F.col("replicas").isNotNull()
    faults = [
        _duplicate_fault(target),
        _dead_fault(target, known),
        _min_isr_fault(target, known),
        _rack_fault(target, F.least(F.size(target), F.size("goal")), known, rules.given_up),
        _crowded_fault(target, known, rules.given_up, F.col("goal")),
    ]
    text = sentence(reasons.INTERMEDIATE_FAULT, wave=F.col("wave"), fault=F.col("fault.fault"))
    return (
        lists.transform(_with_lint_inputs, partitions, topics, brokers, broker_configs, rules)
        .select("topic", "partition", "wave", F.explode(F.array_compact(F.array(*faults))).alias("fault"))
        .select("topic", "partition", "fault.code", text.alias("fault"))
        .orderBy("topic", "partition", "code", "fault")
    )
