"""First leaders of new partitions: the first live replica leads, and the live replicas are the ISR.

Corresponds to `PartitionStateMachine.initializeLeaderAndIsrForPartitions`. Replicas of partitions added to a topic
continue Kafka's algorithm from the existing ones (`AdminZkClient.addPartitions`). In: assignments (topic, partition,
replicas, topic_id), each with a live replica, and BROKERS. Out: CHANGES.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import first_choice, intersect, no_brokers, with_live_brokers
from planner.columns.sentences import drained_leads, sentence, sentences
from planner.columns.shape import true, with_schema
from schemas import reasons
from schemas.enums import NO_VERSION, RECOVERED, Action
from schemas.reasons import Sentence
from schemas.tables import CHANGES


def creation_changes(
    assignments: DataFrame, brokers: DataFrame, cluster: str, origin: Sentence = reasons.NEW_TOPIC
) -> DataFrame:
    """Return one CHANGES row per partition: leader epoch 0, no znodes before, LeaderAndIsr to all live replicas."""
    live_replicas = intersect(F.col("replicas"), F.col("eligible"))
    leader = first_choice(live_replicas)
    return (
        assignments.transform(with_live_brokers, brokers)
        .withColumns({"leader_after": leader})
        .withColumns(
            {
                "cluster": F.lit(cluster),
                "wave": F.lit(0),
                "action": F.lit(Action.CREATE.value),
                "replicas_after": F.col("replicas"),
                "adding_after": no_brokers(),
                "removing_after": no_brokers(),
                "isr_after": live_replicas,
                "leader_epoch_after": F.lit(0),
                "leader_recovery_state_after": F.lit(RECOVERED),
                "state_version": F.lit(NO_VERSION),
                "topic_version": F.lit(NO_VERSION),
                "is_new": true(),
                "leader_and_isr_to": live_replicas,
                "requires_live": live_replicas,
                "requires_dead": no_brokers(),
                "reason": sentences(
                    sentence(reasons.FIRST_LEADER, what=sentence(origin)), F.expr(drained_leads("leader_after"))
                ),
            },
        )
        .transform(with_schema, CHANGES)
    )


def expansion_changes(assignments: DataFrame, brokers: DataFrame, cluster: str, topic_version: int | None) -> DataFrame:
    """Return one CHANGES row per added partition, with the topic at `topic_version` as a precondition."""
    added = creation_changes(assignments, brokers, cluster, reasons.ADDED_PARTITION)
    return added.withColumns({"topic_version": F.lit(topic_version).cast("int")})
