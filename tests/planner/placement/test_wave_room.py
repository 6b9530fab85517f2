"""Copies of a wave count on both sides: no wave fills a disk beyond its limit, or the plan says that none can."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.solve import evaluate_given
from planner.placement.types import NO_BROKER, Ints, PlacementError
from planner.placement.waves import WaveLimits, Waves, cut_into_waves
from tests.planner.placement.clusters import brokers_of, padded, partitions_of

Lists = list[list[int]]
NONE: Final = WaveLimits()


def waves_of(before: Lists, after: Lists, sizes: list[int], limit: dict[int, float], caps: WaveLimits = NONE) -> Waves:
    partitions = replace(partitions_of(before), weights=np.array(sizes))
    count = 1 + max(map(max, before + after))
    brokers = replace(brokers_of((None,) * count), ids=np.arange(count))
    placement = evaluate_given(brokers, partitions, padded(after))
    return cut_into_waves(partitions, placement, {}, caps, limit)


def by_row(planned: Waves) -> dict[int, list[int]]:
    """The waves of each row that changes."""
    rows = planned.row.tolist()
    return {row: [wave for one, wave in zip(rows, planned.wave.tolist(), strict=True) if one == row] for row in rows}


def most_held(before: Lists, sizes: list[int], planned: Waves) -> dict[int, float]:
    """The most bytes that each broker holds in any wave: what it has, and what is copied to it meanwhile."""
    held = {row: set(replicas) for row, replicas in enumerate(before)}
    most = dict[int, float]()

    def measure() -> None:
        for broker in set().union(*held.values()):
            total = sum(sizes[row] for row, replicas in held.items() if broker in replicas)
            most[broker] = max(total, most.get(broker, 0))

    for wave in range(planned.count):
        steps = np.flatnonzero(planned.wave == wave).tolist()
        after = {int(planned.row[step]): _brokers(planned.after[:, step]) for step in steps}
        held |= {row: held[row] | replicas for row, replicas in after.items()}
        measure()
        held |= after
    return most


def _brokers(replicas: Ints) -> set[int]:
    return {*replicas.tolist()} - {NO_BROKER}


Case = tuple[Lists, Lists, list[int], dict[int, float], dict[int, list[int]]]
CASES: Final[dict[str, Case]] = {
    "all fit at once": ([[0], [1]], [[1], [0]], [40, 40], {0: 80, 1: 80}, {0: [0], 1: [0]}),
    "a swap with room on one side": ([[0], [1], [0]], [[1], [0], [0]], [40, 30, 40], {0: 80, 1: 75}, {0: [0], 1: [1]}),
    "a chain is copied from its end": ([[0], [1]], [[1], [2]], [60, 60], {0: 80, 1: 80, 2: 80}, {0: [1], 1: [0]}),
    "small ones go before a large one": (
        [[0], [1], [1], [1]],
        [[1], [2], [2], [1]],
        [50, 20, 20, 40],
        {1: 90, 2: 90},
        {0: [1], 1: [0], 2: [0]},
    ),
    "a disk above its limit is emptied first": (
        [[0], [0], [1]],
        [[1], [0], [0]],
        [60, 50, 40],
        {0: 80, 1: 120},
        {0: [0], 2: [1]},
    ),
    "an unknown disk has room": ([[0], [1]], [[1], [0]], [40, 40], {}, {0: [0], 1: [0]}),
}


@pytest.mark.parametrize("name", CASES)
def test_waves(name: str) -> None:
    before, after, sizes, limit, expected = CASES[name]
    assert by_row(waves_of(before, after, sizes, limit)) == expected


def test_a_swap_without_room_is_named() -> None:
    """Neither of two nearly full brokers can take the other's replica before it has given its own."""
    with pytest.raises(PlacementError, match="2 steps of 80 bytes have no room before others leave") as error:
        waves_of([[0], [1], [2]], [[1], [0], [3]], [40, 40, 9], {0: 60, 1: 60})
    assert error.value.rows == [0, 1]


def test_the_limits_of_moves_hold_too() -> None:
    before, after = [[0], [0], [0], [1]], [[1], [1], [1], [2]]
    planned = waves_of(before, after, [10, 10, 10, 30], {1: 35}, WaveLimits(moves_per_broker=1))
    assert by_row(planned) == {0: [1], 1: [2], 2: [3], 3: [0]}


SIZES: Final = st.lists(st.integers(1, 9), min_size=4, max_size=9)


@settings(max_examples=200)
@given(SIZES, st.data(), st.sampled_from([NONE, WaveLimits(moves_per_broker=1), WaveLimits(one_at_a_time=True)]))
def test_no_wave_exceeds_a_disk(sizes: list[int], data: st.DataObject, caps: WaveLimits) -> None:
    """With any limits that the lists before and after keep; and back again by the same waves."""
    replicas = st.lists(st.integers(0, 4), min_size=2, max_size=2, unique=True)
    before, after = ([data.draw(replicas) for _ in sizes] for _ in range(2))
    limit = {
        broker: float(data.draw(st.integers(0, 6)))
        + max(sum(size for size, row in zip(sizes, rows, strict=True) if broker in row) for rows in (before, after))
        for broker in range(5)
    }
    try:
        planned = waves_of(before, after, sizes, limit, caps)
    except PlacementError:
        return
    held = most_held(before, sizes, planned)
    assert {broker for broker, most in held.items() if most > limit[broker]} == set()
    back = most_held(after, sizes, planned.inverse())
    assert {broker for broker, most in back.items() if most > limit[broker]} == set()
