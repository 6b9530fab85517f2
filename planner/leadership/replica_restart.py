"""Restart of replicas that a resident drain stopped: LeaderAndIsr to all replicas at the next leader epoch.

A broker ignores a LeaderAndIsr request at a leader epoch that it already knows (`PartitionInfo.makeFollower`), so the
epoch must grow. Leader and ISR stay; a replica that catches up is added to the ISR by its leader. Corresponds to
`KafkaController.onBrokerStartup`, which starts the replicas of a broker. In: PARTITIONS, TOPICS, BROKERS and the
brokers that are no longer drained. Out: CHANGES and REJECTIONS.
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
    """Return the partitions in which a replica on these brokers is not in sync, with a `code` if it cannot restart."""
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
    """Return one CHANGES row per partition in which a replica on these brokers must follow again."""
    due = _stopped(partitions, topics, brokers, broker_ids).where("code IS NULL")
    values = {
        "action": f"'{Action.START_REPLICA}'",
        "leader_epoch_after": "leader_epoch + 1",
        "requires_live": "array(leader)",
        "reason": f"concat('no longer drained, and not in the ISR: ', {format_ids_sql('out')})",
    }
    return changed(due, values)


def restart_rejections(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]
) -> DataFrame:
    """Return one REJECTIONS row per partition in which such a replica cannot follow."""
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
