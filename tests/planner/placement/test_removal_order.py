"""The removal order of replicas: dead first, then drained, then lagging; evenness comes after."""

from typing import Final

import numpy as np
import pytest

from planner.placement.solve import evaluate_given, place
from planner.placement.types import NO_BROKER, PlacementGoal
from planner.placement.waves import WaveLimits, cut_into_waves
from tests.planner.placement.clusters import brokers_of, partitions_of

FEWER: Final = PlacementGoal(replication_factor=2)
FOUR: Final = (None,) * 4
"""Brokers 3, 1, 4 and 15, without racks."""

# racks, dead, drained, goal, replicas, ISR, replicas after; broker 15 holds nothing, so balancing would use it
CASES: Final = {
    "the lagging one": (FOUR, set(), set(), FEWER, [3, 1, 4], [3, 4], [3, 4]),
    "the dead one, though held otherwise": (FOUR, {4}, set(), FEWER, [3, 1, 4], [3], [3, 1]),
    "a dead one that the ISR still names": (FOUR, {1}, set(), FEWER, [3, 1, 4], [3, 1], [3, 4]),
    "nothing where the last in sync is dead": (FOUR, {4}, set(), FEWER, [3, 1, 4], [4], [3, 1, 4]),
    "the drained one before the lagging one": (FOUR, set(), {4}, FEWER, [3, 1, 4], [3, 4], [3, 1]),
    "a preferred leader that lags": (FOUR, set(), set(), FEWER, [3, 1, 4], [1, 4], [1, 4]),
    "a preferred leader that is drained": (FOUR, set(), {3}, FEWER, [3, 1, 4], [3, 1, 4], [1, 4]),
    "not the last in sync, though drained": (
        FOUR,
        set(),
        {3},
        PlacementGoal(replication_factor=1),
        [3, 1, 4],
        [3],
        [3],
    ),
    "not one whose rack is needed": (("a", "a", "b", "c"), set(), set(), FEWER, [3, 1, 4], [3, 1], [3, 4]),
    "the lagging one of a rack": (
        ("a", "a", "b", "b"),
        set(),
        set(),
        PlacementGoal(fix_racks=True),
        [3, 1],
        [3],
        [3, 15],
    ),
    "the drained one of a rack": (
        ("a", "a", "b", "b"),
        set(),
        {1},
        PlacementGoal(fix_racks=True),
        [3, 1],
        [3],
        [3, 15],
    ),
    "any where no replica is known to lag": (FOUR, set(), set(), FEWER, [3, 1, 4], None, [3, 1]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_leaves(
    case: tuple[tuple[str | None, ...], set[int], set[int], PlacementGoal, list[int], list[int], list[int]],
) -> None:
    racks, dead, drained, question, replicas, isr, after = case
    brokers = brokers_of(racks, dead=frozenset(dead), excluded=frozenset(drained))
    rows = partitions_of([replicas, [4]], fixed=frozenset({1}), isr=None if isr is None else [isr, [4]])
    placement = place(brokers, rows, question)
    assert [broker for broker in placement.replicas[0].tolist() if broker != NO_BROKER] == after


def test_on_the_way_the_lagging_one_leaves_first() -> None:
    """Both leave; if 1 stayed longer, the first step would wait for it to be in sync."""
    for isr, steps in (([3], [[3, 4], [4, 15]]), ([1], [[4, 1], [4, 15]]), ([3, 1], [[3, 4], [4, 15]])):
        rows = partitions_of([[3, 1]], isr=[isr])
        placement = evaluate_given(brokers_of(FOUR), rows, np.array([[4, 15]]))
        planned = cut_into_waves(rows, placement, {}, WaveLimits(one_at_a_time=True))
        assert planned.after.T.tolist() == steps


def test_evenness_keeps_replicas_in_sync() -> None:
    """Broker 3 holds all first replicas; of the three partitions only the healthy one may give."""
    lists = [[3, 1], [3, 1], [3, 4]]
    placement = place(
        brokers_of(FOUR), partitions_of(lists, isr=[[3], [3], [3, 4]]), PlacementGoal(even=True, leaders=False)
    )
    assert [3 in row for row in placement.replicas.tolist()] == [True, True, False]
    placement = place(brokers_of(FOUR), partitions_of(lists), PlacementGoal(even=True, leaders=False))
    assert int(np.ptp(placement.brokers.replicas[1])) == 1
