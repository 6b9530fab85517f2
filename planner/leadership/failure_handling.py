"""Changes after failures, at most one per partition: first leaders, elections and ISR shrinks.

Corresponds to `PartitionStateMachine` (New -> Online, Offline -> Online by `offlinePartitionLeaderElection`), to
`ReplicaStateMachine.removeReplicasFromIsr` and to `KafkaController.onBrokerFailure`. Precedence: topic queued for
deletion or znode not understood -> nothing, no state -> create, leader dead or none -> elect, dead ISR member ->
shrink. In: PARTITIONS, TOPICS, BROKERS, BROKER_CONFIGS. Out: verdicts, and from these CHANGES and REJECTIONS.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import (
    FAILED_COLUMN,
    NO_BROKERS_SQL,
    in_order_of_choice,
    with_referenced_brokers,
    with_topic,
)
from planner.columns.change_rows import as_rejections, change_columns, leader_and_isr_recipients
from planner.columns.sentences import FAILED_SUFFIX, drained_leads, sentence, sentence_sql, sentences_sql
from planner.leadership.offline_strategy import ASSUMED_FAILED, ELECTED, no_leader_reason, with_election
from planner.leadership.unclean_config import with_unclean_allowed
from schemas import reasons
from schemas.enums import NO_LEADER, RECOVERED, Action, RejectionCode
from schemas.tables import PARTITIONS

# an ISR member whose registration cannot be decoded may hold the data, so the partition stays unchanged
ACTION: Final = f"""CASE
    WHEN deletion_requested OR NOT understood THEN NULL
    WHEN leader IS NULL THEN IF(size(first_isr) > 0, '{Action.CREATE}', NULL)
    WHEN leaderless AND elected IS NOT NULL THEN '{Action.ELECT}'
    WHEN leaderless AND leader != {NO_LEADER} AND size(survivors) = 0 AND size(isr) > 0 THEN '{Action.TAKE_OFFLINE}'
    WHEN NOT leaderless AND size(gone) > 0 AND size(survivors) > 0 THEN '{Action.SHRINK_ISR}'
END"""
"""The change that a partition needs, null for none."""

CODE_SQL: Final = f"""CASE
    WHEN deletion_requested THEN NULL
    WHEN NOT understood THEN '{RejectionCode.NOT_UNDERSTOOD}'
    WHEN leader IS NULL AND size(first_isr) = 0 THEN '{RejectionCode.NO_ELIGIBLE_LEADER}'
    WHEN leaderless AND (action IS NULL OR action = '{Action.TAKE_OFFLINE}') THEN '{RejectionCode.NO_ELIGIBLE_LEADER}'
END"""
"""Reason why a partition stays without a leader or was not considered; null if it has or gets a leader."""

_ABLE: Final = "array_intersect(array_intersect(replicas, eligible), live)"

FIRST_ISR: Final = f"""IF(
    size(array_intersect({_ABLE}, informed)) > 0, array_intersect({_ABLE}, informed), {_ABLE}
)"""
"""The first ISR of a new partition; a replica that a drain stops is in it only if no other replica is live."""

_FIRST_LEADER: Final = f"get({in_order_of_choice('first_isr')}, 0)"

_DERIVED: Final = {
    "snapshot_id",
    "partition_state",
    "offline_replicas",
    "under_replicated",
    "under_min_isr",
    "vanished",
}

SOURCE_COLUMNS: Final = [name for name in PARTITIONS.names if name not in _DERIVED]
"""The columns of PARTITIONS that rules read: those that are not derived from others."""

VERDICT_COLUMNS: Final = (
    *SOURCE_COLUMNS,
    *("topic_id", "live", "eligible", "electable", "informed", "drained", "unclean_state", FAILED_COLUMN),
    *("elected", "gone", "survivors", "leaderless"),
)
"""Columns that changes and rejections show or depend on; other joined columns are dropped here."""


def reconcile_verdicts(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_configs: DataFrame,
    *,
    allow_unclean: bool = False,
) -> DataFrame:
    """Return `action` and `code`, or nulls, for each partition that may need a change, and VERDICT_COLUMNS.

    `allow_unclean` allows unclean elections for all partitions, as `unclean.leader.election.enable` of the topic or the
    brokers does.
    """
    return (
        partitions.transform(needing_attention, brokers)
        .transform(with_topic, topics)
        .transform(with_referenced_brokers, brokers)
        .transform(with_unclean_allowed, broker_configs, everywhere=allow_unclean)
        .transform(with_election)
        .selectExpr("*", f"{FIRST_ISR} AS first_isr")
        .selectExpr("*", f"{ACTION} AS action")
        .selectExpr(*VERDICT_COLUMNS, "first_isr", "action", f"{CODE_SQL} AS code")
    )


def _by_action(otherwise: str, cases: Mapping[Action, str]) -> str:
    whens = (f"WHEN '{action}' THEN {chosen}" for action, chosen in cases.items())
    return f"CASE action {' '.join(whens)} ELSE {otherwise} END"


_CREATE, _ELECT, _SHRINK, _OFFLINE = Action.CREATE, Action.ELECT, Action.SHRINK_ISR, Action.TAKE_OFFLINE

CHANGE_COLUMNS: Final = {
    "leader_after": _by_action(
        "leader", {_CREATE: _FIRST_LEADER, _ELECT: ELECTED["leader_after"], _OFFLINE: str(NO_LEADER)}
    ),
    "isr_after": _by_action("isr", {_CREATE: "first_isr", _ELECT: ELECTED["isr_after"], _SHRINK: "survivors"}),
    "leader_epoch_after": _by_action(ELECTED["leader_epoch_after"], {_CREATE: "0"}),
    "leader_recovery_state_after": _by_action(
        "leader_recovery_state", {_CREATE: str(RECOVERED), _ELECT: ELECTED["leader_recovery_state_after"]}
    ),
    "leader_and_isr_to": _by_action(
        leader_and_isr_recipients("isr"),
        {_CREATE: leader_and_isr_recipients("first_isr"), _ELECT: ELECTED["leader_and_isr_to"]},
    ),
    "requires_live": _by_action(
        ASSUMED_FAILED,
        {
            _CREATE: "first_isr",
            _ELECT: ELECTED["requires_live"],
            _SHRINK: f"array_union(array(leader), {ASSUMED_FAILED})",
        },
    ),
    "requires_dead": _by_action(
        ELECTED["requires_dead"], {_CREATE: NO_BROKERS_SQL, _SHRINK: f"array_except(gone, {FAILED_COLUMN})"}
    ),
    "reason": _by_action(
        "NULL",
        {
            _CREATE: sentences_sql(
                sentence_sql(reasons.FIRST_LEADER, what=sentence_sql(reasons.NO_STATE_YET)),
                drained_leads(_FIRST_LEADER),
            ),
            _ELECT: ELECTED["reason"],
            _OFFLINE: sentences_sql(sentence_sql(reasons.ISR_GONE, gone="gone"), FAILED_SUFFIX),
            _SHRINK: sentences_sql(sentence_sql(reasons.ISR_SHRINKS, gone="gone"), FAILED_SUFFIX),
        },
    ),
}
"""The columns of a change, by action.

An unclean leader starts RECOVERING. A leader without a possible successor becomes -1, and the ISR is kept.
"""


def changes_of(verdicts: DataFrame) -> DataFrame:
    """Return one CHANGES row per verdict that has an action."""
    return verdicts.where("action IS NOT NULL").transform(change_columns, CHANGE_COLUMNS)


def rejections_of(verdicts: DataFrame) -> DataFrame:
    """Return the partitions that stay without a leader, and those that were not considered, as REJECTIONS."""
    return verdicts.withColumns({"reason": rejection_reason()}).transform(as_rejections, Action.ELECT)


def rejection_reason() -> Column:
    """Return the reason of a verdict that has a code."""
    never_up = F.col("leader").isNull()
    none_live = sentence(reasons.NO_REPLICA_ALIVE, replicas=F.col("replicas"))
    return (
        F.when(~F.col("understood"), sentence(reasons.UNPLANNED_IN_QUARANTINE))
        .when(never_up, none_live)
        .otherwise(no_leader_reason())
    )


_REFERENCED_BROKERS: Final = f"""CASE
    WHEN NOT understood OR leader IS NULL OR isr IS NULL {{}} THEN array({NO_LEADER})
    WHEN array_contains(isr, leader) THEN isr
    ELSE concat(isr, array(leader))
END"""
"""The ISR and the leader; if rules must see the partition anyway, NO_LEADER, which is never registered."""

_OR_REFERENCES_FAILED: Final = f"OR array_contains({FAILED_COLUMN}, leader) OR arrays_overlap({FAILED_COLUMN}, isr)"


def needing_attention(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return partitions that were not understood, have no state, or reference a leader or ISR member not registered.

    Return also partitions whose leader or ISR includes a replica whose log dir failed. Kafka handles such a replica at
    once and does not wait for its leader to remove it (`onReplicasBecomeOffline`). Only SOURCE_COLUMNS are selected, as
    columns that are not needed are not even read.

    A dead broker concerns a few in a hundred of a million partitions. Joining anything to all of them costs more than
    reading them.
    """
    failed, or_references_failed = (
        ([FAILED_COLUMN], _OR_REFERENCES_FAILED) if FAILED_COLUMN in partitions.columns else ([], "")
    )
    registered = brokers.select(F.col("broker_id").alias("named"))
    return (
        # a join on each broker id is many times faster than a set operation per row
        partitions.selectExpr(
            *SOURCE_COLUMNS, *failed, f"explode({_REFERENCED_BROKERS.format(or_references_failed)}) AS named"
        )
        .join(F.broadcast(registered), "named", "left_anti")
        .drop("named")
        .distinct()  # a row per broker id that is not registered
    )
