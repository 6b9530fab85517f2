"""What a person must know of loads: a table of cases, and hot partitions found in plain Python."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.load.disk_forecast import growth_of
from planner.load.findings import (
    HOT_SHARE,
    MIN_LEADERS,
    MIN_RATE,
    Capacity,
    HotPartition,
    above_limits,
    filling_disks,
    hidden_by_counts,
    hottest_partitions,
    is_hot,
    least_hot_rates,
    unevenness,
    used_by,
)
from schemas.rows import BrokerLoad

MB: Final = 1e6


def load(broker: int, rate: float = MB, **columns: Any) -> BrokerLoad:  # noqa: ANN401 - columns of `broker_load`
    """A broker that receives and sends `rate`, without replication."""
    rates = {"bytes_in": rate, "replication_in": 0.0, "bytes_out": rate, "replication_out": 0.0}
    return BrokerLoad(**{"broker_id": broker, "leaders": 10, "replicas": 30, **rates, **columns})


def test_brokers_above_their_limits_the_furthest_first() -> None:
    capacities = {
        1: {"in": Capacity(2 * MB), "out": Capacity(MB, 1.0), "disk": Capacity(100.0)},
        2: {"cpu": Capacity(100.0, 0.5), "in": Capacity(0.0)},
        9: {"in": Capacity(1.0)},
    }
    loads = [load(1, 1.7 * MB, size_bytes=80), load(2, cpu=60.0), load(3)]
    found = above_limits(loads, capacities)
    assert [(one.broker_id, one.resource, one.share, one.limit_share) for one in found] == [
        (1, "out", pytest.approx(1.7), 1.0),
        (2, "cpu", pytest.approx(0.6), 0.5),
        (1, "in", pytest.approx(0.85), 0.8),
    ]


def test_disks_that_grow_the_one_that_is_full_first() -> None:
    loads = [load(broker, size_bytes=size) for broker, size in enumerate((600, 600, 1000, 10, None))]
    capacities = {broker: {"disk": Capacity(1000.0)} for broker in (0, 1, 2, 4)}
    found = filling_disks(loads, capacities, {0: 1.0, 1: 4.0, 2: -1.0, 3: 5.0, 4: 5.0})
    assert [(disk.broker_id, disk.seconds, disk.share) for disk in found] == [(2, 0, 1), (1, 100, 0.6), (0, 400, 0.6)]


@given(
    st.floats(-1e6, 1e6), st.integers(0, 9), st.floats(-1e12, 1e12), st.lists(st.integers(1, 9), min_size=5, max_size=9)
)
def test_a_step_does_not_change_the_growth(slope: float, at: int, step: float, gaps: list[int]) -> None:
    """Of one deleted topic, whenever it was."""
    times = [float(sum(gaps[:number]) * 6 * 3600) for number in range(len(gaps))]
    sizes = {time: 1e12 + slope * time + step * (number >= at) for number, time in enumerate(times)}
    assert growth_of(sizes) == pytest.approx(slope, abs=1)


UNEVEN: Final[list[tuple[str, Sequence[BrokerLoad], tuple[str, int] | None]]] = [
    ("even", [load(0), load(1)], None),
    ("a third more than the mean", [load(0, 3 * MB), load(1, MB), load(2, MB)], ("in", 0)),
    ("up to the limit", [load(0, 1.25 * MB), load(1, 0.75 * MB)], None),
    ("an idle cluster", [load(0, MIN_RATE - 1), load(1, 1)], None),
    ("more leaders", [load(0, 3 * MB, leaders=30), load(1, MB)], None),
    ("more replicas", [load(0, 3 * MB, replicas=60), load(1, MB)], None),
    ("a broker without replicas", [load(0), load(1), load(2, 0.0, leaders=0, replicas=0)], None),
    ("disks are for another rule", [load(0, size_bytes=900), load(1, size_bytes=100)], None),
    ("CPU of an idle network", [load(0, 0.0, cpu=90.0), load(1, 0.0, cpu=10.0)], ("cpu", 0)),
    ("CPU is not known of each", [load(0, 0.0, cpu=90.0), load(1, 0.0)], None),
    ("the worst resource", [load(0, 3 * MB, bytes_out=9 * MB), load(1)], ("out", 0)),
    ("nothing", [], None),
]


@pytest.mark.parametrize(("loads", "expected"), [case[1:] for case in UNEVEN], ids=[case[0] for case in UNEVEN])
def test_load_that_counts_do_not_show(loads: Sequence[BrokerLoad], expected: tuple[str, int] | None) -> None:
    found = hidden_by_counts(loads)
    assert (found and (found.resource, found.broker_id)) == expected


def test_the_worst_broker_of_each_resource() -> None:
    found = unevenness([load(1, 3 * MB, size_bytes=5), load(0, MB, size_bytes=5), load(2, 2 * MB, size_bytes=None)])
    assert [(one.resource, one.broker_id, one.ratio) for one in found] == [("in", 1, 1.5), ("out", 1, 1.5)]
    assert [one.broker_id for one in unevenness([load(1), load(0)])] == [0, 0]


def rows_of(partitions: Sequence[tuple[str, int, int | None, float | None, float | None, int]]) -> pa.Table:
    """Partitions by topic, number, leader, bytes in, bytes out and followers."""
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("leader", pa.int32()),
            ("bytes_in", pa.float64()),
            ("bytes_out", pa.float64()),
            ("replication_out", pa.float64()),
        ]
    )
    return pa.Table.from_pylist(
        [
            dict(zip(schema.names, (*row[:5], None if row[3] is None else row[3] * row[5]), strict=True))
            for row in partitions
        ],
        schema,
    )


def test_hottest_partition_of_each_broker() -> None:
    loads = [load(7, 100.0), load(5, 100.0), load(6, 0.0)]
    partitions = [
        ("b", 1, 5, 40.0, 0.0, 0),
        ("a", 2, 5, 40.0, None, 0),
        ("a", 3, 7, 10.0, 30.0, 2),
        ("a", 4, 7, None, 45.0, 2),
        ("a", 5, 9, 90.0, 90.0, 0),
        ("a", 6, None, 90.0, 90.0, 0),
        ("a", 7, 6, 0.0, 0.0, 0),
    ]
    assert hottest_partitions(rows_of(partitions), loads) == [
        HotPartition(topic="a", partition=3, broker_id=7, resource="out", share=0.5),
        HotPartition(topic="a", partition=2, broker_id=5, resource="in", share=0.4),
    ]
    assert hottest_partitions(rows_of(partitions), []) == []
    assert hottest_partitions(rows_of([]), loads) == []


@pytest.mark.parametrize(
    ("leader", "resource", "share", "expected"),
    [
        (load(1), "in", HOT_SHARE, True),
        (load(1), "in", HOT_SHARE - 0.01, False),
        (load(1, leaders=MIN_LEADERS - 1), "in", 0.9, False),
        (load(1, MIN_RATE - 1), "in", 0.9, False),
        (load(1, 0.0, replication_out=MIN_RATE), "out", 0.9, True),
        (load(1, 0.0, replication_out=MIN_RATE), "in", 0.9, False),
    ],
)
def test_what_is_hot(leader: BrokerLoad, resource: str, share: float, *, expected: bool) -> None:
    assert is_hot(HotPartition(topic="a", partition=0, broker_id=1, resource=resource, share=share), leader) == expected


RATES: Final = st.sampled_from([0.0, MIN_RATE / 2, MIN_RATE, 2 * MIN_RATE, 9 * MIN_RATE])


@given(
    st.lists(st.tuples(st.integers(0, 2), RATES, RATES, st.integers(0, 2)), min_size=1, max_size=12),
    st.lists(st.tuples(RATES, RATES), min_size=3, max_size=3),
)
def test_partitions_by_plain_python(
    given_partitions: list[tuple[int, float, float, int]], extra: list[tuple[float, float]]
) -> None:
    """Loads are those of the partitions, and some of others; no hot partition is below the least rates."""
    partitions = [("t", number, *values) for number, values in enumerate(given_partitions)]
    loads = [
        replace(
            load(broker, 0.0),
            bytes_in=sum(row[3] for row in partitions if row[2] == broker),
            replication_in=more_in,
            bytes_out=sum(row[4] for row in partitions if row[2] == broker) + more_out,
            replication_out=sum(row[3] * row[5] for row in partitions if row[2] == broker),
        )
        for broker, (more_in, more_out) in enumerate(extra)
    ]
    found = {hot.broker_id: hot for hot in hottest_partitions(rows_of(partitions), loads)}
    least_in, least_out = least_hot_rates(loads, 2)

    for broker, of_broker in enumerate(loads):
        used = used_by(of_broker)
        shares = {
            number: max(bytes_in / max(used["in"], 1), (bytes_in * followers + bytes_out) / max(used["out"], 1))
            for _, number, leader, bytes_in, bytes_out, followers in partitions
            if leader == broker
        }
        most = max(shares.values(), default=0.0)
        assert (broker in found) == (most > 0)
        if broker in found:
            assert found[broker].share == pytest.approx(most)
            assert shares[found[broker].partition] == pytest.approx(most)
            if is_hot(found[broker], of_broker):
                _, _, _, bytes_in, bytes_out, _ = partitions[found[broker].partition]
                assert bytes_in >= least_in or bytes_out >= least_out
                assert isfinite(least_in) or isfinite(least_out)
