"""Waves: every move once, in order, within the caps, and back again."""

from collections import Counter
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.problem import NOBODY, PlacementError, Question
from planner.placement.solve import place
from planner.placement.waves import Caps, Wave, fewest_waves, waves
from tests.planner.placement.clusters import Case, brokers_of, cases, partitions_of

Lists = list[tuple[int, ...]]
CAPS: Final = st.builds(Caps, moves_per_broker=st.sampled_from([None, 1, 2]), one_at_a_time=st.booleans())


def _run(lists: Lists, planned: tuple[Wave, ...]) -> Lists:
    """Apply the waves; fails where a step does not find what it expects."""
    lists = list(lists)
    for wave in planned:
        assert len({step.row for step in wave.steps}) == len(wave.steps)
        for step in wave.steps:
            assert lists[step.row] == step.before
            lists[step.row] = step.after
    return lists


def _tuples(padded: list[list[int]]) -> Lists:
    return [tuple(broker for broker in replicas if broker != NOBODY) for replicas in padded]


@settings(deadline=None, max_examples=200)
@given(cases(), CAPS)
def test_waves_keep_the_caps_lead_there_and_back(case: Case, caps: Caps) -> None:
    try:
        found = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    planned = waves(case.partitions.replicas, found, rack_of, caps)
    before, after = _tuples(case.partitions.replicas.tolist()), _tuples(found.replicas.tolist())
    assert _run(before, planned) == after
    assert _run(after, tuple(wave.inverse() for wave in reversed(planned))) == before
    assert len(planned) >= fewest_waves(found, caps)
    for wave in planned:
        steps = [step for step in wave.steps if step.arriving]
        came = Counter(broker for step in steps for broker in step.arriving)
        went = Counter(broker for step in steps for broker in step.leaving)
        assert max([*came.values(), *went.values(), 0]) <= (caps.moves_per_broker or 99)
        for step in wave.steps:
            racks = [len({rack_of[b] for b in some} - {None}) for some in (before[step.row], step.after)]
            assert racks[1] >= min(racks[0], len(after[step.row]))
            assert len(step.arriving) <= 1 or not caps.one_at_a_time
            assert len(set(step.after)) == len(step.after)


def test_one_broker_fills_at_two_a_wave() -> None:
    partitions = partitions_of([[3], [3], [3], [1]])
    found = place(brokers_of((None,) * 3, emptied=frozenset({3, 1})), partitions, Question())
    planned = waves(partitions.replicas, found, {}, Caps(moves_per_broker=2))
    assert [[(step.row, step.before, step.after) for step in wave.steps] for wave in planned] == [
        [(0, (3,), (4,)), (1, (3,), (4,))],
        [(2, (3,), (4,)), (3, (1,), (4,))],
    ]
    assert fewest_waves(found, Caps(moves_per_broker=2)) == 2
