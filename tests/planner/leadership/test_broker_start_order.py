"""The start order after an outage, compared with a search through all orders."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.columns.partition_masks import Ints
from planner.leadership.broker_start_order import StartOrder, start_order
from schemas.enums import NO_LEADER

Lists = list[tuple[list[int], list[int]]]
"""Replicas and the last ISR of each partition."""


def padded(lists: list[list[int]]) -> Ints:
    laid_out = np.full((len(lists), max([1, *map(len, lists)])), NO_LEADER, dtype=np.int32)
    for row, brokers in enumerate(lists):
        laid_out[row, : len(brokers)] = brokers
    return laid_out


def order_of(partitions: Lists, registered: list[int]) -> StartOrder:
    replicas, isr = ([lists[side] for lists in partitions] for side in (0, 1))
    return start_order(padded(replicas), padded(isr), registered)


Expected = tuple[list[tuple[tuple[int, ...], int, int]], tuple[int, ...], int]
"""Steps (brokers, partitions last in sync, partitions brought back), brokers not in sync, and unknown partitions."""

CASES: Final[list[tuple[str, Lists, list[int], Expected]]] = [
    ("the last in sync of all", [([0, 2], [0]), ([2, 0], [0])] * 2, [1], ([((0,), 4, 4)], (2,), 0)),
    ("several last ones", [([0, 2], [0])] * 3 + [([2, 0], [2])], [1], ([((0,), 3, 3), ((2,), 1, 1)], (), 0)),
    ("any of two", [([0, 1, 2], [0, 1])] * 2, [], ([((0, 1), 2, 2)], (2,), 0)),
    ("in sync of what is back already", [([0, 1], [0, 1]), ([0, 3], [0])], [], ([((0,), 2, 2)], (3,), 0)),
    ("in the ISR, not assigned", [([1, 2], [9])], [], ([], (), 1)),
    ("no ISR is known", [([1, 2], [])], [2], ([], (), 1)),
    ("in sync, alive", [([0, 1], [1])], [1], ([], (0,), 0)),
    ("nothing is offline", [], [], ([], (), 0)),
]


@pytest.mark.parametrize(("name", "partitions", "registered", "expected"), CASES)
def test_order(name: str, partitions: Lists, registered: list[int], expected: Expected) -> None:
    order = order_of(partitions, registered)
    steps = [(step.brokers, step.partitions, step.brings_back) for step in order.starts]

    assert (name, (steps, order.not_in_sync, order.unknown)) == (name, expected)


brokers = st.integers(0, 4)
some = st.lists(st.tuples(st.lists(brokers, min_size=1, unique=True), st.lists(brokers, unique=True)), max_size=6)


@given(some, st.sets(brokers))
def test_no_order_brings_more_back_at_any_step(partitions: Lists, registered: set[int]) -> None:
    """Brokers are started one after the other; Kafka's election rule then determines which partitions are led."""
    order = order_of(partitions, sorted(registered))
    down = sorted({0, 1, 2, 3, 4} - registered)

    def led(started: set[int]) -> int:
        return sum(any(replica in isr and replica in started for replica in replicas) for replicas, isr in partitions)

    started: set[int] = set()
    for step in order.starts:
        best = max(led(started | {broker}) for broker in down)
        assert {led(started | {broker}) for broker in step.brokers} == {led(started) + step.brings_back} == {best}
        assert {led({broker}) for broker in step.brokers} == {step.partitions}
        started.add(step.brokers[0])
    assert led(started) == led(set(down))
    assert all(led({broker}) == 0 for broker in order.not_in_sync)
    assert order.live == {broker: led({broker}) for broker in sorted(registered) if led({broker})}
    assert order.unknown == sum(not set(replicas) & set(isr) for replicas, isr in partitions)
