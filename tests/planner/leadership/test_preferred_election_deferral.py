"""Guards of preferred elections: stability in the ISR, time since the broker joined, and the cap."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from planner.leadership.preferred_election_deferral import (
    broker_ages,
    defer_over_cap,
    defer_recent_brokers,
    defer_unstable,
    stable_partitions,
)
from schemas.enums import PartitionState
from schemas.rows import Row
from schemas.tables import BROKERS, EVENTS, IMBALANCE, PARTITION_HISTORY, SNAPSHOTS
from tests.planner.frames import as_rows, broker_row, by_partition, frame, partition_row
from tests.planner.rule_inputs import BATCHES

VERDICTS: Final = "topic string, partition int, preferred int, code string, reason string"


def _verdicts(spark: SparkSession, rows: list[tuple[str, int, int, str | None]]) -> DataFrame:
    return spark.createDataFrame([(*row, row[3] and "as before") for row in rows], VERDICTS)


def _codes(verdicts: DataFrame) -> dict[int, str | None]:
    return {number: row["code"] for (_, number), row in by_partition(verdicts).items()}


# history of a partition that prefers broker 1, by snapshot -> stable for the last 1, 2, 3, 4 of snapshots 1-4
GONE: Final[Row] = {"partition_state": PartitionState.NON_EXISTENT.value}
HISTORIES: Final[list[tuple[dict[int, list[int] | None], list[bool]]]] = [
    ({1: [1, 2]}, [True] * 4),
    ({1: [2, 1], 3: [1]}, [True] * 4),
    ({1: [2], 2: [1, 2]}, [True, True, True, False]),
    ({1: [1], 3: [2], 4: [2, 1]}, [True, False, False, False]),
    ({1: [1], 4: [2]}, [False] * 4),
    ({3: [1]}, [True, True, False, False]),
    ({1: [1], 2: None, 3: [1]}, [True, True, False, False]),
    ({1: [1], 5: [2]}, [True] * 4),
    ({5: [1]}, [False] * 4),
]


def _history(spark: SparkSession) -> DataFrame:
    rows = [
        partition_row([1, 2], 2, isr or [1], partition=number, snapshot_id=snapshot, **(GONE if isr is None else {}))
        for number, (written, _) in enumerate(HISTORIES)
        for snapshot, isr in written.items()
    ]
    return frame(spark, rows, PARTITION_HISTORY)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_stable_means_in_every_recent_isr(spark: SparkSession, count: int) -> None:
    verdicts = _verdicts(spark, [("t", number, 1, None) for number in range(len(HISTORIES))])
    careful = defer_unstable(verdicts, _history(spark), 5 - count, 4, count)
    expected = {n: None if stable[count - 1] else "NOT_STABLE" for n, (_, stable) in enumerate(HISTORIES)}
    assert _codes(careful) == expected


def test_nothing_is_stable_before_so_many_snapshots_are_known(spark: SparkSession) -> None:
    verdicts = _verdicts(spark, [("t", 0, 1, None), ("t", 1, 1, "ALREADY_PREFERRED")])
    careful = defer_unstable(verdicts, _history(spark), None, 4, 9)
    assert {n: (row["code"], row["reason"]) for (_, n), row in by_partition(careful).items()} == {
        0: ("NOT_STABLE", "preferred replica 1 is not known to have been in the ISR in all of the last 9 snapshots"),
        1: ("ALREADY_PREFERRED", "as before"),
    }


_isrs = st.lists(st.sampled_from([None, [1], [1, 2], [2], "illegible"]), min_size=6, max_size=6)


@BATCHES
@given(st.lists(_isrs, min_size=1, max_size=30), st.integers(1, 6))
def test_stability_against_reading_every_snapshot(
    spark: SparkSession, pasts: list[list[list[int] | str | None]], first: int
) -> None:
    """The oracle checks the partition in each snapshot; history has rows only where something changed."""
    rows, expected = [], set()
    for number, past in enumerate(pasts):
        for snapshot, isr in enumerate(past, 1):
            if snapshot == 1 or isr != past[snapshot - 2]:
                columns: Row = GONE if isr is None else {"understood": isr != "illegible"}
                members = isr if isinstance(isr, list) else [1]
                rows.append(partition_row([1], 2, members, partition=number, snapshot_id=snapshot, **columns))
        if all(isinstance(isr, list) and 1 in isr for isr in past[first - 1 :]):
            expected.add(("t", number))
    verdicts = _verdicts(spark, [("t", number, 1, None) for number in range(len(pasts))])
    assert set(by_partition(stable_partitions(verdicts, frame(spark, rows, PARTITION_HISTORY), first, 6))) == expected


NOW: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_broker_age_counts_from_the_first_sighting(spark: SparkSession) -> None:
    taken = {1: 60, 2: 20, 3: 5, 4: 0, 5: -5}
    snapshots = [{"snapshot_id": n, "taken_at": NOW - timedelta(minutes=ago)} for n, ago in taken.items()]
    events = [
        (2, "BrokerJoined", "broker 1", "101"),
        (3, "BrokerBounced", "broker 2", "102"),
        (2, "BrokerBounced", "broker 2", "99"),
        (2, "BrokerFailed", "broker 3", "103"),
        (0, "BrokerJoined", "broker 5", "105"),  # its snapshot has been dropped
        (5, "BrokerJoined", "broker 4", "104"),
        (4, "BrokerJoined", "broker 11", "111"),
    ]
    names = ("snapshot_id", "kind", "subject", "after")
    rows = [dict(zip(names, event, strict=True)) for event in events]
    brokers = [broker_row(broker) for broker in (1, 2, 3, 4, 5, 11)]
    ages = broker_ages(
        frame(spark, brokers, BROKERS), frame(spark, rows, EVENTS), frame(spark, snapshots, SNAPSHOTS), 4
    )
    minutes = {row["broker_id"]: row["age"] / 60 for row in as_rows(ages)}
    assert minutes == {1: 20, 2: 5, 3: 60, 4: 60, 5: 60, 11: 0}


def test_nothing_moves_onto_a_broker_that_has_just_joined(spark: SparkSession) -> None:
    verdicts = _verdicts(spark, [("t", 0, 1, None), ("t", 1, 2, None), ("t", 2, 3, None), ("t", 3, 1, "NO_STATE")])
    ages = spark.createDataFrame([(1, 599.5), (2, 600.0)], "broker_id int, age double")
    careful = defer_recent_brokers(verdicts, ages, 600)
    assert _codes(careful) == {0: "NOT_SETTLED", 1: None, 2: "NOT_SETTLED", 3: "NO_STATE"}
    reason = by_partition(careful)["t", 0]["reason"]
    assert reason == "broker 1 joined 599 s before this snapshot, as snapshots recorded it; the minimum is 600 s"


def _skew(spark: SparkSession, ratios: dict[int, float]) -> DataFrame:
    return frame(spark, [{"broker_id": broker, "ratio": ratio} for broker, ratio in ratios.items()], IMBALANCE)


@pytest.mark.parametrize(
    ("most", "through"), [(1, {4}), (2, {2, 4}), (3, {2, 3, 4}), (4, {2, 3, 4, 5}), (9, {1, 2, 3, 4, 5})]
)
def test_the_worst_brokers_come_first(spark: SparkSession, most: int, through: set[int]) -> None:
    """Order: ratio, broker, topic, partition; rows with a code do not count."""
    rows: list[tuple[str, int, int, str | None]] = [
        ("a", 0, 3, "NOT_STABLE"),
        ("z", 1, 1, None),
        ("b", 2, 3, None),
        ("b", 3, 3, None),
        ("a", 4, 3, None),
        ("a", 5, 4, None),
    ]
    careful = defer_over_cap(_verdicts(spark, rows), _skew(spark, {1: 0.25, 3: 0.5, 4: 0.5}), most)
    codes = _codes(careful)
    assert {number for number, code in codes.items() if code is None} == through
    assert {code for number, code in codes.items() if number not in through} <= {"NOT_STABLE", "CAPPED"}


@BATCHES
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=40), st.integers(1, 20))
def test_the_cap_against_sorting_in_python(spark: SparkSession, drawn: list[tuple[str, int]], most: int) -> None:
    ratios = {0: 0.5, 1: 0.9, 2: 0.5}
    rows: list[tuple[str, int, int, str | None]] = [
        (topic, number, broker, None) for number, (topic, broker) in enumerate(drawn)
    ]
    order = sorted(rows, key=lambda row: (-ratios.get(row[2], -1), row[2], row[0], row[1]))
    codes = _codes(defer_over_cap(_verdicts(spark, rows), _skew(spark, ratios), most))
    assert {number for number, code in codes.items() if code is None} == {row[1] for row in order[:most]}
