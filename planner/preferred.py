"""Preferred-replica election: leadership back to the first replica of the assignment.

Corresponds to `Election.electPreferredReplica`, seed 000 "PreferredReplicaPartitionLeaderSelector": the preferred
replica must be alive and in the ISR; the ISR stays as it is. Without a list of partitions, those of brokers whose
imbalance exceeds the threshold are considered. In: PARTITIONS, TOPICS, BROKERS, IMBALANCE or the partitions asked
for. Out: CHANGES and REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.changes import as_changes, surroundings, unchanged
from planner.liveness import first
from planner.rejections import as_rejections
from schemas.names import Action, RejectionCode


def wanted_by_imbalance(partitions: DataFrame, imbalance: DataFrame) -> DataFrame:
    """The partitions not led by their preferred replica, of brokers that exceed the threshold: topic, partition."""
    exceeding = imbalance.where("exceeds").select(F.col("broker_id").alias("preferred"))
    return (
        partitions.where(F.col("leader") != first(F.col("replicas")))
        .withColumns({"preferred": first(F.col("replicas"))})
        .join(F.broadcast(exceeding), "preferred", "left_semi")
        .select("topic", "partition")
    )


def _leader_not_understood() -> Column:
    """Registered, so alive, but nobody can tell it that it no longer leads: it would go on taking writes."""
    leader = F.col("leader")
    return F.array_contains(F.col("live"), leader) & ~F.array_contains(F.col("eligible"), leader)


def _code() -> Column:
    """Why the election cannot be, null where it can."""
    preferred = F.col("preferred")
    codes = RejectionCode
    return (
        F.when(preferred.isNull(), codes.UNKNOWN_PARTITION.value)
        .when(F.col("deletion_requested"), codes.DELETION_REQUESTED.value)
        .when(~F.col("understood"), codes.NOT_UNDERSTOOD.value)
        .when(F.col("leader").isNull(), codes.NO_STATE.value)
        .when(F.col("leader") == preferred, codes.ALREADY_PREFERRED.value)
        .when(_leader_not_understood(), codes.NOT_UNDERSTOOD.value)
        .when(F.array_contains(F.col("drained"), preferred), codes.DRAINED.value)
        .when(~F.array_contains(F.col("eligible"), preferred), codes.PREFERRED_NOT_ALIVE.value)
        .when(~F.array_contains(F.col("isr"), preferred), codes.PREFERRED_NOT_IN_ISR.value)
    )


def _why_not() -> Column:
    preferred = F.col("preferred").cast("string")
    leader = F.col("leader").cast("string")
    opaque_leader = F.concat(F.lit("its leader "), leader, F.lit(" is alive, but its registration is in quarantine"))
    not_in_isr = F.concat(F.lit("preferred replica "), preferred, F.lit(" is not in the ISR"))
    reasons = {
        RejectionCode.UNKNOWN_PARTITION: F.lit("no such partition in the snapshot"),
        RejectionCode.DELETION_REQUESTED: F.lit("its topic is queued for deletion"),
        RejectionCode.NOT_UNDERSTOOD: F.when(F.col("understood"), opaque_leader).otherwise(
            "its znode is in quarantine"
        ),
        RejectionCode.NO_STATE: F.lit("it has no state znode yet"),
        RejectionCode.ALREADY_PREFERRED: F.concat(F.lit("already led by its preferred replica "), preferred),
        RejectionCode.DRAINED: F.concat(F.lit("preferred replica "), preferred, F.lit(" is drained")),
        RejectionCode.PREFERRED_NOT_ALIVE: F.concat(F.lit("preferred replica "), preferred, F.lit(" is not alive")),
        RejectionCode.PREFERRED_NOT_IN_ISR: not_in_isr,
    }
    return F.coalesce(*(F.when(F.col("code") == code.value, reason) for code, reason in reasons.items()))


def _considered(partitions: DataFrame, topics: DataFrame, brokers: DataFrame, wanted: DataFrame) -> DataFrame:
    return (
        wanted.distinct()
        .join(partitions.transform(surroundings, topics, brokers), ["topic", "partition"], "left")
        .withColumns({"preferred": first(F.col("replicas"))})
        .withColumns({"code": _code()})
    )


def preferred_changes(partitions: DataFrame, topics: DataFrame, brokers: DataFrame, wanted: DataFrame) -> DataFrame:
    """One CHANGES row for each wanted partition (topic, partition) whose preferred replica can lead."""
    preferred = F.col("preferred")
    reason = F.concat(F.lit("preferred replica "), preferred.cast("string"), F.lit(" is alive and in the ISR"))
    return (
        _considered(partitions, topics, brokers, wanted)
        .where(F.col("code").isNull())
        .transform(unchanged)
        .withColumns(
            {
                "action": F.lit(Action.ELECT_PREFERRED.value),
                "leader_after": preferred,
                "leader_epoch_after": F.col("leader_epoch") + 1,
                "requires_live": F.array(preferred),
                "reason": reason,
            },
        )
        .transform(as_changes)
    )


def preferred_rejections(partitions: DataFrame, topics: DataFrame, brokers: DataFrame, wanted: DataFrame) -> DataFrame:
    """One REJECTIONS row for each wanted partition whose preferred replica cannot lead."""
    return (
        _considered(partitions, topics, brokers, wanted)
        .withColumns({"reason": _why_not()})
        .transform(as_rejections, Action.ELECT_PREFERRED)
    )
