"""Balancing of bytes: never less even than before, inside the band if a move allows it, and near the fewest bytes."""

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.placement.solve import place
from planner.placement.types import (
    EVEN_WITHIN,
    NO_BROKER,
    Placement,
    PlacementBrokers,
    PlacementError,
    PlacementGoal,
    PlacementPartitions,
)
from tests.planner.placement.clusters import Case, brokers_of, cases, partitions_of
from tests.planner.placement.placement_oracle import choices, recipients

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
    tolerated = int(sum(weights) / 3 * EVEN_WITHIN) + 2
    assert best <= max(_held(placement, case)[1]) <= 3 * best / 2 + tolerated


@MANY
@given(cases((EVEN,)), st.lists(st.integers(0, 100), min_size=9, max_size=9), st.sampled_from([0.0, 0.01, 0.1, 0.4]))
def test_no_move_could_bring_a_broker_inside_the_band(case: Case, sizes: list[int], within: float) -> None:
    """The moves that a partition's allowed sets offer, of replicas that the plan has left where they were."""
    options = choices(case)
    assume(options is not None and recipients(case) and not case.brokers.emptied.any())
    weights = np.array(sizes[: len(case.partitions.topic)])
    placement = place(case.brokers, replace(case.partitions, weights=weights), replace(EVEN, within=within))
    held = dict(zip(recipients(case), _held(placement, case)[1], strict=True))
    mean = sum(held.values()) / len(held)
    low, high = mean * (1 - within), mean * (1 + within)
    for row, sets in enumerate(options or []):
        before, after = (
            frozenset(lists[row].tolist()) - {NO_BROKER} for lists in (case.partitions.replicas, placement.replicas)
        )
        for source, target in product(before & after & held.keys(), held.keys() - before - after):
            if after - {source} | {target} in {some for some, _ in sets}:
                ends = held[source] - int(weights[row]), held[target] + int(weights[row])
                helps = held[source] > high or held[target] < low
                assert not (helps and weights[row] and min(ends) >= low and max(ends) <= high)


@MANY
@given(st.lists(st.integers(90, 110), min_size=2, max_size=6), st.integers(11, 100))
def test_brokers_inside_the_band_move_nothing(held: list[int], percent: int) -> None:
    mean = sum(held) / len(held)
    assume(all(abs(size - mean) <= int(sum(held) // len(held) * 0.1) for size in held))
    brokers = brokers_of((None,) * len(held))
    partitions = replace(partitions_of([[broker] for broker in brokers.ids.tolist()]), weights=np.array(held))
    assert place(brokers, partitions, replace(EVEN, within=percent / 100)).copies == 0


BANDS: Final = {
    # bytes of each replica by broker, the share, and the bytes of each broker after
    "what exceeds 110 moves": ([[60, 50, 20, 10], [60]], 0.1, [110, 90]),
    "one replica of 30 instead of 20 and 10, which are 30 too": ([[70, 30, 20, 10], [70]], 0.0, [100, 100]),
    "nothing exceeds 150": ([[60, 50, 20, 10], [60]], 0.5, [140, 60]),
    "the emptiest gets what it lacks from the fullest": ([[50, 50, 10], [60, 50], [80]], 0.1, [100, 110, 90]),
    "a replica that is larger than the band's rest stays": ([[120], [80]], 0.1, [120, 80]),
    "brokers come closer, though two stay outside": ([[200, 100], [10], [5]], 0.1, [200, 15, 100]),
}


@pytest.mark.parametrize("case", BANDS)
def test_worked_examples(case: str) -> None:
    held, within, expected = BANDS[case]
    brokers = brokers_of((None,) * len(held))
    lists = [[broker] for broker, sizes in zip(brokers.ids.tolist(), held, strict=True) for _ in sizes]
    partitions = replace(partitions_of(lists), weights=np.array([size for sizes in held for size in sizes]))
    placement = place(brokers, partitions, replace(EVEN, within=within))
    assert placement.brokers.bytes is not None
    by_id = dict(zip(placement.brokers.names, placement.brokers.bytes[1].tolist(), strict=True))
    assert [by_id[str(broker)] for broker in brokers.ids.tolist()] == expected


def _skewed() -> tuple[PlacementBrokers, PlacementPartitions]:
    """Return 3,000 partitions with three replicas on 12 brokers in three racks; some brokers have large ones."""
    rng = np.random.default_rng(7)
    brokers, count = np.arange(12), 3_000
    chances = rng.uniform(0.6, 1.4, 12)
    replicas = np.stack(
        [rng.choice(rack, count, p=chances[rack] / chances[rack].sum()) for rack in brokers.reshape(3, 4)]
    )
    return (
        PlacementBrokers(
            ids=brokers,
            racks=tuple("aaaabbbbcccc"),
            live=np.ones(12, dtype=bool),
            target=np.ones(12, dtype=bool),
            emptied=np.zeros(12, dtype=bool),
        ),
        PlacementPartitions(
            topic=np.arange(count) // 20,
            partition=np.arange(count) % 20,
            replicas=replicas.T.astype(np.int64),
            movable=np.ones(count, dtype=bool),
            weights=(rng.lognormal(0, 1.5, count) * 2**30).astype(np.int64),
        ),
    )


def test_a_wider_band_moves_fewer_bytes_and_few_more_than_must_move() -> None:
    """What exceeds the band must leave its broker, and what a broker lacks must arrive: no plan moves less."""
    brokers, partitions = _skewed()
    moved = []
    for within in (0.01, 0.1, 0.2):
        placement = place(brokers, partitions, replace(EVEN, within=within))
        assert placement.brokers.bytes is not None
        assert partitions.weights is not None
        before, after = placement.brokers.bytes
        over, under = np.maximum([before / before.mean() - 1 - within, 1 - within - before / before.mean()], 0)
        least = np.maximum(*(part.reshape(3, 4).sum(axis=1) for part in (over, under))).sum() * before.mean()
        moved.append(int(partitions.weights[placement.moves.row].sum()))
        assert abs(after / after.mean() - 1).max() <= within
        assert moved[-1] <= 1.1 * least
    assert moved[2] < moved[1] < moved[0] / 1.5
