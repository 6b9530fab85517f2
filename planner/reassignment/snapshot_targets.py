"""Targets from an earlier snapshot: the former replicas of each partition that has others now.

In: PARTITIONS and TOPICS of two snapshots, and the brokers of the later one. Out: targets for
`planner.reassignment.targets`, with a code and a reason if a partition, topic or broker no longer exists.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import difference, intersect, live_brokers
from planner.columns.sentences import sentence
from planner.columns.shape import false
from schemas import reasons
from schemas.enums import LintCode, RejectionCode
from schemas.replica_assignment import IS_BEING_REASSIGNED


def snapshot_targets(  # noqa: PLR0913 - two snapshots of two tables
    partitions_then: DataFrame,
    topics_then: DataFrame,
    partitions: DataFrame,
    topics: DataFrame,
    brokers: DataFrame,
    *,
    then: int,
) -> DataFrame:
    """Return one row per partition that is not as snapshot `then` showed it: topic, partition, replicas, code, reason.

    `replicas` are the former ones; `code` is null if they may be requested.
    """
    rows = (
        _assignments(partitions, topics, "now")
        .join(_assignments(partitions_then, topics_then, "then"), ["topic", "partition"], "full")
        .crossJoin(F.broadcast(live_brokers(brokers)))
    )
    return rows.where(~F.coalesce(_is_unchanged(), false())).select(
        "topic",
        "partition",
        F.col("replicas_then").alias("replicas"),
        *_code_and_reason(then),
    )


def _assignments(partitions: DataFrame, topics: DataFrame, when: str) -> DataFrame:
    """Return the assignment of each partition and its topic's id, with `when` in the column names."""
    ids = topics.select("topic", F.col("topic_id").alias(f"topic_id_{when}"))
    return partitions.select(
        "topic",
        "partition",
        F.col("replicas").alias(f"replicas_{when}"),
        F.expr(IS_BEING_REASSIGNED).alias(f"moving_{when}"),
    ).join(F.broadcast(ids), "topic", "left")


def _is_unchanged() -> Column:
    return ~_is_another_topic() & (F.col("replicas_now") == F.col("replicas_then")) & ~F.col("moving_now")


def _is_another_topic() -> Column:
    """An id that was assigned or lost in between does not make it another topic."""
    return F.coalesce(F.col("topic_id_now") != F.col("topic_id_then"), false())


def _code_and_reason(then: int) -> tuple[Column, Column]:
    """Return the first rejection that applies, null if the partition can go back."""
    now, before = F.col("replicas_now"), F.col("replicas_then")
    added = difference(before, now)
    dead, drained = difference(added, F.col("eligible")), intersect(added, F.col("drained"))
    unknown, moving = RejectionCode.UNKNOWN_PARTITION, RejectionCode.REASSIGNMENT_IN_PROGRESS
    snapshot = F.lit(then)
    cases: list[tuple[Column, RejectionCode | LintCode, Column]] = [
        (now.isNull(), unknown, sentence(reasons.GONE_SINCE, snapshot=snapshot)),
        (before.isNull(), unknown, sentence(reasons.UNKNOWN_THEN, snapshot=snapshot)),
        (_is_another_topic(), RejectionCode.UNKNOWN_TOPIC, sentence(reasons.CREATED_AGAIN, snapshot=snapshot)),
        (F.col("moving_then"), moving, sentence(reasons.MOVED_THEN, snapshot=snapshot)),
        (F.size(dead) > 0, LintCode.BROKER_NOT_ALIVE, sentence(reasons.RETURNS_TO_DEAD, dead=dead)),
        (F.size(drained) > 0, RejectionCode.DRAINED, sentence(reasons.RETURNS_TO_DRAINED, drained=drained)),
    ]
    codes = (F.when(condition, F.lit(code.value)) for condition, code, _ in cases)
    texts = (F.when(condition, text) for condition, _, text in cases)
    return F.coalesce(*codes).alias("code"), F.coalesce(*texts).alias("reason")
