"""The lower bound on copies never exceeds the plan's or the exact solver's; and why brokers stay uneven."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from planner.placement.evaluation import fewest_copies
from planner.placement.solve import place
from planner.placement.types import Ints, PlacementBrokers, PlacementError, PlacementGoal, PlacementPartitions
from tests.planner.placement.clusters import QUESTIONS, Case, brokers_of, cases, partitions_of
from tests.planner.placement.placement_oracle import choices, loads, optimum, recipients, squares

MANY: Final = settings(max_examples=60)
EVEN: Final = tuple(question for question in QUESTIONS if question.even)
ONTO: Final = tuple(PlacementGoal(even=True, onto=frozenset(ids)) for ids in ({4}, {1, 4}, {3, 15}, {3}))
BUDGETS: Final = st.one_of(st.none(), st.integers(0, 5))


def _possible(case: Case) -> bool:
    """Whether the case is possible: `onto` is used only without brokers to empty."""
    return bool(recipients(case)) and not (case.question.onto and case.brokers.emptied.any())


@MANY
@given(cases(QUESTIONS + ONTO), BUDGETS, st.none() | st.lists(st.integers(0, 99), min_size=9, max_size=9))
def test_a_bound_never_exceeds_the_moves(case: Case, most: int | None, sizes: list[int] | None) -> None:
    assume(_possible(case))
    weights = None if sizes is None else np.array(sizes[: len(case.partitions.topic)])
    question = replace(case.question, max_moves=most)
    try:
        placement = place(case.brokers, replace(case.partitions, weights=weights), question)
    except PlacementError:
        return
    assert placement.lower_bound <= placement.copies
    is_uneven = np.ptp(loads(case, placement.replicas)) > 1
    assert bool(placement.uneven) == is_uneven or sizes is not None


def _no_less_even(than: int) -> Callable[[cp_model.CpModel, dict[int, Any], Any], Any]:
    """Return the fewest copies of any placement with loads as even as this."""

    def objective(model: cp_model.CpModel, held: dict[int, Any], total: object) -> object:
        model.add(squares(model, held, None) <= than)
        return total

    return objective


@MANY
@given(cases(EVEN + ONTO), BUDGETS)
def test_no_placement_as_even_copies_fewer_than_the_bound(case: Case, most: int | None) -> None:
    """With racks, held and fixed partitions, and limits, as drawn by `cases`."""
    assume(_possible(case))
    options = choices(case)
    assume(options is not None)
    placement = place(case.brokers, case.partitions, replace(case.question, max_moves=most))
    assume(not placement.left)
    reached = sum(load * load for load in loads(case, placement.replicas))
    assert placement.lower_bound <= optimum(options or [], recipients(case), _no_less_even(reached))[0]


@MANY
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans()), min_size=1, max_size=3))
def test_fewest_copies_against_all_loads(brokers: list[tuple[int, int, bool]]) -> None:
    before, fresh = [held for held, *_ in brokers], [may for *_, may in brokers]
    after = [max(held + (gain - 2 if may else -gain), 0) for held, gain, may in brokers]
    least_uneven = sum(load * load for load in after)
    options = [
        sum(max(load - held, 0) for load, held in zip(some, before, strict=True))
        for some in product(*(range(sum(after) + 1) if may else range(held + 1) for held, _, may in brokers))
        if sum(some) == sum(after) and sum(load * load for load in some) <= least_uneven
    ]
    assert fewest_copies(np.array(before), np.array(after), np.array(fresh)) == min(options)


def test_bound_with_racks_of_unequal_size() -> None:
    """One broker in rack a, three in b: each partition keeps both racks, so broker 3 keeps all its replicas."""
    partitions = partitions_of([[3, 1]] * 30, per_topic=30)
    placement = place(brokers_of(("a", "b", "b", "b")), partitions, PlacementGoal(even=True))
    assert (placement.copies, placement.lower_bound) == (20, 20)
    assert placement.bound == "fewer copies cannot give 4 brokers 10 to 30 replicas each"
    assert placement.uneven == "broker 3 cannot give to others: of 30 replicas 30 in partitions that would lose a rack"


def _cluster(brokers: int, lists: Ints, *, free: int) -> tuple[PlacementBrokers, PlacementPartitions]:
    everyone = np.ones(brokers, dtype=bool)
    ids = np.arange(brokers)
    rows = np.arange(len(lists))
    partitions = PlacementPartitions(topic=rows // 100, partition=rows % 100, replicas=lists, movable=rows < free)
    return PlacementBrokers(
        ids=ids, racks=(None,) * brokers, live=everyone, target=everyone, emptied=~everyone
    ), partitions


def test_bound_with_fixed_partitions() -> None:
    """All replicas are on half of the brokers; 100 of 2,000 partitions may move, so 1,000 copies are not a bound."""
    rows = np.arange(2000)
    brokers, partitions = _cluster(20, (rows % 10)[:, None], free=100)
    placement = place(brokers, partitions, PlacementGoal(even=True))
    assert (placement.copies, placement.lower_bound) == (100, 100)
    assert placement.uneven == (
        "brokers 0, 1, 2, 3, 4 and 5 more cannot give to others: of 1900 replicas 1900 in partitions that may not "
        "change"
    )


# racks, lists, rows that may not change, goal -> copies, bound, reason
Example = tuple[tuple[str | None, ...], list[list[int]], set[int], PlacementGoal, int, int, str]
THREE: Final = (None, None, None)
EXAMPLES: Final[dict[str, Example]] = {
    "nothing may be copied": (
        THREE,
        [[3]] * 9,
        set(),
        PlacementGoal(even=True, max_moves=0),
        0,
        0,
        "--max-moves 0 allows no more copies that would help",
    ),
    "some may": (
        THREE,
        [[3]] * 9,
        set(),
        PlacementGoal(even=True, max_moves=4),
        4,
        4,
        "--max-moves 4 allows no more copies that would help",
    ),
    "a broker holds a partition once": (
        THREE,
        [[3, 1, 4]] * 3 + [[3]] * 3,
        {3, 4},
        PlacementGoal(even=True),
        1,
        1,
        (
            "broker 3 cannot give to others: of 5 replicas 2 in partitions that may not change, 3 in partitions that "
            "have a replica on each of the others"
        ),
    ),
    "the emptiest cannot take": (
        ("a", "b", "c", None),
        [[3, 1, 4]] * 3,
        set(),
        PlacementGoal(even=True),
        0,
        0,
        "broker 15 cannot take from others: of 9 replicas 9 in partitions that would lose a rack",
    ),
    "only the chosen brokers take": (
        THREE,
        [[3]] * 10 + [[1]],
        set(),
        PlacementGoal(even=True, onto=frozenset({4})),
        3,
        3,
        "only broker 4 may take replicas, up to an even share; --rebalance balances all brokers",
    ),
    "not requested": (
        THREE,
        [[3]] * 9,
        set(),
        PlacementGoal(fix_racks=True),
        0,
        0,
        "only required moves are planned; use --rebalance to even out the rest",
    ),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_why_brokers_stay_uneven(example: Example) -> None:
    racks, lists, fixed, question, copies, bound, reason = example
    placement = place(brokers_of(racks), partitions_of(lists, fixed=frozenset(fixed)), question)
    assert (placement.copies, placement.lower_bound, placement.uneven) == (copies, bound, reason)


def test_reason_names_replicas_in_sync_that_stay() -> None:
    """Broker 1, drained, lags in every partition, so broker 3, in sync, must keep them although 4 holds nothing."""
    brokers = replace(brokers_of(THREE), target=np.array([True, False, True]))
    placement = place(brokers, partitions_of([[3, 1]] * 4, isr=[[3]] * 4), PlacementGoal(even=True))
    assert placement.copies == 0
    assert placement.uneven == "broker 3 cannot give to others: of 4 replicas 4 in sync in partitions that lack one"


def test_undone_copies_are_not_in_the_bound() -> None:
    placement = place(brokers_of(THREE, emptied=frozenset({3})), partitions_of([[3]] * 9), PlacementGoal(max_moves=4))
    assert (placement.copies, placement.lower_bound, placement.left) == (4, 4, 5)
    assert placement.uneven == ""
    placement = place(
        brokers_of(THREE, emptied=frozenset({3})), partitions_of([[3]] * 9 + [[1]] * 2), PlacementGoal(max_moves=0)
    )
    assert (placement.copies, placement.lower_bound, placement.left) == (0, 0, 9)
    assert placement.uneven == "--max-moves 0 leaves 9 replicas where they may not stay"
