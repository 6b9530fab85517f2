"""Differences between snapshots: znodes that were not understood did not vanish, and only differences are written."""

from typing import Any, Final

from pyspark.sql import SparkSession

from planner.history.snapshot_diff import (
    CELLS_PER_TOPIC,
    changed_cells,
    difference,
    filter_cells,
    fingerprint,
    has_changed,
    join_versions,
    keep_last_understood,
    resized_topics,
)
from schemas.enums import PartitionState
from schemas.rows import Row
from schemas.tables import PARTITIONS, TOPICS
from tests.planner.frames import as_rows, assert_rows, frame, partition_row, topic_row


def assert_kept(
    spark: SparkSession, partitions: list[Row], topics: list[Row], previous: list[Row], expected: list[Row]
) -> None:
    tables = (frame(spark, partitions, PARTITIONS), frame(spark, topics, TOPICS), frame(spark, previous, PARTITIONS))
    assert_rows(keep_last_understood(*tables), expected, PARTITIONS)


def test_what_cannot_be_read_keeps_its_last_row(spark: SparkSession) -> None:
    opaque: dict[str, Any] = {"understood": False}
    topics = [topic_row("fine"), *(topic_row(name, **opaque) for name in ("opaque", "config", "some"))]
    previous = [
        partition_row([1, 2], 1, [1, 2], topic="fine"),
        partition_row([1, 2], 1, [1, 2], topic="fine", partition=1),
        partition_row([1, 2], 2, [2], topic="fine", partition=3),
        partition_row([3, 4], 3, [3, 4], topic="opaque"),
        partition_row([5, 6], 5, [5], topic="gone"),
        partition_row([7, 8], 7, [7], topic="config"),
        partition_row([1, 2], 2, [1, 2], topic="some"),
        partition_row([1, 2], 2, [2], topic="some", partition=1),
    ]
    partitions = [
        partition_row([1, 2], 2, [2], topic="fine"),
        partition_row([1, 2], None, None, topic="fine", partition=1, state_version=6, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=2, state_version=6, **opaque),
        partition_row([1, 2], None, None, topic="fine", partition=3),
        partition_row([7, 8], 8, [8], topic="config"),
        partition_row([], 1, [1], topic="some", **opaque),
        partition_row([1, 2], 1, [1], topic="some", partition=1),
        partition_row([], None, None, topic="some", partition=2, **opaque),
    ]
    expected = [
        *(partitions[0], previous[1] | opaque, partitions[2], partitions[3], previous[3] | opaque, partitions[4]),
        *(previous[6] | opaque, partitions[6], partitions[7]),
    ]
    assert_kept(spark, partitions, topics, previous, expected)


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
    pairs = join_versions(before, frame(spark, now, PARTITIONS))
    assert_rows(difference(pairs, 9), stamped, PARTITIONS)
    assert {row["topic"] for row in as_rows(resized_topics(pairs))} == {"t"}


# columns before, columns after -> whether the partition changed; the row gets the new version in any case
TOPIC_VERSIONS: Final[list[tuple[Row, Row, bool]]] = [
    ({"topic_version": 3}, {"topic_version": 4}, False),  # another partition of the topic was moved
    ({"topic_version": 3}, {"topic_version": 4, "leader": 2}, True),
    ({"topic_version": 3}, {"topic_version": 4, "state_version": 9}, True),
    ({"topic_version": 3}, {"topic_version": 4, "replicas": [2, 1]}, True),
    ({"topic_version": 3}, {"topic_version": 4, "understood": False}, True),
    ({"topic_version": 3}, {"topic_version": 0}, True),  # the topic was created again
    ({"topic_version": None}, {"topic_version": 4}, True),
    ({"topic_version": 3}, {"topic_version": None}, True),
]


def test_a_later_topic_version_is_no_change(spark: SparkSession) -> None:
    online = {"partition_state": PartitionState.ONLINE.value, "offline_replicas": []}
    rows = [partition_row([1, 2], 1, [1, 2], partition=number, **online) for number in range(len(TOPIC_VERSIONS))]
    rows_before = [row | then | {"snapshot_id": 5} for row, (then, _, _) in zip(rows, TOPIC_VERSIONS, strict=True)]
    now = [row | then | later for row, (then, later, _) in zip(rows, TOPIC_VERSIONS, strict=True)]
    before, after = (frame(spark, some, PARTITIONS) for some in (rows_before, now))
    assert changed_cells(after, before).count() == len(rows)
    pairs = join_versions(before, after)
    stamps = [9 if changed else 5 for _, _, changed in TOPIC_VERSIONS]
    expected = [row | {"snapshot_id": stamp} for row, stamp in zip(now, stamps, strict=True)]
    assert_rows(difference(pairs, 9), expected, PARTITIONS)
    assert pairs.where(has_changed()).count() == stamps.count(9)


# differences of two rows that a careless hash would not detect
LOOK_ALIKES: Final[list[tuple[Row, Row]]] = [
    ({"replicas": [1, 2], "adding_replicas": [3]}, {"replicas": [1, 2, 3], "adding_replicas": []}),
    ({"adding_replicas": [4], "removing_replicas": []}, {"adding_replicas": [], "removing_replicas": [4]}),
    ({"isr": None}, {"isr": []}),
    ({"leader": 5, "leader_epoch": None}, {"leader": None, "leader_epoch": 5}),
    ({"understood": True, "under_min_isr": None}, {"understood": None, "under_min_isr": True}),
]


def test_fingerprints_tell_look_alikes_apart(spark: SparkSession) -> None:
    prints = (
        frame(spark, [partition_row([1], 1, [1]) | pair[side] for pair in LOOK_ALIKES], PARTITIONS)
        .select(fingerprint().alias("print"))
        .collect()
        for side in (0, 1)
    )
    assert [before != after for before, after in zip(*prints, strict=True)] == [True] * len(LOOK_ALIKES)


def test_cells_of_what_is_new_differs_or_vanished(spark: SparkSession) -> None:
    """Each topic's partition has a cell of its own, so the cells found are exactly the partitions that changed."""
    same, led_by_1, gone, new = (
        partition_row([1, 2], 1, [1, 2], topic=topic) for topic in ("same", "led", "gone", "new")
    )
    before = frame(spark, [same, led_by_1, gone], PARTITIONS)
    now = frame(spark, [same | {"snapshot_id": 2}, led_by_1 | {"leader": 2}, new], PARTITIONS)
    cells = changed_cells(now, before)
    assert {row["topic"] for row in as_rows(filter_cells(before, cells))} == {"led", "gone"}
    assert {row["topic"] for row in as_rows(filter_cells(now, cells))} == {"led", "new"}


def test_equal_changes_in_a_cell_do_not_cancel_out(spark: SparkSession) -> None:
    numbers = (0, CELLS_PER_TOPIC, 2 * CELLS_PER_TOPIC)
    sides = ([partition_row([1, 2], leader, [1, 2], partition=number) for number in numbers] for leader in (1, 2))
    before, now = (frame(spark, rows, PARTITIONS) for rows in sides)
    assert changed_cells(now, before).count() == 1


def test_nothing_differs_from_itself(spark: SparkSession) -> None:
    rows = frame(spark, [partition_row([1], 1, [1]), partition_row([1], None, None, partition=1)], PARTITIONS)
    assert_rows(difference(join_versions(rows, rows), 2), [], PARTITIONS)
