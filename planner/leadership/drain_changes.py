"""Drains: brokers demoted while Kafka's controller is running, or shut down in a controlled way without it.

Corresponds to `Election.leaderForControlledShutdown` and `KafkaController.doControlledShutdown`. The new leader is the
first replica of the assignment that is in the ISR, live and not drained, or another such replica if the plan spreads
leaders (NEXT_LEADER). All drained brokers leave the ISR. Draining several brokers is one decision. Follower replicas on
a drained broker are stopped. For partitions that it led, the broker becomes a follower. (A replica stopped at a leader
epoch it already knows cannot be restarted at that epoch by any controller.) In: PARTITIONS, TOPICS, BROKERS and the
brokers to drain. Out: CHANGES and REJECTIONS, among these each partition that would go offline.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference, first, intersect
from planner.columns.change_rows import as_rejections, change_columns, with_topic_and_brokers
from planner.columns.requested_partitions import NO_ELECTION_REASONS, reason_by_code, unsuitable_code
from planner.columns.sentences import sentence, sentences
from planner.reassignment.pending_requests import is_being_reassigned_or_requested, moving_reason, with_request_column
from planner.reassignment.replica_order_changes import elections_after, reorders
from schemas import reasons
from schemas.enums import Action, DrainMode, RejectionCode

NEXT_LEADER: Final = "next_leader"
"""Column of PARTITIONS: the candidate that leads after the drain. Without it the first candidate leads."""


def demoted(replicas: Column, demoted_brokers: Column) -> Column:
    """Return replicas with the replicas on `demoted_brokers` at the end, both parts in their order.

    >>> row = spark.range(1).select(F.array(*map(F.lit, [2, 5, 7, 1])).alias("replicas"))
    >>> row.select(demoted(F.col("replicas"), F.array(F.lit(2), F.lit(7))).alias("after")).first().after
    [5, 1, 2, 7]
    """
    return F.concat(difference(replicas, demoted_brokers), intersect(replicas, demoted_brokers))


def broker_array(broker_ids: Sequence[int]) -> Column:
    return F.array(*map(F.lit, broker_ids)).cast("array<int>")


def _with_verdicts(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_ids: Sequence[int],
    mode: DrainMode,
) -> DataFrame:
    """Return the partitions with a replica on these brokers: candidate leaders, or a code if nothing is planned."""
    draining = broker_array(broker_ids)
    candidates = intersect(intersect(F.col("replicas"), F.col("isr")), F.array_except("electable", draining))
    return (
        partitions.where(F.arrays_overlap("replicas", draining))
        .transform(with_request_column)
        .transform(with_topic_and_brokers, topics, brokers)
        .withColumns(
            {
                "draining": draining,
                "drained": F.array_union("drained", draining),
                "stopping": F.array_union(F.array_except("eligible", "informed"), draining),
                "candidates": _next_leader_first(candidates) if NEXT_LEADER in partitions.columns else candidates,
                "leaderless": ~F.array_contains("live", F.col("leader")),
                "why": sentence(reasons.DRAINED, brokers=intersect(F.col("replicas"), draining)),
            },
        )
        .withColumns({"led": F.array_contains("drained", F.col("leader"))})
        .withColumns({"code": _code(mode)})
    )


def _next_leader_first(candidates: Column) -> Column:
    return F.array_distinct(F.concat(intersect(F.array(NEXT_LEADER), candidates), candidates))


def _code(mode: DrainMode) -> Column:
    """Return why nothing is planned, null if a change is."""
    codes = RejectionCode
    is_last_in_isr = F.col("leaderless") & F.arrays_overlap("isr", "draining")
    no_candidate = F.size("candidates") == 0
    by_mode = {
        DrainMode.ADMIN: F.when(is_being_reassigned_or_requested(), codes.REASSIGNMENT_IN_PROGRESS.value),
        DrainMode.RESIDENT: F.when(F.col("leaderless"), codes.LEADER_NOT_ALIVE.value).when(
            F.size(difference(F.col("isr"), F.col("stopping"))) == 0,
            codes.LAST_IN_ISR.value,
        ),
    }
    return F.coalesce(
        unsuitable_code(),
        F.when(F.col("leader").isNull(), codes.NO_STATE.value),
        F.when((F.col("led") | is_last_in_isr) & no_candidate, codes.WOULD_GO_OFFLINE.value),
        by_mode[mode],
    )


def drained_leaders(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_ids: Sequence[int],
    mode: DrainMode,
) -> DataFrame:
    """Return the partitions that get another leader (topic, partition), and the brokers that can lead, in order."""
    led = _with_verdicts(partitions, topics, brokers, broker_ids, mode).where(F.col("code").isNull() & F.col("led"))
    return led.select("topic", "partition", "candidates")


def drain_changes(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_ids: Sequence[int],
    mode: DrainMode,
) -> DataFrame:
    """Return one CHANGES row per partition and wave.

    In admin mode the replica order is changed first and the leader in the next wave; in resident mode both change at
    once.
    """
    due = _with_verdicts(partitions, topics, brokers, broker_ids, mode).where(F.col("code").isNull())
    if mode is DrainMode.RESIDENT:
        return shutdown_changes(due)
    ordered = due.withColumns({"target": _order()})
    return reorders(ordered).unionByName(elections_after(ordered.where("led")))


def _order() -> Column:
    """Return the replica order with drained brokers last; the next leader comes first if leadership must move."""
    order = demoted(F.col("replicas"), F.col("drained"))
    next_leader = F.slice("candidates", 1, 1)
    return F.when(F.col("led"), F.array_distinct(F.concat(next_leader, order))).otherwise(order)


def shutdown_changes(rows: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition of a controlled shutdown.

    A drained broker receives LeaderAndIsr for partitions it led, and StopReplica for the others.
    """
    replicas = F.col("replicas")
    leader = F.when(F.col("led"), first(F.col("candidates"))).otherwise(F.col("leader"))
    stopped = F.array_except(intersect(replicas, F.col("stopping")), F.array("leader"))
    return rows.withColumns({"action": _action(), "leader_after": leader}).transform(
        change_columns,
        {
            "leader_after": "leader_after",
            "isr_after": "array_except(isr, stopping)",
            "leader_epoch_after": "leader_epoch + 1",
            "leader_and_isr_to": difference(intersect(replicas, F.col("eligible")), stopped),
            "stop_replica_to": stopped,
            "requires_live": "array(leader_after)",
            "reason": _reason(),
        },
    )


def _action() -> Column:
    return (
        F.when(F.col("led"), Action.CONTROLLED_SHUTDOWN.value)
        .when(F.arrays_overlap("isr", "draining"), Action.SHRINK_ISR.value)
        .otherwise(Action.STOP_REPLICA.value)
    )


def _reason() -> Column:
    leader = F.col("leader_after")
    first_candidate = first(intersect(F.col("replicas"), F.col("candidates")))
    elected = F.when(leader == first_candidate, sentence(reasons.IN_SYNC_ELECTED, leader=leader)).otherwise(
        sentence(reasons.EVEN_LEADERS_ELECTED, leader=leader)
    )
    shrunk = F.when(F.col("action") == Action.SHRINK_ISR.value, sentence(reasons.LEAVES_ISR)).otherwise(
        sentence(reasons.NOT_IN_ISR)
    )
    return sentences(F.col("why"), F.when(F.col("led"), elected).otherwise(shrunk))


def drain_rejections(
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    broker_ids: Sequence[int],
    mode: DrainMode,
) -> DataFrame:
    """Return one REJECTIONS row per partition on a drained broker that stays unchanged."""
    action = Action.REASSIGN if mode is DrainMode.ADMIN else Action.CONTROLLED_SHUTDOWN
    return (
        _with_verdicts(partitions, topics, brokers, broker_ids, mode)
        .withColumns({"reason": _rejection_reason()})
        .transform(as_rejections, action)
    )


def _rejection_reason() -> Column:
    only = F.when(F.size("replicas") == 1, sentence(reasons.ONLY_REPLICA, replicas=F.col("replicas")))
    isr = sentence(reasons.NO_OTHER_CAN_LEAD, isr=F.col("isr"))
    return reason_by_code(
        {
            **NO_ELECTION_REASONS,
            RejectionCode.NO_STATE: reasons.NO_STATE,
            RejectionCode.WOULD_GO_OFFLINE: F.coalesce(only, isr),
            RejectionCode.REASSIGNMENT_IN_PROGRESS: moving_reason(),
            RejectionCode.LEADER_NOT_ALIVE: sentence(reasons.LEADER_NOT_ALIVE, leader=F.col("leader")),
            RejectionCode.LAST_IN_ISR: reasons.LAST_IN_ISR,
        }
    )
