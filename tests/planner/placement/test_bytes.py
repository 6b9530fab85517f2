"""Balancing of bytes: never less even than before, and near the optimum found by trying everything."""

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.balancing.byte_weights import TOLERANCE_DIVISOR
from planner.placement.solve import place
from planner.placement.types import Placement, PlacementError, PlacementGoal
from tests.planner.placement.clusters import Case, brokers_of, cases, partitions_of

MANY: Final = settings(max_examples=80)
EVEN: Final = PlacementGoal(even=True)


def _held(placement: Placement, case: Case) -> tuple[list[int], list[int]]:
    """Return the bytes of the brokers that may hold replicas, before and after."""
    may_hold = set(map(str, case.brokers.ids[case.brokers.target].tolist()))
    assert placement.brokers.bytes is not None
    before, after = (
        [size for name, size in zip(placement.brokers.names, held.tolist(), strict=True) if name in may_hold]
        for held in placement.brokers.bytes
    )
    return before, after


@MANY
@given(cases((EVEN,)), st.lists(st.integers(0, 2**40), min_size=9, max_size=9))
def test_brokers_are_never_less_even_than_before(case: Case, sizes: list[int]) -> None:
    weights = np.array(sizes[: len(case.partitions.topic)])
    if case.brokers.emptied.any():
        return  # a replica that has to leave may only fit on a full broker
    try:
        placement = place(case.brokers, replace(case.partitions, weights=weights), case.question)
    except PlacementError:
        return
    before, after = _held(placement, case)
    assert max(after) - min(after) <= max(before) - min(before)
    assert sum(size**2 for size in after) <= sum(size**2 for size in before)


@MANY
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000)), min_size=1, max_size=6))
def test_fullest_broker_is_near_the_best_there_is(rows: list[tuple[int, int]]) -> None:
    """One replica each on three brokers: if no single move improves, the fullest holds at most 3/2 of the optimum.

    That is the bound of Finn and Horowitz (1979) for schedules that no single job's move makes shorter: 2 - 2 / (m +
    1).
    """
    brokers = brokers_of((None,) * 3)
    ids = brokers.ids.tolist()
    weights = [size for _, size in rows]
    partitions = replace(partitions_of([[ids[place_]] for place_, _ in rows]), weights=np.array(weights))
    placement = place(brokers, partitions, EVEN)
    case = Case(brokers=brokers, partitions=partitions, question=EVEN)
    best = min(
        max(sum(size for size, on in zip(weights, where, strict=True) if on == broker) for broker in range(3))
        for where in product(range(3), repeat=len(rows))
    )
    tolerated = sum(weights) // 3 // TOLERANCE_DIVISOR + 2
    assert best <= max(_held(placement, case)[1]) <= 3 * best / 2 + tolerated
