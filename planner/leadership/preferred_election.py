"""Preferred replica election: leadership returns to the first replica of the assignment.

Corresponds to `Election.leaderForPreferredReplica`: the preferred replica must be live and in the ISR, and the ISR
does not change. Without a list of partitions, the partitions of brokers whose imbalance exceeds the threshold are
considered. In: PARTITIONS, TOPICS, BROKERS, IMBALANCE or the requested partitions. Out: CHANGES and REJECTIONS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import FAILED_COLUMN, first
from planner.columns.change_rows import as_rejections, change_columns
from planner.columns.requested_partitions import NO_ELECTION_REASONS, join_requested, reason_by_code, unsuitable_code
from planner.columns.sentences import sentence, sentences
from planner.leadership import selectors
from schemas import reasons
from schemas.enums import Action, RejectionCode


def candidates_by_imbalance(partitions: DataFrame, imbalance: DataFrame) -> DataFrame:
    """Return partitions not led by their preferred replica, of brokers above the threshold: topic, partition."""
    exceeding = imbalance.where("exceeds").select(F.col("broker_id").alias("preferred"))
    return (
        partitions.where(F.col("leader") != first(F.col("replicas")))
        .withColumns({"preferred": first(F.col("replicas"))})
        .join(F.broadcast(exceeding), "preferred", "left_semi")
        .select("topic", "partition")
    )


def _leader_not_understood() -> Column:
    """Return whether the leader is registered, but its registration cannot be decoded.

    Such a leader is live but cannot be notified that it no longer leads, so it would continue to accept writes.
    """
    leader = F.col("leader")
    return F.array_contains(F.col("live"), leader) & ~F.array_contains(F.col("eligible"), leader)


def _code() -> Column:
    """Return why there is no election, null if there is one."""
    preferred = F.col("preferred")
    codes = RejectionCode
    return F.coalesce(
        unsuitable_code(),
        F.when(F.col("leader").isNull(), codes.NO_STATE.value)
        .when(F.col("leader") == preferred, codes.ALREADY_PREFERRED.value)
        .when(_leader_not_understood(), codes.NOT_UNDERSTOOD.value)
        .when(F.col("leader_after").isNotNull(), F.lit(None))
        .when(F.array_contains(F.col("drained"), preferred), codes.DRAINED.value)
        .when(F.array_contains(F.col(FAILED_COLUMN), preferred), codes.LOG_DIR_FAILED.value)
        .when(F.array_contains(F.col("eligible"), preferred), codes.PREFERRED_NOT_IN_ISR.value)
        .otherwise(codes.PREFERRED_NOT_ALIVE.value),
    )


def _rejection_reason() -> Column:
    preferred = F.col("preferred")
    quarantined_leader = sentence(reasons.LEADER_IN_QUARANTINE, leader=F.col("leader"))
    quarantined = sentence(reasons.QUARANTINED)
    leads_dead = F.when(~F.array_contains("live", preferred), sentence(reasons.PREFERRED_LEADS_DEAD))
    return reason_by_code(
        {
            **NO_ELECTION_REASONS,
            RejectionCode.NOT_UNDERSTOOD: F.when(F.col("understood"), quarantined_leader).otherwise(quarantined),
            RejectionCode.NO_STATE: reasons.NO_STATE,
            RejectionCode.ALREADY_PREFERRED: sentences(
                sentence(reasons.ALREADY_PREFERRED, preferred=preferred), leads_dead
            ),
            RejectionCode.DRAINED: sentence(reasons.PREFERRED_DRAINED, preferred=preferred),
            RejectionCode.LOG_DIR_FAILED: sentence(reasons.PREFERRED_LOG_DIR_FAILED, preferred=preferred),
            RejectionCode.PREFERRED_NOT_ALIVE: sentence(reasons.PREFERRED_NOT_ALIVE, preferred=preferred),
            RejectionCode.PREFERRED_NOT_IN_ISR: sentence(reasons.PREFERRED_NOT_IN_ISR, preferred=preferred),
        },
    )


def preferred_verdicts(
    partitions: DataFrame, topics: DataFrame, brokers: DataFrame, candidates: DataFrame
) -> DataFrame:
    """Return the verdict on each requested partition: `code` and `reason` if there is no election, else null."""
    return (
        join_requested(candidates, partitions, topics, brokers)
        .withColumns({"preferred": first(F.col("replicas"))})
        .transform(selectors.preferred)
        .withColumns({"code": _code()})
        .withColumns({"reason": _rejection_reason()})
    )


def changes_of(verdicts: DataFrame) -> DataFrame:
    """Return one CHANGES row per partition whose preferred replica can lead."""
    reason = sentence(reasons.PREFERRED_ELECTED, preferred=F.col("preferred"))
    elected = {"action": f"'{Action.ELECT_PREFERRED}'", "requires_live": "array(leader_after)", "reason": reason}
    return (
        verdicts.where(F.col("code").isNull())
        .transform(selectors.preferred)
        .transform(change_columns, {name: name for name in selectors.RESULT} | elected)
    )


def rejections_of(verdicts: DataFrame) -> DataFrame:
    """Return one REJECTIONS row per requested partition whose preferred replica cannot lead, or is deferred."""
    return verdicts.transform(as_rejections, Action.ELECT_PREFERRED)
