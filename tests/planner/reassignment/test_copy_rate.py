"""Copy rates: worked examples, and invariants for any readings."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reassignment.copy_rate import (
    CopyRate,
    CopyReading,
    ReplicaCopy,
    ReplicaKey,
    by_broker,
    copy_rate_of,
    slowest,
)

A: Final[ReplicaKey] = ("t", 0, 1)
B: Final[ReplicaKey] = ("t", 0, 2)


def _copy(held: int | None, whole: int | None = 100, *, lag: int | None = None, in_sync: bool = False) -> ReplicaCopy:
    return ReplicaCopy(held=held, whole=whole, lag=lag, in_sync=in_sync)


# before, after, seconds; bytes per second, seconds left
EXAMPLES: Final[dict[str, tuple[CopyReading | None, CopyReading, float, float | None, float | None]]] = {
    "half an hour at this pace": ({A: _copy(10)}, {A: _copy(11)}, 20.0, 0.05, 1780.0),
    "nothing moves": ({A: _copy(10)}, {A: _copy(10)}, 3.0, 0.0, None),
    "producers are as quick": ({A: _copy(10)}, {A: _copy(20, 110)}, 2.0, 5.0, None),
    "producers are slower": ({A: _copy(10)}, {A: _copy(30, 110)}, 2.0, 10.0, 16.0),
    "one reading": (None, {A: _copy(10)}, 0.0, None, None),
    "all there": ({A: _copy(10)}, {A: _copy(100)}, 3.0, 30.0, 0.0),
    "all there at one reading": (None, {A: _copy(100)}, 0.0, None, 0.0),
    "in sync with a smaller log": ({A: _copy(10)}, {A: _copy(60, in_sync=True)}, 3.0, 30.0, 0.0),
    "it started again": ({A: _copy(50)}, {A: _copy(10)}, 2.0, 0.0, None),
    "a broker became silent": ({A: _copy(10)}, {A: _copy(None)}, 2.0, 0.0, None),
    "a leader is silent": ({A: _copy(10, None)}, {A: _copy(20, None)}, 2.0, 0.0, None),
    "one of two is silent": ({A: _copy(10), B: _copy(None)}, {A: _copy(20), B: _copy(None)}, 2.0, 5.0, None),
    "one reported only now": ({A: _copy(10)}, {A: _copy(20), B: _copy(60)}, 2.0, 5.0, 24.0),
    "nothing at all": ({}, {}, 2.0, 0.0, 0.0),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_worked_examples(example: tuple[CopyReading | None, CopyReading, float, float | None, float | None]) -> None:
    before, now, seconds, rate, left = example
    pace = copy_rate_of(before, now, seconds)
    assert [pace.bytes_per_second, pace.seconds_left] == pytest.approx([rate, left])


def test_sums_are_of_known_replicas() -> None:
    now = {A: _copy(40, lag=7), B: _copy(None, lag=None), ("t", 1, 1): _copy(5, 50, lag=9)}
    assert copy_rate_of(None, now, 0.0) == CopyRate(
        replicas=3, unknown=1, bytes_done=45, bytes_total=150, lag=9, bytes_per_second=None, seconds_left=None
    )


def test_all_need_as_long_as_the_slowest_broker() -> None:
    before, now = {A: _copy(0), B: _copy(0)}, {A: _copy(50), B: _copy(10)}
    paces = by_broker(before, now, 1.0, {})
    assert {broker: pace.seconds_left for broker, pace in paces.items()} == {1: 1.0, 2: 9.0}
    assert slowest(paces.values()) == 9.0
    assert slowest(by_broker(before, now, 1.0, {1: 2, 2: 100}).values()) == 25.0  # its throttle allows no less
    assert slowest(by_broker(before, {**now, B: _copy(0)}, 1.0, {}).values()) is None


COPIES: Final = st.builds(
    ReplicaCopy,
    held=st.none() | st.integers(0, 2**50),
    whole=st.none() | st.integers(0, 2**50),
    lag=st.none() | st.integers(0, 2**40),
    in_sync=st.booleans(),
)
READINGS: Final = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(1, 3)), COPIES)


@given(READINGS | st.none(), READINGS, st.floats(0, 1000))
def test_copy_rates_of_any_readings(before: CopyReading | None, now: CopyReading, seconds: float) -> None:
    total = copy_rate_of(before, now, seconds)
    brokers = by_broker(before, now, seconds, {})
    assert 0 <= total.bytes_done <= total.bytes_total
    assert total.bytes_per_second is None or total.bytes_per_second >= 0
    assert total.seconds_left is None or (total.seconds_left >= 0 and total.unknown == 0)
    assert sum(pace.replicas for pace in brokers.values()) == total.replicas == len(now)
    assert sum(pace.bytes_done for pace in brokers.values()) == total.bytes_done
