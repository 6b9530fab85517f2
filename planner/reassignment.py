"""Reassignment as asked for: each partition's target, what that adds and what it removes.

Corresponds to `ReplicaAssignment.reassignTo` and the checks of `KafkaController.processApiPartitionReassignment`;
seed 000, "PartitionsReassignedListener". Phases and epochs are the executing controller's. In: targets (topic,
partition, replicas and, if whoever made them says it, reason), PARTITIONS, TOPICS, BROKERS. Out: faults, CHANGES and
REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.asked import explained
from planner.changes import as_changes, surroundings, unchanged
from planner.liveness import among, first, in_words, nobody, not_among
from planner.rejections import as_rejections
from schemas.names import Action, RejectionCode


def _considered(targets: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    why = F.col("reason") if "reason" in targets.columns else F.lit(None).cast("string")
    asked = targets.select("topic", "partition", F.col("replicas").alias("target"), why.alias("why"))
    return asked.join(partitions.transform(surroundings, topics, brokers), ["topic", "partition"], "left")


def reassignment_faults(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
) -> DataFrame:
    """Targets that must not be asked for: topic, partition, fault; a plan with one is refused as a whole."""
    live = brokers.where("understood").agg(F.collect_set("broker_id").alias("known"))
    absent = not_among(not_among(F.col("target"), F.col("replicas")), F.col("known"))
    fault = (
        F.when(F.col("replicas").isNull(), F.lit("no such partition in the snapshot: take a new one if it is newer"))
        .when(F.coalesce(F.size("target"), F.lit(0)) == 0, F.lit("no replicas"))
        .when(
            F.size(F.array_distinct("target")) < F.size("target"),
            F.concat(F.lit("names a broker twice: "), in_words(F.col("target"))),
        )
        .when(F.size(absent) > 0, F.concat(F.lit("adds brokers not alive in the snapshot: "), in_words(absent)))
    )
    return (
        _considered(targets, partitions, topics, brokers)
        .crossJoin(F.broadcast(live))
        .select("topic", "partition", fault.alias("fault"))
        .where(F.col("fault").isNotNull())
        .orderBy("topic", "partition")
    )


def _code() -> Column:
    moving = F.size(F.concat("adding_replicas", "removing_replicas")) > 0
    return (
        F.when(F.col("deletion_requested"), RejectionCode.DELETION_REQUESTED.value)
        .when(~F.col("understood"), RejectionCode.NOT_UNDERSTOOD.value)
        .when(moving, RejectionCode.REASSIGNMENT_IN_PROGRESS.value)
        .when(F.col("replicas") == F.col("target"), RejectionCode.ALREADY_ASSIGNED.value)
    )


def reassignment_changes(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
) -> DataFrame:
    """One CHANGES row for each partition that is to move or to be reordered.

    `leader_epoch_after` is null: the controller that executes the phases counts it.
    """
    stays = F.array_contains(F.col("target"), F.col("leader"))
    adding, removing = not_among(F.col("target"), F.col("replicas")), not_among(F.col("replicas"), F.col("target"))
    said = F.when(F.size(adding) + F.size(removing) == 0, F.lit("order of replicas changes, no data moves")).otherwise(
        F.concat(F.lit("adds ["), in_words(adding), F.lit("], removes ["), in_words(removing), F.lit("]")),
    )
    return (
        _considered(targets, partitions, topics, brokers)
        .where(F.col("replicas").isNotNull() & _code().isNull())
        .transform(unchanged)
        .withColumns(
            {
                "action": F.lit(Action.REASSIGN.value),
                "replicas_after": F.col("target"),
                "adding_after": adding,
                "removing_after": removing,
                "leader_after": F.when(stays, F.col("leader")).otherwise(first(F.col("target"))),
                "isr_after": F.col("target"),
                "leader_epoch_after": F.lit(None).cast("int"),
                "leader_and_isr_to": nobody(),
                "requires_live": among(F.col("target"), F.col("eligible")),
                "reason": F.coalesce("why", said),
            },
        )
        .transform(as_changes)
    )


def reassignment_rejections(
    targets: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
) -> DataFrame:
    """One REJECTIONS row for each target that is not due."""
    reasons = {
        RejectionCode.DELETION_REQUESTED: F.lit("its topic is queued for deletion"),
        RejectionCode.NOT_UNDERSTOOD: F.lit("its znode is in quarantine"),
        RejectionCode.REASSIGNMENT_IN_PROGRESS: F.lit("it is being reassigned already"),
        RejectionCode.ALREADY_ASSIGNED: F.lit("it has these replicas already"),
    }
    why = explained(reasons)
    return (
        _considered(targets, partitions, topics, brokers)
        .withColumns({"code": _code()})
        .withColumns({"reason": why})
        .transform(as_rejections, Action.REASSIGN)
    )
