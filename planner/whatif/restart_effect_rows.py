"""Effect of restarting brokers on each partition: offline, under min ISR, below the margin, or unknown.

`planner.rules.restart_effect` is the plain-Python counterpart and explains the rule; a change of one needs the other.
In: PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS. Out: RESTARTED_PARTITIONS.
"""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from planner.columns.broker_sets import NO_BROKERS_SQL, REFERENCED_SQL, with_referenced_brokers
from planner.columns.config_values import MIN_ISR_OVERRIDE, whole_number
from planner.columns.sentences import sentence_sql
from planner.columns.shape import with_schema
from schemas import reasons
from schemas.enums import INTERNAL_TOPICS, RestartCode, RestartEffect
from schemas.replica_assignment import IS_BEING_REASSIGNED
from schemas.tables import BROKER_IDS
from schemas.text import join_ids
from schemas.topic_configs import MIN_ISR

RESTARTED_PARTITIONS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("leader", IntegerType()),
        StructField("replicas", BROKER_IDS),
        StructField("isr", BROKER_IDS),
        StructField("live", BROKER_IDS),
        StructField("in_sync_after", IntegerType()),
        StructField("min_isr", IntegerType()),
        StructField("effect", StringType()),
        StructField("effect_with_full_isr", StringType()),
        StructField("code", StringType()),
        StructField("reason", StringType()),
        StructField("is_internal", BooleanType()),
    ]
)
"""The columns of `planner.rules.restart_effect.RestartedPartition`. No table stores these rows."""

_CODE_SQL: Final = f"""CASE
    WHEN NOT understood THEN '{RestartCode.NOT_UNDERSTOOD}'
    WHEN leader IS NULL THEN '{RestartCode.NO_STATE}'
    WHEN NOT array_contains(live, leader) THEN '{RestartCode.NO_LIVE_LEADER}'
    WHEN is_leaderless THEN CASE
        WHEN size(candidates) > 0 THEN '{RestartCode.BROKER_UNCERTAIN}'
        WHEN size(replicas) = 1 THEN '{RestartCode.ONLY_REPLICA}'
        ELSE '{RestartCode.NO_OTHER_IN_SYNC}'
    END
    WHEN is_being_reassigned AND size(others) = 0 THEN '{RestartCode.ONLY_TARGET}'
    WHEN min_isr IS NULL THEN '{RestartCode.MIN_ISR_UNKNOWN}'
    WHEN NOT effect_of_most <=> effect_of_least THEN '{RestartCode.BROKER_UNCERTAIN}'
    WHEN effect_of_least IS NULL THEN NULL
    WHEN size(others) < needed THEN '{RestartCode.TOO_FEW_REPLICAS}'
    ELSE '{RestartCode.TOO_FEW_IN_SYNC}'
END"""

_OFFLINE: Final = (
    RestartCode.NO_LIVE_LEADER,
    RestartCode.ONLY_REPLICA,
    RestartCode.NO_OTHER_IN_SYNC,
    RestartCode.ONLY_TARGET,
)
_COUNTED: Final = (RestartCode.TOO_FEW_REPLICAS, RestartCode.TOO_FEW_IN_SYNC)
_UNREAD: Final = (RestartCode.NOT_UNDERSTOOD, RestartCode.NO_STATE)


def _one_of(codes: Collection[RestartCode]) -> str:
    return f"code IN ({', '.join(repr(code.value) for code in codes)})"


_EFFECT_SQL: Final = f"""CASE
    WHEN {_one_of(_OFFLINE)} THEN '{RestartEffect.OFFLINE}'
    WHEN {_one_of(_COUNTED)} THEN effect_of_least
    ELSE '{RestartEffect.UNKNOWN}'
END"""

_FULL_EFFECT_SQL: Final = f"""IF(
    {_one_of(_UNREAD)} OR NOT full_effect_of_most <=> full_effect_of_least,
    '{RestartEffect.UNKNOWN}',
    full_effect_of_most
)"""

_REASONS: Final[Mapping[RestartCode, str]] = {
    RestartCode.NOT_UNDERSTOOD: sentence_sql(reasons.QUARANTINED),
    RestartCode.NO_STATE: sentence_sql(reasons.NO_STATE),
    RestartCode.NO_LIVE_LEADER: sentence_sql(reasons.OFFLINE_NOW, leader="leader"),
    RestartCode.ONLY_REPLICA: sentence_sql(reasons.ONLY_REPLICA, replicas="replicas"),
    RestartCode.NO_OTHER_IN_SYNC: sentence_sql(reasons.NO_OTHER_CAN_LEAD, isr="isr"),
    RestartCode.ONLY_TARGET: sentence_sql(reasons.ENDS_WITH_TARGET, target="target"),
    RestartCode.MIN_ISR_UNKNOWN: f"""IF(
        config IS NULL OR map_contains_key(config, '{MIN_ISR}'),
        {sentence_sql(reasons.MIN_ISR_OF_TOPIC_UNREAD)},
        {sentence_sql(reasons.MIN_ISR_OF_BROKERS_UNREAD, brokers="silent")}
    )""",
    RestartCode.BROKER_UNCERTAIN: sentence_sql(
        reasons.DEPENDS_ON_UNCERTAIN, uncertain="IF(is_leaderless, candidates, uncertain)"
    ),
    RestartCode.TOO_FEW_REPLICAS: sentence_sql(reasons.TOO_FEW_REPLICAS, count="size(others)", needed="needed"),
    RestartCode.TOO_FEW_IN_SYNC: sentence_sql(reasons.TOO_FEW_IN_SYNC, count="least", needed="needed", isr="isr"),
}


def restarted_partitions(  # noqa: PLR0913 - four tables and two options
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    restarting: Collection[int],
    margin: int = 0,
) -> DataFrame:
    """Return one row per partition that restarting all these brokers at once affects, or whose effect is unknown."""
    topic_facts = topics.selectExpr(
        "topic",
        "deletion_requested",
        "config",
        f"{MIN_ISR_OVERRIDE} AS min_isr_override",
    )
    ids = f"CAST(array({join_ids(sorted(restarting))}) AS array<int>)"
    facts = broker_configs.transform(_min_isr_of_brokers).selectExpr("*", f"{ids} AS restarting")
    reasons_by_code = " ".join(f"WHEN '{code}' THEN {reason}" for code, reason in _REASONS.items())
    internal = ", ".join(repr(name) for name in sorted(INTERNAL_TOPICS))
    return (
        partitions.crossJoin(F.broadcast(facts))
        .where(_may_be_affected())
        .join(F.broadcast(topic_facts), "topic", "left")
        .where("NOT coalesce(deletion_requested, false)")
        .transform(with_referenced_brokers, brokers)
        .transform(_with_counts)
        .transform(_with_min_isr, margin)
        .selectExpr("*", f"{_CODE_SQL} AS code")
        .where("code IS NOT NULL")
        .selectExpr(
            *("topic", "partition", "leader", "replicas", "isr", "code"),
            "array_intersect(replicas, live) AS live",
            f"IF({_one_of(_UNREAD)}, NULL, least) AS in_sync_after",
            f"IF({_one_of((*_UNREAD, *_OFFLINE))} OR is_leaderless, NULL, min_isr) AS min_isr",
            f"{_EFFECT_SQL} AS effect",
            f"{_FULL_EFFECT_SQL} AS effect_with_full_isr",
            f"CASE code {reasons_by_code} END AS reason",
            f"topic IN ({internal}) AS is_internal",
        )
        .orderBy("topic", "partition")
        .transform(with_schema, RESTARTED_PARTITIONS)
    )


def _min_isr_of_brokers(broker_configs: DataFrame) -> DataFrame:
    """Return one row: `defaults`, the known default min.insync.replicas by broker."""
    value = whole_number("value")
    is_known = f"name = '{MIN_ISR}' AND NOT coalesce(assumed, false) AND {value} IS NOT NULL"
    entries = f"collect_list(struct(broker_id, {value})) FILTER (WHERE {is_known})"
    return broker_configs.selectExpr(f"map_from_entries({entries}) AS defaults")


def _may_be_affected() -> str:
    """Return SQL for partitions that reference a restarted broker, or may do so."""
    return f"arrays_overlap({REFERENCED_SQL}, restarting) IS TRUE OR (NOT understood AND size(replicas) = 0)"


def _with_counts(partitions: DataFrame) -> DataFrame:
    """Add the replicas that remain, and how many of them are in sync, at most and at least."""
    members = f"coalesce(isr, {NO_BROKERS_SQL})"
    remaining = f"array_except(array_intersect({members}, live), restarting)"
    capped = "IF(is_being_reassigned, least(size({0}), size(others)), size({0}))"
    return (
        partitions.selectExpr(
            "*",
            f"{remaining} AS remaining",
            f"coalesce({IS_BEING_REASSIGNED}, false) AS is_being_reassigned",
            f"array_except(replicas, coalesce(removing_replicas, {NO_BROKERS_SQL})) AS target",
            f"array_intersect(concat(replicas, {members}, array(leader)), live) AS on_live",
        )
        .selectExpr(
            "*",
            f"array_except(on_live, IF(size(restarting) = 1, restarting, {NO_BROKERS_SQL})) AS may_lead",
            "array_except(target, restarting) AS others",
            "array_except(remaining, eligible) AS uncertain",
            "array_intersect(replicas, remaining) AS candidates",
            "array_intersect(remaining, eligible) AS understood_remaining",
        )
        .selectExpr(
            "*",
            f"{capped.format('remaining')} AS most",
            f"{capped.format('understood_remaining')} AS least",
            "array_contains(restarting, leader) AND NOT arrays_overlap(candidates, eligible) AS is_leaderless",
        )
    )


def _with_min_isr(partitions: DataFrame, margin: int) -> DataFrame:
    """Add min.insync.replicas of the possible leaders, null if it is unknown, and what the counts mean."""
    effect = (
        f"CASE WHEN {{0}} < min_isr THEN '{RestartEffect.UNDER_MIN_ISR}' "
        f"WHEN {{0}} < needed THEN '{RestartEffect.BELOW_MARGIN}' END AS effect_of_{{0}}"
    )
    full_effect = (
        f"CASE WHEN {{0}} <= 0 THEN '{RestartEffect.OFFLINE}' WHEN full_min_isr IS NULL THEN '{RestartEffect.UNKNOWN}' "
        f"WHEN {{0}} < full_min_isr THEN '{RestartEffect.UNDER_MIN_ISR}' "
        f"WHEN {{0}} < full_min_isr + {margin} THEN '{RestartEffect.BELOW_MARGIN}' END AS full_effect_of_{{1}}"
    )
    return (
        partitions.selectExpr("*", f"{_SILENT.format('may_lead')} AS silent")
        .selectExpr("*", f"{_min_isr_of('may_lead')} AS min_isr", f"{_min_isr_of('on_live')} AS full_min_isr")
        .selectExpr("*", f"min_isr + {margin} AS needed")
        .selectExpr(
            "*",
            effect.format("most"),
            effect.format("least"),
            full_effect.format("size(others)", "most"),
            full_effect.format("size(array_except(others, array_except(live, eligible)))", "least"),
        )
    )


_SILENT: Final = "filter({0}, broker -> NOT map_contains_key(defaults, broker))"
"""SQL for the brokers of an array whose default min.insync.replicas is unknown."""


def _min_isr_of(may_lead: str) -> str:
    """Return SQL for the largest min.insync.replicas that a leader among these brokers may apply."""
    return f"""CASE
        WHEN config IS NULL THEN NULL
        WHEN map_contains_key(config, '{MIN_ISR}') THEN min_isr_override
        WHEN size({_SILENT.format(may_lead)}) = 0
        THEN array_max(transform({may_lead}, broker -> try_element_at(defaults, broker)))
    END"""
