"""Requested reassignments: the target of each partition, and the replicas it adds and removes.

Corresponds to `ReplicaAssignment.reassignTo` and to the checks of `KafkaController.processApiPartitionReassignment`.
The controller that executes the reassignment determines phases and epochs. Kafka also accepts targets of a partition
without a leader: it waits, and may elect the new, empty replica. Here that is a rejection. In: targets (topic,
partition, replicas and OPTIONAL_COLUMNS), PARTITIONS, TOPICS, BROKERS. Out: CHANGES and REJECTIONS.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, NO_BROKERS_SQL, difference, first, intersect, is_led_in_isr
from planner.columns.change_rows import as_rejections, change_columns, join_current
from planner.columns.requested_partitions import reason_by_code
from planner.columns.sentences import leaderless_reason, sentence, sentences
from planner.reassignment.pending_requests import is_being_reassigned_or_requested, moving_reason, with_request_column
from schemas import reasons
from schemas.enums import Action, RejectionCode

OPTIONAL_COLUMNS: Final = {"reason": "string", "wave": "int", "earlier": "array<array<int>>", "steps": "int"}
"""Optional columns of targets, with their types.

They are the reason, the wave (default 0), the lists after the partition's earlier waves, in order, and the number of
its steps.
"""


def _with_tables(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    optional = {
        name: F.col(name) if name in targets.columns else F.lit(None).cast(kind)
        for name, kind in OPTIONAL_COLUMNS.items()
    }
    lists = targets.select(
        "topic",
        "partition",
        F.col("replicas").alias("target"),
        optional["reason"].alias("why"),
        F.coalesce(optional["wave"], F.lit(0)).alias("wave_of"),
        F.coalesce(optional["earlier"], F.array().cast(OPTIONAL_COLUMNS["earlier"])).alias("earlier"),
        F.coalesce(optional["steps"], F.lit(1)).alias("steps"),
    )
    return lists.transform(join_current, partitions.drop(FAILED_COLUMN).transform(with_request_column), topics, brokers)


def _code() -> Column:
    return (
        F.when(F.col("deletion_requested"), RejectionCode.DELETION_REQUESTED.value)
        .when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value)
        .when(is_being_reassigned_or_requested(), RejectionCode.REASSIGNMENT_IN_PROGRESS.value)
        .when(F.col("replicas").isNotNull() & ~is_led_in_isr(), RejectionCode.NO_LIVE_LEADER.value)
        .when(F.col("replicas") == F.col("target"), RejectionCode.ALREADY_ASSIGNED.value)
    )


def reassignment_changes(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
) -> DataFrame:
    """Return one CHANGES row per wave of each partition that moves or is reordered.

    A replica that leaves a dead broker leaves because of that, so the broker must stay dead.
    `leader_epoch_after` is null because the controller that executes the phases counts it. So is `leader_epoch_before`
    of later waves.
    """
    adding, removing = difference(F.col("target"), F.col("replicas")), difference(F.col("replicas"), F.col("target"))
    return change_columns(
        _accepted(targets, partitions, topics, brokers),
        {
            "wave": "wave_of",
            "action": f"'{Action.REASSIGN}'",
            "replicas_after": "target",
            "adding_after": adding,
            "removing_after": removing,
            "leader_after": _leader_after(),
            "isr_after": "target",
            "leader_epoch_after": "NULL",
            "leader_and_isr_to": NO_BROKERS_SQL,
            "requires_live": intersect(F.col("target"), F.col("eligible")),
            "requires_dead": difference(removing, F.col("live")),
            "reason": _reason(adding, removing),
        },
    )


def elections_after_moves(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    *,
    wave: int,
) -> DataFrame:
    """Return one CHANGES row per partition that another replica than its preferred one would lead after its moves.

    Kafka's controller keeps the leader while it stays in the list (`leaderForReassign`), so a new order alone does
    not balance leaders. The executing controller sets the epochs.
    """
    preferred, leader = first(F.col("target")), _leader_after()
    arrived = F.size("earlier") + 1 == F.col("steps")
    can_lead = F.array_contains("electable", preferred)
    rows = _accepted(targets, partitions, topics, brokers).where(arrived & can_lead & (leader != preferred))
    return change_columns(
        rows,
        {
            "wave": F.lit(wave),
            "action": f"'{Action.ELECT_PREFERRED}'",
            "replicas_before": "target",
            "replicas_after": "target",
            "leader_before": leader,
            "leader_after": preferred,
            "isr_before": "target",
            "isr_after": "target",
            "leader_epoch_before": "NULL",
            "leader_epoch_after": "NULL",
            "leader_and_isr_to": NO_BROKERS_SQL,
            "requires_live": F.array(preferred),
            "reason": sentence(reasons.ELECTED_AFTER_MOVES),
        },
    )


def _accepted(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    due = _with_tables(targets, partitions, topics, brokers).where(F.col("replicas").isNotNull() & _code().isNull())
    # costs a lambda per row, so it is left out if there are no earlier waves
    return due.transform(_with_earlier_waves) if "earlier" in targets.columns else due


def _leader_after() -> Column:
    """Return the leader after a move: it stays while it is in the list, else the first replica, as all are in sync."""
    stays = F.array_contains(F.col("target"), F.col("leader"))
    return F.when(stays, F.col("leader")).otherwise(first(F.col("target")))


def _with_earlier_waves(rows: DataFrame) -> DataFrame:
    """Set replicas, ISR and leader as the earlier waves leave them.

    That is their last list, in sync, led by the current leader while it stays in the lists.
    """
    earlier, later = F.col("earlier"), F.size("earlier") > 0
    made = F.try_element_at(earlier, F.lit(-1))
    led = F.aggregate(
        earlier,
        F.col("leader"),
        lambda leader, replicas: F.when(F.array_contains(replicas, leader), leader).otherwise(first(replicas)),
    )
    return rows.withColumns(
        {
            "leader": led,
            "replicas": F.coalesce(made, "replicas"),
            "isr": F.coalesce(made, "isr"),
            "leader_epoch": F.when(~later, F.col("leader_epoch")),
        },
    )


def _reason(adding: Column, removing: Column) -> Column:
    moves = sentence(reasons.MOVES, adding=adding, removing=removing)
    effect = F.when(F.size(adding) + F.size(removing) == 0, sentence(reasons.REORDERED)).otherwise(moves)
    step = sentence(reasons.STEP, step=F.size("earlier") + 1, steps=F.col("steps"), what=effect)
    with_why = sentences(step, sentence(reasons.STEP_WHY, why=F.col("why")))
    return F.when(F.col("steps") > 1, with_why).otherwise(F.coalesce("why", effect))


def reassignment_rejections(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
) -> DataFrame:
    """Return one REJECTIONS row per target that is not planned."""
    reason = reason_by_code(
        {
            RejectionCode.DELETION_REQUESTED: reasons.DELETION_REQUESTED,
            RejectionCode.NOT_UNDERSTOOD: reasons.QUARANTINED,
            RejectionCode.REASSIGNMENT_IN_PROGRESS: moving_reason(),
            RejectionCode.NO_LIVE_LEADER: leaderless_reason(),
            RejectionCode.ALREADY_ASSIGNED: reasons.HAS_REPLICAS,
        }
    )
    return (
        _with_tables(targets, partitions, topics, brokers)
        .where(F.size("earlier") == 0)
        .withColumns({"code": _code()})
        .withColumns({"reason": reason})
        .transform(as_rejections, Action.REASSIGN)
    )
