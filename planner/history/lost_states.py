"""Partitions whose state znode is missing although history has one: the leader and ISR last seen.

Kafka's controller would treat such a partition as New (`PartitionStateMachine.initializePartitionState`) and elect its
first live replica at leader epoch 0, whichever replica has the data. Surveyor does not treat it as new: only
`planner.leadership.unclean_recovery` elects a leader for it, and its leader epoch continues. In: partitions without a
state, PARTITION_HISTORY, and the former ids of their topics. Out: their last known states, and REJECTIONS.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from planner.columns.change_rows import as_rejections
from planner.columns.sentences import sentence_sql
from planner.columns.shape import false
from planner.history.snapshot_diff import has_vanished
from schemas import reasons
from schemas.enums import Action, RejectionCode
from schemas.tables import PARTITION_KEY

STATE: Final = ("leader", "isr", "leader_epoch", "leader_recovery_state")
"""Columns of a state that history keeps."""

LAST_STATE_REASON: Final = sentence_sql(
    reasons.LAST_STATE, seen="seen", leader="leader", isr="isr", leader_epoch="leader_epoch"
)


def without_state(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Return partitions without a state znode whose topic is not queued for deletion: PARTITIONS and `topic_id`."""
    staying = topics.where("NOT coalesce(deletion_requested, false)").select("topic", "topic_id")
    return partitions.where("leader IS NULL AND understood").join(F.broadcast(staying), "topic")


def last_known_states(stateless: DataFrame, history: DataFrame) -> DataFrame:
    """Return the last known state of each partition that had one before: a row with STATE, `seen` and `gone`.

    `seen` is the last snapshot that has the state, `gone` the first one without it.
    `stateless` has cluster, topic, partition, topic_id and topic_version. A partition is left out if it vanished itself
    in between, or if the version of its topic's znode is lower than it was then. Both mean that the topic was deleted
    and created again.
    """
    current_topics = stateless.select(
        "cluster", *PARTITION_KEY, "topic_id", F.col("topic_version").alias("version_now")
    )
    in_order = Window.partitionBy(*PARTITION_KEY).orderBy("snapshot_id")
    had = "leader IS NOT NULL AND NOT tombstone"
    whole = ", ".join(["snapshot_id AS seen", "gone", "topic_version", *STATE])
    return (
        history.select(*PARTITION_KEY, "snapshot_id", "topic_version", *STATE, has_vanished().alias("tombstone"))
        .join(F.broadcast(current_topics.select(*PARTITION_KEY)), PARTITION_KEY, "left_semi")
        .withColumns({"gone": F.lead("snapshot_id").over(in_order)})
        .groupBy(*PARTITION_KEY)
        .agg(
            F.expr(f"max_by(struct({whole}), IF({had}, snapshot_id, NULL)) FILTER (WHERE {had}) AS last"),
            F.expr("coalesce(max(snapshot_id) FILTER (WHERE tombstone), 0) AS vanished"),
        )
        .where("last.seen > vanished")
        .select(*PARTITION_KEY, "last.*")
        .join(current_topics, PARTITION_KEY)
        .where("topic_version <= version_now")
        .select("cluster", *PARTITION_KEY, "topic_id", "version_now", "seen", "gone", *STATE)
    )


def filter_same_topic(lost_states: DataFrame, ids: DataFrame) -> DataFrame:
    """Leave out partitions whose topic had another id, or a later znode version, before the state was lost.

    `ids` has topic, gone, id_then and version_then. An unknown id, as of topics before Kafka 2.8, decides nothing. A
    znode that was created again restarts its versions.
    """
    another = F.col("topic_id").isNotNull() & F.col("id_then").isNotNull() & (F.col("topic_id") != F.col("id_then"))
    began_again = F.coalesce(F.col("version_then") > F.col("version_now"), false())
    lost_states = lost_states.join(F.broadcast(ids), ["topic", "gone"], "left").where(~another & ~began_again)
    return lost_states.drop("id_then", "version_then", "version_now")


def vanished_rejections(known: DataFrame) -> DataFrame:
    """Return one REJECTIONS row per partition: it must not be created as a new one."""
    reason = sentence_sql(reasons.STATE_VANISHED, last_state=LAST_STATE_REASON)
    return known.withColumns(
        {"code": F.lit(RejectionCode.STATE_VANISHED.value), "reason": F.expr(reason)},
    ).transform(as_rejections, Action.CREATE)
