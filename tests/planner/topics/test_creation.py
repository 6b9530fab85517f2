"""First leaders of a new topic."""

from pyspark.sql import SparkSession

from planner.topics.creation import creation_changes
from schemas.enums import Action
from schemas.tables import BROKERS
from tests.planner.frames import TOPIC_ID, assert_changes, broker_row, frame

ASSIGNMENTS = "topic string, partition int, replicas array<int>, topic_id string"


def test_new_topic_with_three_partitions(spark: SparkSession) -> None:
    """{0:[0,1,2], 1:[1,2,0], 2:[2,1,0]} with all brokers alive: leaders 0, 1 and 2, each ISR its replicas."""
    rows = [("test", 0, [0, 1, 2], TOPIC_ID), ("test", 1, [1, 2, 0], TOPIC_ID), ("test", 2, [2, 1, 0], TOPIC_ID)]
    expected = [
        {
            "cluster": "c",
            "wave": 0,
            "topic": "test",
            "partition": partition,
            "action": Action.CREATE,
            "replicas_after": replicas,
            "adding_after": [],
            "removing_after": [],
            "leader_after": replicas[0],
            "isr_after": replicas,
            "leader_epoch_after": 0,
            "leader_recovery_state_after": 0,
            "state_version": -1,
            "topic_version": -1,
            "topic_id": TOPIC_ID,
            "is_new": True,
            "leader_and_isr_to": replicas,
            "requires_live": replicas,
            "requires_dead": [],
            "reason": "new topic: first live replica leads, live replicas are in sync",
        }
        for _, partition, replicas, _ in rows
    ]
    brokers = frame(spark, map(broker_row, range(3)), BROKERS)
    assert_changes(creation_changes(spark.createDataFrame(rows, ASSIGNMENTS), brokers, "c"), expected)


def test_only_live_understood_replicas_lead_and_are_in_sync(spark: SparkSession) -> None:
    rows = [("t", 0, [9, 2, 1], None), ("t", 1, [4, 1, 9], None), ("t", 2, [2, 9], None)]
    expected = [
        {"partition": 0, "replicas_after": [9, 2, 1], "leader_after": 2, "isr_after": [2, 1], "requires_live": [2, 1]},
        {"partition": 1, "replicas_after": [4, 1, 9], "leader_after": 1, "isr_after": [1], "requires_live": [1]},
        {"partition": 2, "replicas_after": [2, 9], "leader_after": 2, "isr_after": [2], "requires_live": [2]},
    ]
    known = [broker_row(1), broker_row(2), broker_row(4, understood=False)]
    brokers = frame(spark, known, BROKERS)
    assert_changes(creation_changes(spark.createDataFrame(rows, ASSIGNMENTS), brokers, "c"), expected)
