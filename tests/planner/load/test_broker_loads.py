"""What brokers carry: as leaders, as followers, for readers near and far, and against a sum in plain Python."""

import random
from collections import defaultdict
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.load.broker_loads import BROKER_SUMS, broker_load, cpu_of_brokers, replica_loads
from schemas.rows import Row
from schemas.tables import BROKER_METRICS, BROKERS, PARTITION_LOAD, PARTITIONS
from tests.planner.frames import CLUSTER, as_rows, broker_row, frame, partition_row
from tests.planner.load.samples import HOUR, at
from tests.planner.rule_inputs import BATCHES

RACKS: Final[dict[int, str | None]] = {1: "a", 2: "a", 3: "b", 4: "b", 5: None}
Sums = dict[int, dict[str, float]]
RATES: Final = ("bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks", "size_bytes")


def load_row(partition: int, leader: int | None, **columns: object) -> Row:
    """Return a row of PARTITION_LOAD: 100 bytes per second are written, 60 read."""
    rates = {"bytes_in": 100.0, "bytes_out": 60.0, "size_bytes": 7}
    return {
        "cluster": CLUSTER,
        "hour": HOUR,
        "topic": "t",
        "partition": partition,
        "leader": leader,
        **rates,
        **columns,
    }


def summed(spark: SparkSession, loads: list[Row], partitions: list[Row], *, are_nearest_read: bool) -> list[Row]:
    brokers = [broker_row(broker, rack=rack) for broker, rack in RACKS.items()]
    sums = replica_loads(
        frame(spark, loads, PARTITION_LOAD),
        frame(spark, partitions, PARTITIONS),
        frame(spark, brokers, BROKERS),
        ["hour"],
        are_nearest_read=are_nearest_read,
    )
    return as_rows(sums)


def rates(**values: float) -> dict[str, float]:
    return dict.fromkeys(RATES[:4], 0.0) | {"size_bytes": 7.0} | values


LEADER: Final = rates(bytes_in=100, bytes_out=60, replication_out=200)
FOLLOWER: Final = rates(replication_in=100)
NEAR: Final[list[tuple[str, list[int], dict[str, float], dict[int, dict[str, float]]]]] = [
    ("no reader has a rack", [1, 2, 3], {}, {1: LEADER, 2: FOLLOWER, 3: FOLLOWER}),
    (
        "the leader is in the rack",
        [1, 2, 3],
        {"a": 60},
        {1: LEADER | {"across_racks": 0.0}, 2: FOLLOWER, 3: FOLLOWER},
    ),
    (
        "a follower is in the rack",
        [1, 2, 3],
        {"b": 40},
        {1: LEADER | {"bytes_out": 20.0}, 2: FOLLOWER, 3: FOLLOWER | {"bytes_out": 40.0, "across_racks": 0.0}},
    ),
    (
        "two followers are in the rack",
        [1, 3, 4],
        {"b": 40},
        {
            1: LEADER | {"bytes_out": 20.0},
            3: FOLLOWER | {"bytes_out": 20.0, "across_racks": 0.0},
            4: FOLLOWER | {"bytes_out": 20.0, "across_racks": 0.0},
        },
    ),
    (
        "no replica is in the rack",
        [5, 2, 3],
        {"c": 40},
        {5: LEADER | {"across_racks": 40.0}, 2: FOLLOWER, 3: FOLLOWER},
    ),
]


@pytest.mark.parametrize(
    ("replicas", "by_rack", "expected"), [case[1:] for case in NEAR], ids=[case[0] for case in NEAR]
)
def test_readers_are_served_by_the_nearest_replica(
    spark: SparkSession, replicas: list[int], by_rack: dict[str, float], expected: Sums
) -> None:
    loads = [load_row(0, replicas[0], bytes_out_by_rack=by_rack or None)]
    partitions = [partition_row(replicas, replicas[0], replicas)]
    assert _known(summed(spark, loads, partitions, are_nearest_read=True)) == expected


def test_without_a_replica_selector_leaders_serve_all_readers(spark: SparkSession) -> None:
    loads = [load_row(0, 1, bytes_out_by_rack={"a": 20.0, "b": 40.0})]
    found = _known(summed(spark, loads, [partition_row([1, 3], 1, [1, 3])], are_nearest_read=False))
    assert found == {1: LEADER | {"replication_out": 100.0, "across_racks": 40.0}, 3: FOLLOWER}


def test_leaders_that_the_stored_state_does_not_have(spark: SparkSession) -> None:
    """A leader that moved since, an unknown one, an imported load, and a partition that is not stored."""
    partitions = [partition_row([1, 2, 3], 1, [1], partition=number) for number in range(2)]
    loads = [load_row(0, 4), load_row(1, None), load_row(2, 5), load_row(3, None)]
    sums = summed(spark, loads, partitions, are_nearest_read=False)
    counts = {row["broker_id"]: (row["leaders"], row["replicas"]) for row in sums}
    assert counts == {1: (1, 2), 2: (0, 2), 3: (0, 1), 4: (1, 1), 5: (1, 1)}


def test_the_measured_cpu_is_the_mean_of_the_hour(spark: SparkSession) -> None:
    """Shares of topics, other metrics and other hours do not count, nor a broker without a load."""
    metrics = [
        {
            "sampled_at": at(minute),
            "broker_id": broker,
            "topic": topic,
            "metric": metric,
            "value": value,
            "source": "file",
        }
        for minute, broker, topic, metric, value in [
            (0, 1, None, "cpu", 20.0),
            (59, 1, None, "cpu", 40.0),
            (60, 1, None, "cpu", 90.0),
            (5, 1, "t", "cpu", 90.0),
            (5, 2, None, "bytes_in", 90.0),
            (5, 4, None, "cpu", 90.0),
        ]
    ]
    sums = frame(
        spark, summed(spark, [load_row(0, 1)], [partition_row([1, 2], 1, [1])], are_nearest_read=False), BROKER_SUMS
    )
    rows = broker_load(sums, CLUSTER, cpu_of_brokers(frame(spark, metrics, BROKER_METRICS)))
    assert {row["broker_id"]: row["cpu"] for row in as_rows(rows)} == {1: 30.0, 2: None}


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ({}, {1: (100, 0, 60, 100), 2: (0, 100, 0, 0)}),
        ({"bytes_out": None}, {1: (100, 0, None, 100), 2: (0, 100, None, 0)}),
        ({"bytes_in": None}, {1: (None, None, 60, None), 2: (None, None, 0, None)}),
    ],
)
def test_a_rate_that_no_partition_has_is_unknown(
    spark: SparkSession, unknown: dict[str, None], expected: dict[int, tuple[float | None, ...]]
) -> None:
    """A broker without a rate that others have has 0 of it; other hours do not count."""
    loads = [load_row(0, 1, **unknown), load_row(0, 1, hour=at(60))]
    sums = frame(spark, summed(spark, loads, [partition_row([1, 2], 1, [1])], are_nearest_read=False), BROKER_SUMS)
    rows = as_rows(broker_load(sums, CLUSTER, cpu_of_brokers(frame(spark, [], BROKER_METRICS))))
    first = min(row["hour"] for row in rows)
    found = {row["broker_id"]: tuple(row[name] for name in RATES[:4]) for row in rows if row["hour"] == first}
    assert found == expected


@BATCHES
@given(seed=st.integers(0, 2**32))
def test_sums_in_plain_python(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    partitions, loads = [], []
    for number in range(60):
        replicas = chance.sample([*RACKS], chance.randint(1, 4))
        partitions.append(partition_row(replicas, chance.choice([*replicas, -1]), replicas, partition=number))
        racks = {rack: float(chance.randint(1, 9)) for rack in chance.sample(["a", "b", "c"], chance.randint(0, 3))}
        leader = chance.choice([*replicas, *replicas, None, 5])
        out = sum(racks.values()) + chance.randint(0, 9)
        loads.append(
            load_row(
                number, leader, bytes_in=chance.choice([None, 3.0]), bytes_out=out, bytes_out_by_rack=racks or None
            )
        )
    is_near = chance.random() < 0.7
    found = _known(summed(spark, loads, partitions, are_nearest_read=is_near))
    assert found == {broker: pytest.approx(sums) for broker, sums in _oracle(loads, partitions, is_near).items()}


def _oracle(loads: list[Row], partitions: list[Row], is_near: bool) -> Sums:  # noqa: FBT001 - the case
    sums: Sums = defaultdict(lambda: dict.fromkeys(RATES[:4], 0.0) | {"size_bytes": 0.0})
    for load in loads:
        stored = partitions[load["partition"]]
        leader = load["leader"] if load["leader"] is not None else stored["leader"]
        leader = stored["replicas"][0] if leader < 0 else leader
        replicas = [leader, *[broker for broker in stored["replicas"] if broker != leader]][: len(stored["replicas"])]
        for broker in replicas:
            written = load["bytes_in"] or 0.0
            sums[broker]["size_bytes"] += 7
            sums[broker]["bytes_in" if broker == leader else "replication_in"] += written
            sums[broker]["replication_out"] += written * (len(replicas) - 1) if broker == leader else 0.0
        rest = load["bytes_out"]
        for rack, read in (load["bytes_out_by_rack"] or {}).items():
            near = [broker for broker in replicas if RACKS[broker] == rack]
            serving = near if is_near and near and leader not in near else [leader]
            for broker in serving:
                share = read / len(serving)
                sums[broker]["bytes_out"] += share
                across = share if RACKS[broker] != rack else 0.0
                sums[broker]["across_racks"] = sums[broker].get("across_racks", 0.0) + across
            rest -= read
        sums[leader]["bytes_out"] += rest
    return sums


def _known(rows: list[Row]) -> Sums:
    """Return the rates of brokers; what is unknown is missing if it may be, and else 0."""
    of_brokers = {row["broker_id"]: {rate: row[rate] for rate in RATES} for row in rows}
    return {
        broker: {rate: value or 0.0 for rate, value in values.items() if rate != "across_racks" or value is not None}
        for broker, values in of_brokers.items()
    }
