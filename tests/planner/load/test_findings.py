"""What a person must know of loads: a table of cases, and hot partitions found in plain Python."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.load.findings import (
    HOT_SHARE,
    MIN_LEADERS,
    MIN_RATE,
    HotPartition,
    above_limits,
    hidden_by_counts,
    hottest_partitions,
    is_hot,
    least_hot_rates,
    unevenness,
    used_by,
)
from planner.load.resources import Capacity
from schemas.rows import BrokerLoad

MB: Final = 1e6


def load(broker: int, rate: float = MB, **columns: Any) -> BrokerLoad:  # noqa: ANN401 - columns of `broker_load`
    """A broker that receives and sends `rate`, without replication."""
    rates = {"bytes_in": rate, "replication_in": 0.0, "bytes_out": rate, "replication_out": 0.0}
    return BrokerLoad(**{"broker_id": broker, "leaders": 10, "replicas": 30, **rates, **columns})


def test_brokers_above_their_limits_the_furthest_first() -> None:
    capacities = {
        1: {"in": Capacity(2 * MB), "out": Capacity(MB, 1.0), "disk": Capacity(100.0)},
        2: {"cpu": Capacity(100.0, 0.5), "in": Capacity(0.0), "replicas": Capacity(25.0, 1.0)},
        3: {"replicas": Capacity(30.0, 1.0)},
        9: {"in": Capacity(1.0)},
    }
    loads = [load(1, 1.7 * MB, size_bytes=80), load(2, cpu=60.0), load(3)]
    found = above_limits(loads, capacities, {1: 99, 2: 30, 3: 30})
    assert [(one.broker_id, one.resource, round(one.share, 6), one.limit_share) for one in found] == [
        (1, "out", 1.7, 1.0),
        (2, "cpu", 0.6, 0.5),
        (2, "replicas", 1.2, 1.0),
        (1, "in", pytest.approx(0.85), 0.8),
    ]


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
    found = hidden_by_counts(loads, {})
    assert (found and (found.resource, found.broker_id)) == expected


def test_the_worst_broker_of_each_resource() -> None:
    found = unevenness([load(1, 3 * MB, size_bytes=5), load(0, MB, size_bytes=5), load(2, 2 * MB, size_bytes=None)], {})
    assert [(one.resource, one.broker_id, one.ratio) for one in found] == [("in", 1, 1.5), ("out", 1, 1.5)]
    assert [one.broker_id for one in unevenness([load(1), load(0)], {})] == [0, 0]


def test_a_broker_with_twice_the_capacity_should_have_twice_the_load() -> None:
    loads = [load(0, 4 * MB), load(1, 2 * MB), load(2, 3 * MB)]
    capacities = {broker: {"in": Capacity(amount)} for broker, amount in ((0, 200.0), (1, 100.0), (2, 100.0))}
    ratios = {one.resource: (one.broker_id, one.ratio) for one in unevenness(loads, capacities)}
    assert [ratios["in"][0], ratios["out"][0]] == [2, 0]
    assert ratios["in"][1] == pytest.approx(4 / 3)


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


def test_unknown_rates_are_not_zero() -> None:
    """Without the rate to readers the network out is that to followers; without any rate it is unknown."""
    followed = load(1, bytes_out=None, replication_out=3.0)
    unknown = load(1, bytes_in=None, replication_in=None, bytes_out=None, replication_out=None, size_bytes=9)
    assert (used_by(followed), used_by(unknown)) == ({"in": MB, "out": 3.0}, {"disk": 9.0})
    assert least_hot_rates([unknown], 2) == (inf, inf)
    rows = rows_of([("a", 0, 1, None, None, 0)])
    assert hottest_partitions(rows, [unknown]) == []


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
