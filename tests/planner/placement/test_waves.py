"""Waves: every move once, in order, within the limits, and back again."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.solve import place
from planner.placement.types import NO_BROKER, Placement, PlacementError, PlacementGoal, PlacementPartitions
from planner.placement.waves import WaveLimits, Waves, cut_into_waves, fewest_waves
from tests.planner.placement.clusters import Case, brokers_of, cases, padded, partitions_of

Lists = list[list[int]]
Step = tuple[int, int, list[int], list[int]]
CAPS: Final = st.builds(WaveLimits, moves_per_broker=st.sampled_from([None, 1, 2]), one_at_a_time=st.booleans())
MANY: Final = settings(max_examples=100)


def _list(replicas: list[int]) -> list[int]:
    return [broker for broker in replicas if broker != NO_BROKER]


def _lists(replicas: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Lists:
    return [_list(some) for some in replicas.tolist()]


def _steps(planned: Waves) -> list[Step]:
    """Return wave, row, before and after of each step, by wave and then row."""
    lists = (some.T.tolist() for some in (planned.before, planned.after))
    rows = zip(planned.wave.tolist(), planned.row.tolist(), *lists, strict=True)
    return sorted((wave, row, _list(before), _list(after)) for wave, row, before, after in rows)


def _run(lists: Lists, planned: Waves) -> Lists:
    """Apply the waves; fail if a step does not find its expected list."""
    lists = list(lists)
    steps = _steps(planned)
    assert len({(wave, row) for wave, row, *_ in steps}) == len(steps)
    for _, row, before, after in steps:
        assert lists[row] == before
        lists[row] = after
    return lists


def _racks(case: Case, replicas: list[int]) -> int:
    rack_of = _rack_of(case)
    return len({rack_of.get(broker) for broker in replicas} - {None})


def _rack_of(case: Case) -> dict[int, str | None]:
    return dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))


def _placement(case: Case) -> Placement | None:
    try:
        return place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return None


@MANY
@given(cases(), CAPS)
def test_waves_lead_there_and_back(case: Case, caps: WaveLimits) -> None:
    placement = _placement(case)
    if placement is None:
        return
    planned = cut_into_waves(case.partitions, placement, _rack_of(case), caps)
    before, after = _lists(case.partitions.replicas), _lists(placement.replicas)
    assert _run(before, planned) == after
    assert _run(after, planned.inverse()) == before
    assert _steps(planned.inverse().inverse()) == _steps(planned)
    assert (sum(planned.moves), planned.count >= fewest_waves(placement, caps)) == (placement.copies, True)


@MANY
@given(cases(), CAPS)
def test_no_wave_exceeds_a_limit(case: Case, caps: WaveLimits) -> None:
    placement = _placement(case)
    if placement is None:
        return
    planned = cut_into_waves(case.partitions, placement, _rack_of(case), caps)
    most: list[tuple[int, int, int]] = []
    steps = [(wave, {*after} - {*before}, {*before} - {*after}) for wave, _, before, after in _steps(planned)]
    for number in range(planned.count):
        pairs = [(comes, goes) for wave, comes, goes in steps if wave == number]
        came = Counter(broker for comes, _ in pairs for broker in comes)
        went = Counter(broker for comes, goes in pairs for broker in goes if comes)
        most.append((came.total(), max(came.values(), default=0), max(went.values(), default=0)))
        assert all(len(comes) <= 1 for comes, _ in pairs) or not caps.one_at_a_time
    assert list(zip(planned.moves, planned.max_incoming, planned.max_outgoing, strict=True)) == most
    assert max((max(into, out) for _, into, out in most), default=0) <= (caps.moves_per_broker or 99)


@MANY
@given(cases(), CAPS)
def test_lists_on_the_way_keep_the_rules(case: Case, caps: WaveLimits) -> None:
    placement = _placement(case)
    if placement is None:
        return
    before, after = _lists(case.partitions.replicas), _lists(placement.replicas)
    for _, row, _, then in _steps(cut_into_waves(case.partitions, placement, _rack_of(case), caps)):
        ends = before[row], after[row]
        assert len(set(then)) == len(then)
        assert len(then) >= min(map(len, ends))
        assert set(then) <= {*ends[0], *ends[1]}
        assert _racks(case, then) >= min(_racks(case, some) for some in ends)


@MANY
@given(cases(), CAPS, st.randoms(use_true_random=False))
def test_waves_are_independent_of_row_order(case: Case, caps: WaveLimits, chance: Random) -> None:
    order = list(range(len(case.partitions.topic)))
    chance.shuffle(order)
    known = () if case.partitions.in_sync is None else ("in_sync",)
    columns = ("topic", "partition", "replicas", "movable", *known)
    shuffled = replace(case.partitions, **{name: getattr(case.partitions, name)[order] for name in columns})
    placement, again = _placement(case), _placement(replace(case, partitions=shuffled))
    if placement is None or again is None:
        assert placement is again
        return
    one, other = (
        cut_into_waves(case.partitions, placement, _rack_of(case), caps),
        cut_into_waves(shuffled, again, _rack_of(case), caps),
    )
    assert _named(case.partitions, one) == _named(shuffled, other)


def _named(partitions: PlacementPartitions, planned: Waves) -> list[tuple[int, ...]]:
    names = zip(partitions.topic[planned.row].tolist(), partitions.partition[planned.row].tolist(), strict=True)
    lists = zip(planned.wave.tolist(), planned.before.T.tolist(), planned.after.T.tolist(), strict=True)
    return [(*name, *step) for name, step in zip(names, lists, strict=True)]


def test_one_broker_fills_at_two_a_wave() -> None:
    partitions = partitions_of([[3], [3], [3], [1]])
    placement = place(brokers_of((None,) * 3, emptied=frozenset({3, 1})), partitions, PlacementGoal())
    planned = cut_into_waves(partitions, placement, {}, WaveLimits(moves_per_broker=2))
    assert _steps(planned) == [(0, 0, [3], [4]), (0, 1, [3], [4]), (1, 2, [3], [4]), (1, 3, [1], [4])]
    assert fewest_waves(placement, WaveLimits(moves_per_broker=2)) == planned.count == 2


# before, after, racks of 0 to 5, intermediate lists
Way = tuple[list[int], list[int], str, Lists]
WAYS: Final[dict[str, Way]] = {
    "followers go first": ([0, 1, 2], [3, 4, 5], "aaaaaa", [[0, 1, 3], [0, 4, 3], [3, 4, 5]]),
    "no rack is lost on the way": ([0, 1], [2, 3], "abab", [[0, 3], [2, 3]]),
    "who stays, stays": ([0, 1, 2], [4, 1, 5], "abcabc", [[0, 1, 5], [4, 1, 5]]),
    "a longer list takes one more a step": ([0, 1], [0, 2, 3, 4], "aaaaaa", [[0, 2], [0, 2, 3], [0, 2, 3, 4]]),
    "a shorter one drops with the last": ([0, 1, 2, 3], [4, 5], "aaaaaa", [[0, 1, 2, 4], [4, 5]]),
    "what only drops is one step": ([0, 1, 2], [2], "aaaaaa", [[2]]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_replica_at_a_time(way: Way) -> None:
    before, after, racks, expected = way
    partitions = partitions_of([before])
    empty = np.array([], dtype=np.int64)
    placement = replace(place(brokers_of(("a",) * 6), partitions, PlacementGoal()), replicas=padded([after]))
    placement = replace(
        placement, changed=np.array([0]), moves=replace(placement.moves, row=empty, source=empty, target=empty)
    )
    planned = cut_into_waves(partitions, placement, dict(enumerate(racks)), WaveLimits(one_at_a_time=True))
    assert [then for *_, then in _steps(planned)] == expected
    assert _steps(planned.inverse()) == [
        (len(expected) - 1 - wave, row, then, earlier) for wave, row, earlier, then in reversed(_steps(planned))
    ]


def test_nothing_to_move_is_no_wave() -> None:
    partitions = partitions_of([[3]])
    placement = place(brokers_of((None,) * 3), partitions, PlacementGoal())
    for caps in (WaveLimits(), WaveLimits(moves_per_broker=1, one_at_a_time=True)):
        planned = cut_into_waves(partitions, placement, {}, caps)
        assert (planned.count, planned.moves, planned.max_incoming, fewest_waves(placement, caps)) == (0, [], [], 0)


def test_no_room_at_all_is_an_error() -> None:
    partitions = partitions_of([[3]])
    placement = place(brokers_of((None,) * 3), partitions, PlacementGoal())
    with pytest.raises(PlacementError, match="at most 0 moves"):
        cut_into_waves(partitions, placement, {}, WaveLimits(moves_per_broker=0))
