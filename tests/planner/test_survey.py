"""What a snapshot makes of a reading: not understood is not vanished, and only differences are written."""

from typing import Any, Final

from pyspark.sql import SparkSession

from planner.survey import changed_keys, difference, keep_last_understood
from schemas.names import PartitionState
from schemas.tables import PARTITIONS, TOPICS
from tests.planner.frames import Row, as_rows, assert_rows, by_partition, frame, partition_row, topic_row


def assert_kept(
    spark: SparkSession, found: list[Row], topics: list[Row], previous: list[Row], expected: list[Row]
) -> None:
    tables = (frame(spark, found, PARTITIONS), frame(spark, topics, TOPICS), frame(spark, previous, PARTITIONS))
    assert_rows(keep_last_understood(*tables), expected, PARTITIONS)


def test_what_cannot_be_read_keeps_its_last_row(spark: SparkSession) -> None:
    opaque: dict[str, Any] = {"understood": False}
    topics = [topic_row("fine"), topic_row("opaque", **opaque), topic_row("config", **opaque)]
    previous = [
        partition_row([1, 2], 1, [1, 2], topic="fine"),
        partition_row([1, 2], 1, [1, 2], topic="fine", partition=1),
        partition_row([1, 2], 2, [2], topic="fine", partition=3),
        partition_row([3, 4], 3, [3, 4], topic="opaque"),
        partition_row([5, 6], 5, [5], topic="gone"),
        partition_row([7, 8], 7, [7], topic="config"),
    ]
    found = [
        partition_row([1, 2], 2, [2], topic="fine"),
        partition_row([1, 2], None, None, topic="fine", partition=1, state_version=6, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=2, state_version=6, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=3),
        partition_row([7, 8], 8, [8], topic="config", **opaque),
    ]
    expected = [found[0], previous[1] | opaque, found[2], found[3], found[4], previous[3] | opaque]
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


# what two rows differ in, though a careless hash would take them for the same
LOOK_ALIKES: Final[list[tuple[Row, Row]]] = [
    ({"replicas": [1, 2], "adding_replicas": [3]}, {"replicas": [1, 2, 3], "adding_replicas": []}),
    ({"adding_replicas": [4], "removing_replicas": []}, {"adding_replicas": [], "removing_replicas": [4]}),
    ({"isr": None}, {"isr": []}),
    ({"leader": 5, "leader_epoch": None}, {"leader": None, "leader_epoch": 5}),
    ({"understood": True, "under_min_isr": None}, {"understood": None, "under_min_isr": True}),
]


def test_fingerprints_tell_look_alikes_apart(spark: SparkSession) -> None:
    same = partition_row([1], 1, [1], partition=len(LOOK_ALIKES))
    sides = (
        [partition_row([1], 1, [1], partition=number) | pair[side] for number, pair in enumerate(LOOK_ALIKES)]
        for side in (0, 1)
    )
    before, now = (frame(spark, [*rows, same], PARTITIONS) for rows in sides)
    found = {row["partition"] for row in as_rows(changed_keys(now, before))}
    assert found == set(range(len(LOOK_ALIKES)))


def test_keys_of_what_is_new_and_what_vanished(spark: SparkSession) -> None:
    sides = ([partition_row([1], 1, [1], partition=number) for number in numbers] for numbers in ((0, 1), (1, 2)))
    before, now = (frame(spark, rows, PARTITIONS) for rows in sides)
    assert set(by_partition(changed_keys(now, before))) == {("t", 0), ("t", 2)}


def test_nothing_differs_from_itself(spark: SparkSession) -> None:
    rows = frame(spark, [partition_row([1], 1, [1]), partition_row([1], None, None, partition=1)], PARTITIONS)
    assert_rows(difference(rows, rows, 2), [], PARTITIONS)
