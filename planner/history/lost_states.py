"""Partitions whose state znode is gone, though history knows it: who led and was in sync when it was last seen.

Kafka's controller would take such a partition for New (`PartitionStateMachine.initializePartitionState`) and let its
first live replica lead at leader epoch 0, whoever has the data. Here it is no new partition: nobody leads it but by
`planner.leadership.unclean_recovery`, and its leader epoch goes on. In: partitions without a state, PARTITION_HISTORY,
and the ids that their topics had. Out: what was last known of them, and REJECTIONS.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from planner.columns.changes import as_rejections
from planner.history.snapshot_diff import KEY, has_vanished
from schemas.enums import Action, RejectionCode

STATE: Final = ("leader", "isr", "leader_epoch", "leader_recovery_state")
"""What is known of a state that is gone."""

LAST_STATE_REASON: Final = """concat(
    'its state znode is gone: snapshot ', seen, ' showed leader ', leader,
    ', ISR ', array_join(CAST(isr AS array<string>), ', '), ', leader epoch ', leader_epoch
)"""


def without_state(partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Partitions that have no state znode, of topics that stay: PARTITIONS and `topic_id`."""
    staying = topics.where("NOT coalesce(deletion_requested, false)").select("topic", "topic_id")
    return partitions.where("leader IS NULL AND understood").join(F.broadcast(staying), "topic")


def last_known_states(stateless: DataFrame, history: DataFrame) -> DataFrame:
    """One row for each of these that had a state before: STATE, and `seen` and `gone`, the snapshots of that and after.

    `stateless` has cluster, topic, partition, topic_id and topic_version. A partition that vanished itself since, or
    whose topic's znode is at a lower version than then, belongs to a topic that was made anew: nothing is known.
    """
    current_topics = stateless.select("cluster", *KEY, "topic_id", F.col("topic_version").alias("version_now"))
    in_order = Window.partitionBy(*KEY).orderBy("snapshot_id")
    had = "leader IS NOT NULL AND NOT tombstone"
    whole = ", ".join(["snapshot_id AS seen", "gone", "topic_version", *STATE])
    return (
        history.select(*KEY, "snapshot_id", "topic_version", *STATE, has_vanished().alias("tombstone"))
        .join(F.broadcast(current_topics.select(*KEY)), KEY, "left_semi")
        .withColumns({"gone": F.lead("snapshot_id").over(in_order)})
        .groupBy(*KEY)
        .agg(
            F.expr(f"max_by(struct({whole}), IF({had}, snapshot_id, NULL)) FILTER (WHERE {had}) AS last"),
            F.expr("coalesce(max(snapshot_id) FILTER (WHERE tombstone), 0) AS anew"),
        )
        .where("last.seen > anew")
        .select(*KEY, "last.*")
        .join(current_topics, KEY)
        .where("topic_version <= version_now")
        .select("cluster", *KEY, "topic_id", "version_now", "seen", "gone", *STATE)
    )


def filter_same_topic(known: DataFrame, ids: DataFrame) -> DataFrame:
    """Leave out those whose topic had another id, or a later version, before the state was gone.

    `ids` has topic, gone, id_then and version_then. An id that is not known, as of a topic before Kafka 2.8, says
    nothing; a znode that was created again begins its versions again.
    """
    another = F.col("topic_id").isNotNull() & F.col("id_then").isNotNull() & (F.col("topic_id") != F.col("id_then"))
    began_again = F.coalesce(F.col("version_then") > F.col("version_now"), F.lit(False))  # noqa: FBT003
    known = known.join(F.broadcast(ids), ["topic", "gone"], "left").where(~another & ~began_again)
    return known.drop("id_then", "version_then", "version_now")


def vanished_rejections(known: DataFrame) -> DataFrame:
    """One REJECTIONS row for each: it is not to be created."""
    why = f"concat({LAST_STATE_REASON}, '; `surveyor plan recover` offers leaders for it, with the evidence')"
    return known.withColumns(
        {"code": F.lit(RejectionCode.STATE_VANISHED.value), "reason": F.expr(why)},
    ).transform(as_rejections, Action.CREATE)
