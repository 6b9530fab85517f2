"""Events between two snapshots: one per listener of Kafka, and differences that make none."""

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from planner.history.events import (
    as_events,
    broker_events,
    controller_events,
    partition_events,
    request_events,
    topic_events,
    topic_id_events,
)
from planner.history.snapshot_diff import join_versions
from schemas.rows import Row
from schemas.tables import BROKERS, EVENTS, PARTITIONS, REQUESTS, SNAPSHOTS, TOPICS
from tests.planner.frames import CLUSTER, assert_rows, broker_row, frame, partition_row, topic_row

Case = tuple[Callable[[DataFrame, DataFrame], DataFrame], StructType, list[Row], list[Row], list[Row]]

ENDPOINT = [{"listener": "L", "security_protocol": "PLAINTEXT", "host": "a", "port": 1}]
JSON = '[{"listener":"L","security_protocol":"PLAINTEXT","host":"a","port":1}]'


def _request(kind: str, path: str, **columns: object) -> Row:
    return {"cluster": CLUSTER, "snapshot_id": 1, "kind": kind, "path": path, **columns}


def _snapshot(controller: int, epoch: int) -> Row:
    return {"cluster": CLUSTER, "snapshot_id": 1, "controller_id": controller, "controller_epoch": epoch}


def _event(kind: str, subject: str, before: str | None, after: str | None) -> Row:
    return {"cluster": CLUSTER, "snapshot_id": 2, "kind": kind, "subject": subject, "before": before, "after": after}


def _partition(leader: int, isr: Sequence[int], **columns: object) -> Row:
    return partition_row([0, 1, 2], leader, isr, **columns)


CASES: list[Case] = [
    (
        lambda before, after: partition_events(join_versions(before, after)),
        PARTITIONS,
        [
            _partition(1, [1, 2], partition=0),
            _partition(1, [1, 2], partition=1),
            _partition(1, [1, 2], partition=2, topic_version=3),
        ],
        [
            partition_row([0, 1, 2], None, None, partition=0, partition_state="New"),
            partition_row([0, 1, 2], None, None, partition=1, partition_state="NonExistent"),
            partition_row([0, 1, 2], None, None, partition=2, partition_state="New"),  # its topic was created again
        ],
        [_event("StateVanished", "t-0", "leader 1, ISR [1, 2], leader epoch 5", None)],
    ),
    (
        broker_events,
        BROKERS,
        [broker_row(0), broker_row(1), broker_row(2), broker_row(4), broker_row(5)],
        [
            broker_row(0),
            broker_row(2, broker_epoch=900),
            broker_row(3),
            broker_row(4, endpoints=ENDPOINT),
            broker_row(5, endpoints=ENDPOINT, understood=False),
        ],
        [
            _event("BrokerFailed", "broker 1", "101", None),
            _event("BrokerBounced", "broker 2", "102", "900"),
            _event("BrokerJoined", "broker 3", None, "103"),
            _event("BrokerChanged", "broker 4", "[]", JSON),
        ],
    ),
    (
        lambda before, after: partition_events(join_versions(before, after)),
        PARTITIONS,
        [
            _partition(0, [0, 1, 2], partition=0),
            _partition(0, [0, 1], partition=1),
            _partition(0, [0, 1], partition=2),
            _partition(0, [0, 1], partition=3),
            partition_row([0], None, None, partition=4),
        ],
        [
            _partition(1, [1, 2], partition=0),
            _partition(0, [1, 0, 2], partition=1),
            _partition(0, [1, 0], partition=2),
            _partition(1, [1], partition=3, understood=False),
            _partition(0, [0], partition=4),
        ],
        [
            _event("LeaderChanged", "t-0", "0", "1"),
            _event("IsrShrunk", "t-0", "[0, 1, 2]", "[1, 2]"),
            _event("IsrExpanded", "t-1", "[0, 1]", "[1, 0, 2]"),
        ],
    ),
    (
        topic_events,
        PARTITIONS,
        [_partition(0, [0], topic="same"), _partition(0, [0], topic="gone"), _partition(0, [0], topic="grown")],
        [
            _partition(0, [0], topic="same"),
            _partition(0, [0], topic="new"),
            _partition(0, [0], topic="grown"),
            _partition(0, [0], topic="grown", partition=1),
        ],
        [
            _event("TopicVanished", "gone", "1", None),
            _event("TopicCreated", "new", None, "1"),
            _event("PartitionsAdded", "grown", "1", "2"),
        ],
    ),
    (
        topic_id_events,
        TOPICS,
        [
            topic_row("same", topic_id="a"),
            topic_row("lost", topic_id="a"),
            topic_row("upgraded", topic_id=None),
            topic_row("again", topic_id="a"),
            topic_row("opaque", topic_id="a"),
            topic_row("gone", topic_id="a"),
        ],
        [
            topic_row("same", topic_id="a"),
            topic_row("lost", topic_id=None),
            topic_row("upgraded", topic_id="b"),
            topic_row("again", topic_id="b"),
            topic_row("opaque", topic_id=None, understood=False),
            topic_row("new", topic_id="c"),
        ],
        [
            _event("TopicIdLost", "lost", "a", None),
            _event("TopicIdAssigned", "upgraded", None, "b"),
            _event("TopicRecreated", "again", "a", "b"),
        ],
    ),
    (
        request_events,
        REQUESTS,
        [_request("delete_topic", "/d/old", topic="old")],
        [
            _request("delete_topic", "/d/old", topic="old"),
            _request("delete_topic", "/d/t", topic="t"),
            _request("reassign", "/r", topic="t", partition=0, replicas=[1, 2]),
            _request("preferred_election", "/p", topic="t", partition=1),
            _request("log_dir", "/l/1", broker_id=3),
            _request("isr_change", "/i/1", topic="t", partition=0),
        ],
        [
            _event("DeletionRequested", "t", None, "/d/t"),
            _event("ReassignmentRequested", "t-0", None, "[1, 2]"),
            _event("PreferredElectionRequested", "t-1", None, "/p"),
            _event("LogDirFailed", "broker 3", None, "/l/1"),
        ],
    ),
    (
        controller_events,
        SNAPSHOTS,
        [_snapshot(1, 6)],
        [_snapshot(-1, 7)],
        [_event("ControllerMoved", "controller", "1", "-1"), _event("EpochGrew", "controller", "6", "7")],
    ),
    (controller_events, SNAPSHOTS, [_snapshot(1, 6)], [_snapshot(1, 6)], []),
]


@pytest.mark.parametrize("case", CASES)
def test_events(spark: SparkSession, case: Case) -> None:
    transform, schema, before, after, expected = case
    events = transform(frame(spark, before, schema), frame(spark, after, schema))
    assert_rows(as_events([events], 2), expected, EVENTS)
