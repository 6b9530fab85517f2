"""What a snapshot makes of a reading: not understood is not vanished, and only differences are written."""

from typing import Any

from pyspark.sql import SparkSession

from planner.survey import difference, keep_last_understood
from schemas.names import PartitionState
from schemas.tables import PARTITIONS, TOPICS
from tests.planner.frames import Row, assert_rows, frame, partition_row, topic_row


def assert_kept(
    spark: SparkSession, found: list[Row], topics: list[Row], previous: list[Row], expected: list[Row]
) -> None:
    tables = (frame(spark, found, PARTITIONS), frame(spark, topics, TOPICS), frame(spark, previous, PARTITIONS))
    assert_rows(keep_last_understood(*tables), expected, PARTITIONS)


def test_what_cannot_be_read_keeps_its_last_row(spark: SparkSession) -> None:
    opaque: dict[str, Any] = {"understood": False}
    topics = [topic_row("fine"), topic_row("opaque", understood=False)]
    previous = [
        partition_row([1, 2], 1, [1, 2], topic="fine"),
        partition_row([1, 2], 1, [1, 2], topic="fine", partition=1),
        partition_row([1, 2], 2, [2], topic="fine", partition=3),
        partition_row([3, 4], 3, [3, 4], topic="opaque"),
        partition_row([5, 6], 5, [5], topic="gone"),
    ]
    found = [
        partition_row([1, 2], 2, [2], topic="fine"),
        partition_row([1, 2], None, None, topic="fine", partition=1, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=2, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=3),
    ]
    expected = [found[0], previous[1] | opaque, found[2], found[3], previous[3] | opaque]
    assert_kept(spark, found, topics, previous, expected)


def test_only_differences_are_written(spark: SparkSession) -> None:
    online = {"partition_state": PartitionState.ONLINE.value, "offline_replicas": []}
    same = partition_row([1, 2], 1, [1, 2], **online)
    led_by_1 = partition_row([1, 2], 1, [1, 2], partition=1, **online)
    led_by_2 = led_by_1 | {"leader": 2, "isr": [2], "state_version": 5}
    vanished = partition_row([1], 1, [1], partition=2, **online)
    new = partition_row([2], None, None, partition=3, partition_state=PartitionState.NEW.value)
    reordered = partition_row([1, 2], 1, [1, 2], partition=4, **online)
    before = frame(spark, [same, led_by_1, vanished, reordered], PARTITIONS)
    now = [row | {"snapshot_id": None} for row in (same, led_by_2, new, reordered | {"isr": [2, 1]})]
    expected = [led_by_2, vanished | {"partition_state": "NonExistent"}, new, reordered | {"isr": [2, 1]}]
    stamped = [row | {"snapshot_id": 9} for row in expected]
    assert_rows(difference(frame(spark, now, PARTITIONS), before, 9), stamped, PARTITIONS)


def test_nothing_differs_from_itself(spark: SparkSession) -> None:
    rows = frame(spark, [partition_row([1], 1, [1]), partition_row([1], None, None, partition=1)], PARTITIONS)
    assert_rows(difference(rows, rows, 2), [], PARTITIONS)
