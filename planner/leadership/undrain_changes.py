"""Undrain of an admin drain: the former replica order is restored, and with it the leaders.

The order comes from the changes that drains and undrains applied. An unbroken chain of them, each starting where the
one before ended, leads from the order before the first drain to the one after the last. Only a partition that still has
that last order is restored. Brokers that are still drained stay last. In: those changes, PARTITIONS, TOPICS, BROKERS.
Out: CHANGES and REJECTIONS.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from planner.columns.broker_sets import DRAIN_MODE, difference, first, intersect
from planner.columns.change_rows import as_rejections, change_columns, join_current, with_topic_and_brokers
from planner.columns.requested_partitions import reason_by_code
from planner.columns.sentences import sentence, sentence_sql
from planner.leadership.drain_changes import broker_array, demoted
from planner.reassignment.pending_requests import is_being_reassigned_or_requested, moving_reason, with_request_column
from planner.reassignment.replica_order_changes import elections_after, reorders
from schemas import reasons
from schemas.enums import Action, RejectionCode


def not_drained(brokers: DataFrame, broker_ids: Sequence[int]) -> DataFrame:
    """Return BROKERS with the drain mode of these brokers removed."""
    mode = F.when(~F.col("broker_id").isin(*broker_ids), F.col(DRAIN_MODE))
    return brokers.withColumns({DRAIN_MODE: mode}) if DRAIN_MODE in brokers.columns else brokers


def undrain_targets(reorders_applied: DataFrame, broker_ids: Sequence[int], still_drained: Sequence[int]) -> DataFrame:
    """Return the order that drains made and the order to restore.

    In: applied reorders of drains and undrains (topic, partition, topic_id, replicas_before, replicas_after, and `at`,
    when each was applied). Out: topic, partition, drained_topic_id, made, restored.
    """
    key = ["topic", "partition"]
    in_order = Window.partitionBy(*key).orderBy("at")
    continued = F.lag(F.struct("topic_id", "replicas_after")).over(in_order)
    begins = ~continued.eqNullSafe(F.struct("topic_id", F.col("replicas_before").alias("replicas_after")))
    return (
        reorders_applied.withColumns({"begins": begins.cast("int")})
        .withColumns({"chain": F.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, 0))})
        .groupBy(*key, "chain")
        .agg(
            F.max_by("topic_id", "at").alias("drained_topic_id"),
            F.min_by("replicas_before", "at").alias("original"),
            F.max_by("replicas_after", "at").alias("made"),
        )
        .groupBy(*key)
        .agg(F.max_by(F.struct("drained_topic_id", "original", "made"), "chain").alias("last"))
        .select(*key, "last.*")
        .withColumns({"restored": demoted(F.col("original"), broker_array(still_drained))})
        .where(F.arrays_overlap("made", broker_array(broker_ids)) & (F.col("restored") != F.col("made")))
    )


def _with_verdicts(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    return (
        targets.transform(join_current, partitions.transform(with_request_column), topics, brokers)
        .withColumns({"code": _code(), "why": sentence(reasons.UNDRAINED)})
        .withColumnRenamed("restored", "target")
    )


def _code() -> Column:
    codes = RejectionCode
    another = F.col("replicas").isNull() | ~F.col("topic_id").eqNullSafe(F.col("drained_topic_id"))
    return (
        F.when(another, codes.UNKNOWN_PARTITION.value)
        .when(F.col("deletion_requested"), codes.DELETION_REQUESTED.value)
        .when(~F.col("understood"), codes.NOT_UNDERSTOOD.value)
        .when(is_being_reassigned_or_requested(), codes.REASSIGNMENT_IN_PROGRESS.value)
        .when(F.sort_array("replicas") != F.sort_array("made"), codes.REASSIGNED_SINCE.value)
        .when(F.col("replicas") == F.col("restored"), codes.ALREADY_ASSIGNED.value)
        .when(F.col("replicas") != F.col("made"), codes.REORDERED_SINCE.value)
    )


def undrain_changes(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition and wave: first the order, then the leader if the first replica can lead."""
    due = _with_verdicts(targets, partitions, topics, brokers).where(F.col("code").isNull())
    preferred = first(F.col("target"))
    can_lead = F.array_contains(F.col("isr"), preferred) & F.array_contains(F.col("electable"), preferred)
    return reorders(due).unionByName(elections_after(due.where(can_lead & (F.col("leader") != preferred))))


def undrain_rejections(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return one REJECTIONS row per partition that is not as the drain left it."""
    changed_since = sentence(reasons.CHANGED_SINCE_DRAIN, replicas=F.col("replicas"), made=F.col("made"))
    reason = reason_by_code(
        {
            RejectionCode.UNKNOWN_PARTITION: reasons.DRAINED_PARTITION_GONE,
            RejectionCode.DELETION_REQUESTED: reasons.DELETION_REQUESTED,
            RejectionCode.NOT_UNDERSTOOD: reasons.QUARANTINED,
            RejectionCode.REASSIGNMENT_IN_PROGRESS: moving_reason(),
            RejectionCode.REASSIGNED_SINCE: changed_since,
            RejectionCode.ALREADY_ASSIGNED: reasons.ORDER_RESTORED,
            RejectionCode.REORDERED_SINCE: changed_since,
        }
    )
    return (
        _with_verdicts(targets, partitions, topics, brokers)
        .withColumns({"reason": reason})
        .transform(as_rejections, Action.REASSIGN)
    )


def _stopped(partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]) -> DataFrame:
    """Return the partitions in which a replica on these brokers is not in sync, with a `code` if it cannot restart."""
    out = difference(intersect(F.col("replicas"), broker_array(broker_ids)), F.col("isr"))
    return (
        partitions.where("leader IS NOT NULL")
        .withColumns({"out": out})
        .where("size(out) > 0")
        .transform(with_topic_and_brokers, topics, brokers)
        .withColumns({"code": _restart_code()})
    )


def _restart_code() -> Column:
    codes = RejectionCode
    return (
        F.when(F.col("deletion_requested"), codes.DELETION_REQUESTED.value)
        .when(~F.col("understood"), codes.NOT_UNDERSTOOD.value)
        .when(~F.array_contains("live", F.col("leader")), codes.LEADER_NOT_ALIVE.value)
    )


def restart_changes(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]
) -> DataFrame:
    """Return one CHANGES row per partition in which a replica on these brokers must follow again.

    A resident drain stopped these replicas. LeaderAndIsr is sent to all replicas at the next leader epoch, because a
    broker ignores one at an epoch that it already knows (`Partition.makeFollower`). Leader and ISR stay; a replica
    that catches up is added to the ISR by its leader. Corresponds to `KafkaController.onBrokerStartup`.
    """
    due = _stopped(partitions, topics, brokers, broker_ids).where("code IS NULL")
    values = {
        "action": f"'{Action.START_REPLICA}'",
        "leader_epoch_after": "leader_epoch + 1",
        "requires_live": "array(leader)",
        "reason": sentence_sql(reasons.NO_LONGER_DRAINED, out="out"),
    }
    return change_columns(due, values)


def restart_rejections(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, broker_ids: Sequence[int]
) -> DataFrame:
    """Return one REJECTIONS row per partition in which such a replica cannot follow."""
    reason = reason_by_code(
        {
            RejectionCode.DELETION_REQUESTED: reasons.DELETION_REQUESTED,
            RejectionCode.NOT_UNDERSTOOD: reasons.QUARANTINED,
            RejectionCode.LEADER_NOT_ALIVE: reasons.NO_LEADER_TO_FOLLOW,
        }
    )
    return (
        _stopped(partitions, topics, brokers, broker_ids)
        .withColumns({"reason": reason})
        .transform(as_rejections, Action.START_REPLICA)
    )
