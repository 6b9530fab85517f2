"""Targets from an earlier snapshot, and partitions that cannot go back."""

from typing import Any, Final

from pyspark.sql import SparkSession

from planner.columns.broker_sets import with_drained
from planner.reassignment.snapshot_targets import snapshot_targets
from schemas.enums import LintCode, RejectionCode
from schemas.rows import Row
from schemas.tables import BROKERS, DRAINED, PARTITIONS, TOPICS
from tests.planner.frames import as_rows, broker_row, frame, partition_row, topic_row

ALIVE: Final = (1, 2, 3, 4)
DRAINED_BROKER: Final = 4
MOVING: Final = {"adding_replicas": [3]}

IDS_THEN: Final = {"recreated": "BBBBBBBBBBBBBBBBBBBBBB", "assigned": None, "lost": "BBBBBBBBBBBBBBBBBBBBBB"}

# topic, then, now, columns then, columns now -> replicas, code, reason
Case = tuple[str, list[int] | None, list[int] | None, Row, Row, list[int] | None, str | None, str | None]
CASES: Final[list[Case]] = [
    ("t", [1, 2], [3, 2], {}, {}, [1, 2], None, None),
    ("t", [1, 2], [2, 1], {}, {}, [1, 2], None, None),
    ("t", [1, 2], [1, 2, 3], {}, {}, [1, 2], None, None),
    ("t", [1, 2, 3], [1, 2, 3], {}, {"removing_replicas": [3]}, [1, 2, 3], None, None),  # rejected as moving later
    ("t", None, [1, 2], {}, {}, None, RejectionCode.UNKNOWN_PARTITION, "snapshot 7 does not know it"),
    ("t", [1, 2], None, {}, {}, [1, 2], RejectionCode.UNKNOWN_PARTITION, "it is gone since snapshot 7"),
    (
        "recreated",
        [1, 2],
        [1, 2],
        {},
        {},
        [1, 2],
        RejectionCode.UNKNOWN_TOPIC,
        "its topic was deleted and created again after 7",
    ),
    ("assigned", [1, 2], [2, 1], {}, {}, [1, 2], None, None),  # its id
    ("lost", [1, 2], [2, 1], {}, {}, [1, 2], None, None),
    (
        "t",
        [1, 2, 3],
        [1, 2],
        MOVING,
        {},
        [1, 2, 3],
        RejectionCode.REASSIGNMENT_IN_PROGRESS,
        "snapshot 7 was taken during its reassignment, so it has no target to restore",
    ),
    ("t", [8, 9], [1, 9], {}, {}, [8, 9], LintCode.BROKER_NOT_ALIVE, "going back adds brokers that are not live: 8"),
    ("t", [4, 1], [1, 2], {}, {}, [4, 1], RejectionCode.DRAINED, "going back adds brokers that are drained: 4"),
    ("t", [9, 1], [9, 2], {}, {}, [9, 1], None, None),  # it stays where it is
]


def test_ways_back_to_a_snapshot(spark: SparkSession) -> None:
    same = ("same", 0, [1, 2], [1, 2])
    then: list[Row] = [partition_row(same[2], 1, same[2], topic=same[0])]
    now: list[Row] = [partition_row(same[3], 1, same[3], topic=same[0])]
    for number, (topic, before, after, columns_then, columns_now, *_) in enumerate(CASES):
        key: dict[str, Any] = {"topic": topic, "partition": number}
        if before is not None:
            then.append(partition_row(before, before[0], before, **key, **columns_then))
        if after is not None:
            now.append(partition_row(after, after[0], after, **key, **columns_now))
    topics = [topic_row(name) for name in ("t", "same")]
    brokers = frame(spark, [broker_row(broker) for broker in ALIVE], BROKERS)
    drained = frame(spark, [{"broker_id": DRAINED_BROKER, "mode": "admin"}], DRAINED)

    targets = snapshot_targets(
        frame(spark, then, PARTITIONS),
        frame(spark, [*topics, *(topic_row(name, topic_id=topic_id) for name, topic_id in IDS_THEN.items())], TOPICS),
        frame(spark, now, PARTITIONS),
        frame(spark, [*topics, *map(topic_row, ("recreated", "assigned")), topic_row("lost", topic_id=None)], TOPICS),
        with_drained(brokers, drained),
        then=7,
    ).orderBy("partition")

    assert as_rows(targets) == [
        {"topic": topic, "partition": number, "replicas": replicas, "code": code, "reason": reason}
        for number, (topic, _, _, _, _, replicas, code, reason) in enumerate(CASES)
    ]
