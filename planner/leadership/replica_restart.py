"""Replicas that a drain in resident mode stopped are started again: everybody is told once more, an epoch later.

A broker ignores a LeaderAndIsr at a leader epoch that it knows (`PartitionInfo.makeFollower`), so the epoch grows;
leader and ISR stay, and who catches up joins the ISR by the leader's word. Corresponds to
`KafkaController.onBrokerStartup`, which starts the replicas of a broker. In: PARTITIONS, TOPICS, BROKERS and who is
drained no more. Out: CHANGES and REJECTIONS.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference, format_ids_sql, intersect
from planner.columns.changes import as_rejections, changed, with_topic_and_brokers
from planner.columns.requested_partitions import reason_by_code
from planner.leadership.drain import broker_array
from schemas.enums import Action, RejectionCode


def _stopped(partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]) -> DataFrame:
    """Partitions in which one of these brokers has a replica that is not in sync, and `code`: why it stays so."""
    out = difference(intersect(F.col("replicas"), broker_array(broker_ids)), F.col("isr"))
    return (
        partitions.where("leader IS NOT NULL")
        .withColumns({"out": out})
        .where("size(out) > 0")
        .transform(with_topic_and_brokers, topics, brokers)
        .withColumns({"code": _code()})
    )


def _code() -> Column:
    codes = RejectionCode
    return (
        F.when(F.col("deletion_requested"), codes.DELETION_REQUESTED.value)
        .when(~F.col("understood"), codes.NOT_UNDERSTOOD.value)
        .when(~F.array_contains("live", F.col("leader")), codes.LEADER_NOT_ALIVE.value)
    )


def restart_changes(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]
) -> DataFrame:
    """One CHANGES row for each partition that a replica on one of these brokers is to follow again."""
    due = _stopped(partitions, topics, brokers, broker_ids).where("code IS NULL")
    values = {
        "action": f"'{Action.START_REPLICA}'",
        "leader_epoch_after": "leader_epoch + 1",
        "requires_live": "array(leader)",
        "reason": f"concat('drained no more, and not in the ISR: ', {format_ids_sql('out')})",
    }
    return changed(due, values)


def restart_rejections(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]
) -> DataFrame:
    """One REJECTIONS row for each partition in which such a replica cannot be told to follow."""
    reasons: dict[RejectionCode, Column | str] = {
        RejectionCode.DELETION_REQUESTED: "its topic is queued for deletion",
        RejectionCode.NOT_UNDERSTOOD: "its znode is in quarantine",
        RejectionCode.LEADER_NOT_ALIVE: "it has no live leader to follow: reconcile",
    }
    return (
        _stopped(partitions, topics, brokers, broker_ids)
        .withColumns({"reason": reason_by_code(reasons)})
        .transform(as_rejections, Action.START_REPLICA)
    )
