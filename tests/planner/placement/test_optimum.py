"""The optimiser and the exact optimum of small clusters: fewest copies, then evenness; replicas and leaders."""

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner.placement.solve import place, spread_leaders
from planner.placement.types import NO_BROKER, PlacementBrokers, PlacementError, PlacementGoal, PlacementPartitions
from tests.planner.placement.clusters import QUESTIONS, Case, cases, padded
from tests.planner.placement.placement_oracle import (
    choices,
    cost,
    is_held,
    loads,
    optimum,
    recipients,
    spread,
    squares,
    uneven,
)

MANY: Final = settings(max_examples=60)
FORCED: Final = tuple(question for question in QUESTIONS if not question.even and not question.replacements)
EVEN: Final = tuple(question for question in QUESTIONS if question.even)


WITH_A_DEAD_BROKER: Final = Case(
    brokers=PlacementBrokers(
        ids=np.array([3, 1, 4, 15, 9]),
        racks=("a", "b", "c", "a", "b"),
        live=np.array([True, True, True, False, True]),
        target=np.array([False, True, True, False, True]),
        emptied=np.array([True, False, False, False, False]),
    ),
    partitions=PlacementPartitions(
        topic=np.array([0]), partition=np.array([0]), replicas=np.array([[3, 1, 4]]), movable=np.array([True])
    ),
    question=PlacementGoal(),
)
"""Rack a has a broker to be emptied and a dead one, so it is given up."""


def _copies(case: Case, lists: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> int:
    pairs = zip(case.partitions.replicas.tolist(), lists.tolist(), strict=True)
    return sum(len(set(after) - set(before) - {NO_BROKER}) for before, after in pairs)


@MANY
@given(cases(FORCED))
def test_forced_changes_are_minimal_then_even(case: Case) -> None:
    options = choices(case)
    assume(options is not None and recipients(case))
    placement = place(case.brokers, case.partitions, case.question)
    held = loads(case, placement.replicas)
    reached = [_copies(case, placement.replicas), uneven(held)]
    assert reached == optimum(options or [], recipients(case), cost, squares)
    assert (placement.copies, placement.lower_bound) == (reached[0], reached[0])


@MANY
@given(cases(EVEN))
def test_rebalance_is_even_then_minimal(case: Case) -> None:
    options = choices(case)
    assume(options is not None and recipients(case))
    placement = place(case.brokers, case.partitions, case.question)
    held = loads(case, placement.replicas)
    assert [uneven(held), _copies(case, placement.replicas)] == optimum(options or [], recipients(case), squares, cost)
    assert [max(held) - min(held)] == optimum(options or [], recipients(case), spread)
    assert placement.copies >= placement.lower_bound


@MANY
@given(cases(), st.booleans())
def test_leaders_are_even_with_fewest_changes(case: Case, reorder: bool) -> None:  # noqa: FBT001 - Hypothesis gives it
    case = replace(case, question=replace(case.question, reorder=reorder))
    assume(choices(case) is not None and recipients(case) and case.question.replication_factor is None)
    placement = place(case.brokers, case.partitions, case.question)
    may = set(recipients(case))
    options = []
    for row, (before, after) in enumerate(
        zip(case.partitions.replicas.tolist(), placement.replicas.tolist(), strict=True),
    ):
        home = before[0] if before[0] in after else NO_BROKER
        same = set(before) - {NO_BROKER} == set(after) - {NO_BROKER}
        fixed = not case.partitions.movable[row] or is_held(case, row) or after[0] not in may
        fixed |= same and not case.question.reorder
        leaders = [after[0]] if fixed else [broker for broker in after if broker in may]
        options.append([(frozenset({leader}), int(leader != home != NO_BROKER)) for leader in leaders])
    led = [int((placement.replicas[:, 0] == broker).sum()) for broker in recipients(case)]
    costs = sum(
        before[0] != after[0] and before[0] in after
        for before, after in zip(case.partitions.replicas.tolist(), placement.replicas.tolist(), strict=True)
    )
    assert [uneven(led), costs] == optimum(options, recipients(case), squares, cost)
    again = place(case.brokers, case.partitions, replace(case.question, reorder=True))
    kept = [row for row in range(len(options)) if set(placement.replicas[row]) == set(case.partitions.replicas[row])]
    assert placement.reorders == (0 if reorder else int((placement.replicas[kept, 0] != again.replicas[kept, 0]).sum()))
    assert sorted(placement.leaders_reordered.tolist()) == sorted(again.brokers.leaders[1].tolist())


@MANY
@given(cases())
@example(WITH_A_DEAD_BROKER)
def test_a_refusal_is_one_that_must_be(case: Case) -> None:
    possible = choices(Case(brokers=case.brokers, partitions=case.partitions, question=case.question)) is not None
    try:
        place(case.brokers, case.partitions, case.question)
    except PlacementError:
        assert not possible
    else:
        assert possible


@MANY
@given(cases((PlacementGoal(even=True),)))
def test_rebalance_within_a_budget_is_even(case: Case) -> None:
    options = choices(case)
    assume(options is not None and recipients(case) and sum(min(cost for _, cost in some) for some in options) == 0)
    for most in (0, 1, 2, 3):
        placement = place(case.brokers, case.partitions, PlacementGoal(even=True, max_moves=most))
        assert placement.copies <= most
        reached = [uneven(loads(case, placement.replicas)), placement.copies]
        assert reached == optimum(options or [], recipients(case), squares, cost, most=most)


@MANY
@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(1, 4), max_size=3).map(sorted)), max_size=6))
def test_drained_leaders_become_as_even_as_their_candidates_allow(rows: list[tuple[int, list[int]]]) -> None:
    """Broker 5 may not lead; a row is a leader and the candidates for it, none if the leader stays."""
    names = np.arange(len(rows)) // 2, np.arange(len(rows)) % 2
    able = np.array([1, 2, 3, 4])
    leaders = np.array([leader for leader, _ in rows], dtype=np.int64)
    after = spread_leaders(names, leaders, padded([some or [NO_BROKER] for _, some in rows]), able).tolist()
    choices_of_rows = [some or [leader] for leader, some in rows]
    assert all(leader in some for leader, some in zip(after, choices_of_rows, strict=True))
    everything = [uneven([chosen.count(broker) for broker in able]) for chosen in product(*choices_of_rows)]
    assert uneven([after.count(broker) for broker in able]) == min(everything)
    highest = min(max(chosen.count(broker) for broker in able) for chosen in product(*choices_of_rows))
    assert max(after.count(broker) for broker in able) == highest
