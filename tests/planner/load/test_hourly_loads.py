"""What a partition carries in an hour, from the samples of its life: each is a topic of its own here."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pytest
from pyspark.sql import SparkSession

from schemas.rows import Row
from tests.planner.frames import TOPIC_ID, as_rows, topic_row
from tests.planner.load.samples import HOUR, hourly_loads, position, sample


class Load(NamedTuple):
    """The expected load of a partition in an hour, in totals; a size of None is unknown."""

    hour: int
    """Hours after the first."""
    records: float
    bytes: float | None
    minutes: float = 60
    samples: int = 2
    method: str = "delta_size"
    flags: tuple[str, ...] = ()
    partition: int = 0


NEW: Final = "new-topic-id"
EVEN: Final = [(0, 1000, 100_000), (30, 1600, 160_000), (60, 2200, 220_000)]
"""Minute, end and bytes: 600 records of 100 bytes each half hour."""

OLD: Final = {"leader_epoch": 5, "topic_id": None}
PURGED: Final = [(minute, 1000 + 40 * minute, 50_000, 500 + 40 * minute) for minute in (0, 20, 40, 60)]
"""Minute, end, bytes and start of a log whose oldest records are deleted all the time: it keeps 500 of 100 bytes."""

CASES: Final[list[tuple[str, list[Row], list[Load]]]] = [
    ("the log grows", [sample(*row) for row in EVEN], [Load(0, 1200, 120_000)]),
    ("samples that came late", [sample(*row) for row in EVEN[::-1]], [Load(0, 1200, 120_000)]),
    ("samples that were stored twice", [sample(*row) for row in EVEN * 2], [Load(0, 1200, 120_000)]),
    ("a missing sample", [sample(*row) for row in EVEN[::2]], [Load(0, 1200, 120_000, samples=1)]),
    (
        "a sample that is late by minutes",
        [sample(0, 0, 0), sample(65, 650, 65_000)],
        [Load(0, 600, 60_000, samples=1), Load(1, 50, 5_000, 5, 1, flags=("partial",))],
    ),
    (
        "a gap",
        [sample(0, 0, 0), sample(66, 6600, 1), sample(90, 9000, 240_001)],
        [Load(1, 2400, 240_000, 24, 1, flags=("partial",))],
    ),
    (
        "an interval of two hours' ends",
        [sample(50, 0, 0), sample(70, 200, 20_000), sample(110, 200, 20_000)],
        [Load(0, 100, 10_000, 10, 1, flags=("partial",)), Load(1, 100, 10_000, 50, 2)],
    ),
    (
        "offsets that a broker did not report",
        [sample(0, 1000, 100_000), sample(30, None, 160_000), sample(60, 2200, 220_000)],
        [Load(0, 1200, 120_000, samples=1)],
    ),
    (
        "retention deletes a segment in the middle",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000),
            sample(40, 1800, 80_000, log_start=1000),
            sample(60, 2200, 120_000, log_start=1000),
        ],
        [Load(0, 1200, 120_000, samples=3)],
    ),
    (
        "retention deletes a segment after the size was read, and before the offsets were",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000),
            sample(40, 1800, 180_000, log_start=1000),
            sample(60, 2200, 120_000, log_start=1000),
        ],
        [Load(0, 1200, 120_000, samples=3)],
    ),
    (
        "DeleteRecords all the time",
        [sample(minute, end, size, log_start=start) for minute, end, size, start in PURGED],
        [Load(0, 2400, 240_000, samples=3, method="mean_size")],
    ),
    (
        "DeleteRecords, whose segments retention deletes later",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000, log_start=900),
            sample(40, 1800, 90_000, log_start=900),
            sample(60, 2200, 130_000, log_start=900),
        ],
        [Load(0, 1200, 120_000, samples=3)],
    ),
    (
        "tiered storage deletes the oldest remote records",
        [sample(minute, end, size, local_start=500, log_start=minute) for minute, end, size in EVEN],
        [Load(0, 1200, 120_000)],
    ),
    (
        "tiered storage deletes local segments",
        [sample(minute, end, 50_000, local_start=end - 500) for minute, end, _ in EVEN],
        [Load(0, 1200, 120_000, method="mean_size")],
    ),
    (
        "another leader, whose log has another size",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000),
            sample(40, 1800, 200_000, leader=2, leader_epoch=6),
            sample(60, 2200, 240_000, leader=2, leader_epoch=6),
        ],
        [Load(0, 1200, 120_000, samples=3, flags=("moved",))],
    ),
    (
        "an unclean election",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000),
            sample(40, 1300, 130_000, leader=2, leader_epoch=6),
            sample(60, 1700, 170_000, leader=2, leader_epoch=6),
        ],
        [Load(0, 800, 80_000, 40, flags=("moved", "truncated"))],
    ),
    (
        "a topic that was created again",
        [
            sample(0, 1000, 100_000),
            sample(30, 1600, 160_000),
            *(sample(m, m, 7 * m, topic_id=NEW) for m in (40, 50, 60)),
        ],
        [Load(0, 600, 60_000, 30, 1), Load(0, 20, 140, 20, flags=("partial",))],
    ),
    (
        "a topic that was created again, before topics had ids",
        [
            sample(0, 1000, 100_000, **OLD),
            sample(20, 1400, 140_000, **OLD),
            *(sample(m, m, 7 * m, **OLD) for m in (40, 60)),
        ],
        [Load(0, 420, 40_140, 40, flags=("truncated",))],
    ),
    (
        "two samplers whose clocks differ",
        [sample(0, 1000, 100_000), sample(20, 1400, 140_000), sample(21, 1390, 139_000), sample(60, 2200, 220_000)],
        [Load(0, 1200, 120_000, samples=3)],
    ),
    (
        "a stale sample of a deposed leader",
        [
            sample(0, 1000, 100_000),
            sample(20, 1400, 140_000, leader_epoch=6),
            sample(40, 1400, 140_000),
            sample(60, 2200, 220_000, leader_epoch=6),
        ],
        [Load(0, 1200, 120_000, samples=3)],
    ),
    (
        "the cleaner runs in the middle",
        [sample(0, 1000, 100_000), sample(20, 1400, 140_000), sample(40, 1800, 60_000), sample(60, 2200, 100_000)],
        [Load(0, 1200, 120_000, samples=3, flags=("compacted",))],
    ),
    (
        "transactions, with a marker of 80 bytes for each 9 records of 100",
        [sample(minute, 10 * minute, 980 * minute) for minute in (0, 30, 60)],
        [Load(0, 600, 58_800)],
    ),
    ("nothing is written", [sample(minute, 500, 50_000) for minute in (0, 30, 60)], [Load(0, 0, 0)]),
    ("an empty log", [sample(minute, 0, 0) for minute in (0, 30, 60)], [Load(0, 0, 0)]),
    (
        "a broker that does not report sizes, and one that does",
        [
            *(sample(minute, 10 * minute, None, partition=1) for minute in (0, 30, 60)),
            *(sample(*row) for row in EVEN),
        ],
        [Load(0, 1200, 120_000), Load(0, 600, 60_000, method="topic_share", partition=1)],
    ),
    (
        "no broker reports sizes",
        [sample(minute, 10 * minute, None) for minute in (0, 30, 60)],
        [Load(0, 600, None, method="topic_share", flags=("unsized",))],
    ),
    (
        "an exact interval with too few records to tell their size",
        [
            sample(0, 0, 0),
            sample(20, 10, 5_000),
            sample(40, 1010, 100_000, log_start=1),
            sample(60, 2010, 197_700, log_start=2),
        ],
        [Load(0, 2010, 205_000, samples=3, method="mean_size")],
    ),
]


def test_the_load_of_an_hour(spark: SparkSession) -> None:
    named = [{**row, "topic": case} for case, rows, _ in CASES for row in rows]
    topics = [topic_row(case, config={"cleanup.policy": "compact"} if "cleaner" in case else {}) for case, *_ in CASES]
    loads, _ = hourly_loads(spark, named, topics=topics)

    computed = [(row["topic"], _load(row)) for row in as_rows(loads)]
    assert sorted(computed) == sorted((case, load) for case, _, expected in CASES for load in expected)


def hours_after(hour: datetime) -> int:
    return (hour.replace(tzinfo=UTC) - HOUR) // timedelta(hours=1)


def _load(row: Row) -> Load:
    seconds = row["covered_seconds"]
    return Load(
        hour=hours_after(row["hour"]),
        records=round(row["records_in"] * seconds),
        bytes=None if row["bytes_in"] is None else round(row["bytes_in"] * seconds),
        minutes=seconds / 60,
        samples=row["samples"],
        method=row["method"],
        flags=tuple(row["flags"] or ()),
        partition=row["partition"],
    )


PEAKS: Final[list[tuple[str, list[Row], list[float | None]]]] = [
    ("the busiest interval", [sample(0, 0, 0), sample(30, 60, 6_000), sample(60, 660, 66_000)], [60_000 / 1800]),
    (
        "the busiest interval, whose bytes are estimated",
        [sample(0, 0, 0), sample(30, 100, 10_000), sample(60, 700, 1, log_start=650)],
        [60_000 / 1800],
    ),
    (
        "of an interval, the hour in which it ends",
        [sample(50, 0, 0), sample(70, 60, 6_000), sample(90, 60, 6_000)],
        [5.0, 5.0],
    ),
    ("two samples at nearly the same time", [sample(0, 0, 0), sample(0.1, 60, 6_000), sample(60, 60, 6_000)], [0.0]),
    ("nothing is written", [sample(0, 7, 7), sample(60, 7, 7)], [0.0]),
]


def test_the_highest_rate_of_an_hour(spark: SparkSession) -> None:
    """Without an interval that ends in the hour it is the mean of the hour."""
    loads, _ = hourly_loads(spark, [{**row, "topic": case} for case, rows, _ in PEAKS for row in rows])
    peaks = {(row["topic"], hours_after(row["hour"])): row["max_5min"] for row in as_rows(loads)}
    assert peaks == {
        (case, hour): pytest.approx(peak) for case, _, expected in PEAKS for hour, peak in enumerate(expected)
    }


def test_the_end_of_an_hour(spark: SparkSession) -> None:
    """Leader and size are those of the newest sample in the hour, and not of the one that ends the last interval."""
    moved = [
        sample(0, 0, 100),
        sample(50, 0, 200, leader=2, leader_epoch=6),
        sample(70, 0, 300, leader=3, leader_epoch=7),
    ]
    loads, _ = hourly_loads(spark, moved)
    ends = {hours_after(row["hour"]): (row["leader"], row["size_bytes"]) for row in as_rows(loads)}
    assert ends == {0: (2, 200), 1: (3, 300)}


class Read(NamedTuple):
    """What a group reads of the partition in the hour, in totals, its lag, and what all groups read by rack."""

    records: float
    bytes: float | None
    lag: int | None
    racks: dict[str, float] | None = None
    flags: tuple[str, ...] = ()


READS: Final[list[tuple[str, list[Row], Read]]] = [
    ("it follows", [position(0, 1000), position(30, 1600), position(60, 2200)], Read(1200, 120_000, 0)),
    ("it lags", [position(0, 400), position(30, 700), position(60, 1000)], Read(600, 60_000, 1200)),
    (
        "its samples came late, and twice",
        [position(60, 2200), position(0, 1000), position(0, 1000)],
        Read(1200, 120_000, 0),
    ),
    ("it does not read", [position(0, 1000), position(60, 1000)], Read(0, 0, 1200)),
    (
        "its offsets were set back",
        [position(0, 2000), position(30, 500), position(60, 1100)],
        Read(600, 60_000, 1100, flags=("reset",)),
    ),
    ("what it had not read is deleted", [position(0, 100), position(60, 500)], Read(300, 30_000, 1700)),
    ("all that it had not read is deleted", [position(0, 100), position(60, 150)], Read(0, 0, 2050)),
    ("it begins in the middle of the hour", [position(30, 1000), position(60, 1600)], Read(600, 60_000, 600)),
    (
        "its members have a rack",
        [position(0, 1000, member_rack="a"), position(60, 2200, member_rack="b")],
        Read(1200, 120_000, 0, {"b": 120_000}),
    ),
    (
        "it has no member at last",
        [position(0, 1000, member_rack="a"), position(30, 2200, member_rack="a"), position(60, 2200)],
        Read(1200, 120_000, 0, {"a": 120_000}),
    ),
    (
        "a share group",
        [position(0, 1000, group_type="share"), position(60, 2200, group_type="share")],
        Read(1200, 120_000, 0),
    ),
    (
        "a partition without samples",
        [position(0, 1000, partition=7), position(60, 2200, partition=7)],
        Read(1200, None, None),
    ),
]


def test_what_a_group_reads_in_an_hour(spark: SparkSession) -> None:
    """Records of 100 bytes, of which the first 200 were deleted before."""
    samples = [
        sample(minute, end, size - 20_000, log_start=200, topic=case)
        for case, *_ in READS
        for minute, end, size in EVEN
    ]
    loads, groups = hourly_loads(spark, samples, [{**row, "topic": case} for case, rows, _ in READS for row in rows])

    of_groups = {row["topic"]: row for row in as_rows(groups)}
    of_partitions = {row["topic"]: row for row in as_rows(loads)}
    assert {case: _read(of_groups[case], of_partitions[case]) for case, *_ in READS} == {
        case: expected for case, _, expected in READS
    }
    read = {case: None if case == READS[-1][0] else expected.bytes for case, _, expected in READS}
    assert {case: round(row["bytes_out"] * 3600) for case, row in of_partitions.items()} == {
        case: total or 0 for case, total in read.items()
    }


def _read(group: Row, partition: Row) -> Read:
    def total(rate: float) -> int:
        return round(rate * 3600)

    racks = partition["bytes_out_by_rack"]
    return Read(
        records=total(group["records_out"]),
        bytes=None if group["bytes_out"] is None else total(group["bytes_out"]),
        lag=group["lag"],
        racks=None if racks is None else {rack: total(rate) for rack, rate in dict(racks).items()},
        flags=tuple(partition["flags"] or ()),
    )


def test_all_groups_of_a_partition_count(spark: SparkSession) -> None:
    """Those without a rack count in the sum only; a topic of the same name that is gone is another."""
    groups = [("g", "a", TOPIC_ID), ("h", "b", TOPIC_ID), ("i", None, TOPIC_ID), ("j", "a", TOPIC_ID), ("k", "a", NEW)]
    positions = [
        position(minute, 10 * minute, group_id=group, member_rack=rack, topic_id=topic_id)
        for group, rack, topic_id in groups
        for minute in (0, 60)
    ]
    loads, _ = hourly_loads(spark, [sample(*row) for row in EVEN], positions)
    (row,) = as_rows(loads)
    of_group = 600 * 100 / 3600
    assert row["bytes_out"] == pytest.approx(4 * of_group, rel=1e-4)
    assert dict(row["bytes_out_by_rack"]) == pytest.approx({"a": 2 * of_group, "b": of_group}, rel=1e-4)
