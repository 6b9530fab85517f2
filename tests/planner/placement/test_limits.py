"""Optimality within limits, compared with the exact solver: `onto` brokers, and a maximum number of copies."""

from dataclasses import replace
from typing import Final

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.placement.racks import racks_spanned
from planner.placement.solve import place
from planner.placement.types import NO_BROKER, Ints, PlacementGoal
from tests.planner.placement.clusters import QUESTIONS, Case, a_tenth_more, brokers_of, cases, partitions_of
from tests.planner.placement.placement_oracle import choices, cost, loads, optimum, recipients, squares, uneven

MANY: Final = settings(max_examples=60)
ONTO: Final = tuple(PlacementGoal(even=True, onto=frozenset(ids)) for ids in ({4}, {1, 4}, {3, 15}, {3}))
FORCED: Final = tuple(question for question in QUESTIONS if not question.even and not question.replacements)
UNDONE: Final = -7


def _copies(before: Ints, after: Ints) -> list[int]:
    """Return the copies of each row."""
    pairs = zip(before.tolist(), after.tolist(), strict=True)
    return [len({*then} - {*earlier} - {NO_BROKER}) for earlier, then in pairs]


def _lacking(case: Case) -> int:
    """Return what the brokers of `onto` lack of an even share, with the remainder assigned to the fullest."""
    held = dict(zip(recipients(case), loads(case, case.partitions.replicas), strict=True))
    share, over = divmod(sum(held.values()), len(held))
    ranks = sorted(held, key=lambda broker: -held[broker])
    even = {broker: share + (rank < over) for rank, broker in enumerate(ranks)}
    return sum(max(even[broker] - held[broker], 0) for broker in held if broker in case.question.onto)


@MANY
@given(cases(ONTO), st.integers(0, 4))
def test_onto_brokers_fill_up_evenly(case: Case, most: int) -> None:
    options = choices(case)
    assume(options is not None and recipients(case) and sum(min(copies for _, copies in some) for some in options) == 0)
    lacking = _lacking(case)
    for limit in (None, most):
        placement = place(case.brokers, case.partitions, replace(case.question, max_moves=limit))
        allowed = lacking if limit is None else min(limit, lacking)
        reached = [uneven(loads(case, placement.replicas)), placement.copies]
        assert reached == optimum(options or [], recipients(case), squares, cost, most=allowed)
        assert set(placement.moves.target.tolist()) <= case.question.onto | {NO_BROKER}
        assert placement.lower_bound <= placement.copies


@MANY
@given(cases(FORCED), st.integers(0, 6))
def test_no_choice_of_partitions_would_complete_more(case: Case, most: int) -> None:
    options = choices(case)
    assume(options is not None and recipients(case))
    needed = [min(copies for _, copies in some) for some in options or []]
    placement = place(case.brokers, case.partitions, replace(case.question, max_moves=most))
    copies = _copies(case.partitions.replicas, placement.replicas)
    undone = [need > 0 and not made for need, made in zip(needed, copies, strict=True)]
    either = [
        [(frozenset[int](), need), (frozenset({UNDONE}), 0)] if need else [(frozenset[int](), 0)] for need in needed
    ]
    fewest = optimum(either, [UNDONE], lambda _, left, __: left[UNDONE], cost, most=most)
    assert [sum(undone), placement.copies] == fewest
    assert placement.lower_bound == placement.copies
    assert placement.left == sum(need for need, left in zip(needed, undone, strict=True) if left)
    as_they_are = [frozenset(some) - {NO_BROKER} for some in case.partitions.replicas.tolist()]
    rest = [
        [(earlier, 0)] if left else some for earlier, some, left in zip(as_they_are, options or [], undone, strict=True)
    ]
    assert uneven(loads(case, placement.replicas)) == optimum(rest, recipients(case), squares)[0]


@MANY
@given(cases((PlacementGoal(even=True),)), st.integers(0, 3))
def test_what_forced_changes_leave_of_the_budget_evens_out(case: Case, more: int) -> None:
    options = choices(case)
    assume(options is not None and recipients(case))
    forced = sum(min(copies for _, copies in some) for some in options or [])
    placement = place(case.brokers, case.partitions, replace(case.question, max_moves=forced + more))
    reached = [uneven(loads(case, placement.replicas)), placement.copies]
    assert reached == optimum(options or [], recipients(case), squares, cost, most=forced + more)


def test_fewest_copies_come_first_then_dead_replicas() -> None:
    partitions = partitions_of([[3, 1], [1], [3], [3], [4]])
    brokers = brokers_of((None,) * 6, emptied=frozenset({3, 1}), dead=frozenset({3}))
    placement = place(brokers, partitions, PlacementGoal(max_moves=3, leaders=False))
    assert [row for row in range(4) if row in placement.changed] == [1, 2, 3]
    placement = place(brokers, partitions, PlacementGoal(max_moves=2, leaders=False))
    assert (placement.changed.tolist(), placement.left) == ([2, 3], 3)


def test_brokers_that_are_uneven_already_only_give() -> None:
    """Balancing all brokers would take 6 copies, two of them between brokers that are not new."""
    lists = [[3]] * 10 + [[1]] * 2
    placement = place(brokers_of((None,) * 3), partitions_of(lists), PlacementGoal(even=True, onto=frozenset({4})))
    held = dict(zip(placement.brokers.names, placement.brokers.replicas[1].tolist(), strict=True))
    assert (held, placement.copies, placement.lower_bound) == ({"3": 6, "1": 2, "4": 4}, 4, 4)
    assert (
        placement.bound == "3 brokers share 12 replicas, 4 each and one more on 0; those that may take replicas lack 4"
    )
    assert place(brokers_of((None,) * 3), partitions_of(lists), PlacementGoal(even=True)).copies == 6


def test_a_tenth_more_brokers_take_exactly_their_share() -> None:
    brokers, partitions = a_tenth_more()
    placement = place(brokers, partitions, PlacementGoal(even=True, onto=frozenset(range(90, 100))))
    spans = [racks_spanned(some.T % 3) for some in (partitions.replicas, placement.replicas)]
    assert (placement.copies, placement.lower_bound, set(placement.moves.target.tolist())) == (
        1350,
        1350,
        set(range(90, 100)),
    )
    assert [int(np.ptp(held[1])) for held in (placement.brokers.replicas, placement.brokers.leaders)] == [0, 0]
    assert (spans[1] >= spans[0]).all()


def test_the_last_copies_of_a_budget_help_most() -> None:
    """No single path leads from the fullest broker, 3, to broker 9, but one leads from 4, which is then as full."""
    lists = [[1], [4, 3, 1], [3, 1, 4], [4], [3, 4], [3], [3], [4], [1, 3]]
    placement = place(
        brokers_of(("a", "b", "b", "b", None)), partitions_of(lists), PlacementGoal(even=True, max_moves=2)
    )
    held = dict(zip(placement.brokers.names, placement.brokers.replicas[1].tolist(), strict=True))
    assert (placement.copies, held) == (2, {"1": 4, "3": 5, "4": 4, "9": 1, "15": 1})
