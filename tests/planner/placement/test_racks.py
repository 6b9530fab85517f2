"""Spread over racks: the most of a partition in one rack grows only if necessary, and shrinks on request.

Besides the exact solver of `exact`, which has the same limit, these are numbers of two sites with replication factor 4.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.placement.plan_figures import figures_of
from planner.placement.racks import NO_RACK, lowest_crowding, max_independent, max_per_rack
from planner.placement.solve import evaluate_given, place
from planner.placement.types import (
    NO_BROKER,
    Placement,
    PlacementBrokers,
    PlacementError,
    PlacementGoal,
    PlacementPartitions,
)
from planner.placement.waves import WaveLimits, cut_into_waves
from tests.planner.placement.clusters import PARTITIONS, RACK_OF, Case, cases, padded, two_in_each_rack
from tests.planner.placement.placement_oracle import crowding as most_in_one
from tests.planner.placement.placement_oracle import is_held, recipients

MANY: Final = settings(max_examples=80)


EVEN: Final = [two_in_each_rack(number) for number in range(PARTITIONS)]
CROWDED: Final = [[1, 2, 3, 4 + number % 3] for number in range(PARTITIONS)]


def _brokers(emptied: frozenset[int] = frozenset(), dead: frozenset[int] = frozenset()) -> PlacementBrokers:
    ids = np.array(sorted(RACK_OF))
    gone, live = np.isin(ids, list(emptied)), ~np.isin(ids, list(dead))
    return PlacementBrokers(
        ids=ids, racks=tuple(RACK_OF[broker] for broker in ids.tolist()), live=live, target=live & ~gone, emptied=gone
    )


def _partitions(lists: list[list[int]]) -> PlacementPartitions:
    rows = np.arange(len(lists))
    return PlacementPartitions(
        topic=np.zeros_like(rows), partition=rows, replicas=np.array(lists), movable=np.ones(len(rows), dtype=bool)
    )


def _spreads(placement: Placement) -> Counter[tuple[int, ...]]:
    """Count the partitions by their replicas in the two racks, the larger number first."""
    counts = (
        Counter(RACK_OF[broker] for broker in replicas if broker != NO_BROKER)
        for replicas in placement.replicas.tolist()
    )
    return Counter(tuple(sorted(count.values(), reverse=True)) for count in counts)


ADD: Final = PlacementGoal(even=True, onto=frozenset({7}))
REBALANCE: Final = PlacementGoal(even=True, reorder=True)
REPLACE: Final = PlacementGoal(replacements=((6, 7),))

# lists before, brokers emptied, dead, goal -> spreads, copies, [worse, uneven, fixable]
Example = tuple[list[list[int]], set[int], set[int], PlacementGoal, dict[tuple[int, ...], int], int, list[object]]
EXAMPLES: Final[dict[str, Example]] = {
    "--remove-brokers 6": (EVEN, {6}, set(), PlacementGoal(), {(2, 2): 36}, 24, [0, 0, [0, 0]]),
    "--add-brokers 7": (EVEN, set(), set(), ADD, {(2, 2): 36}, 18, [0, 0, [0, 0]]),
    "--rebalance": (EVEN, set(), set(), REBALANCE, {(2, 2): 36}, 18, [0, 0, [0, 0]]),
    "--replace 6=7": (EVEN, {6}, set(), REPLACE, {(2, 2): 36}, 24, [0, 0, [0, 0]]),
    "--replace of a dead 6": (EVEN, {6}, {6}, REPLACE, {(2, 2): 36}, 24, [0, 0, [0, 0]]),
    "--fix-racks": (CROWDED, set(), set(), PlacementGoal(fix_racks=True), {(2, 2): 36}, 36, [0, 0, [36, 0]]),
    "--fix-racks where nothing is to be fixed": (
        EVEN,
        set(),
        set(),
        PlacementGoal(fix_racks=True),
        {(2, 2): 36},
        0,
        [0, 0, [0, 0]],
    ),
    "--fix-racks with one broker left in b": (
        CROWDED,
        {5, 6},
        set(),
        PlacementGoal(fix_racks=True),
        {(3, 1): 36},
        24,
        [0, 24, [0, 0]],
    ),
    "b has one broker left": (EVEN, {5, 6}, set(), PlacementGoal(), {(3, 1): 36}, 48, [36, 0, [0, 0]]),
    "--replication-factor 4": (
        [replicas[1:3] for replicas in EVEN],
        set(),
        set(),
        PlacementGoal(replication_factor=4),
        {(2, 2): 36},
        72,
        [0, 0, [0, 0]],
    ),
    "--replication-factor 2": (
        CROWDED,
        set(),
        set(),
        PlacementGoal(replication_factor=2),
        {(1, 1): 36},
        0,
        [0, 0, [36, 0]],
    ),
    "--replication-factor 5": (
        EVEN,
        set(),
        set(),
        PlacementGoal(replication_factor=5),
        {(3, 2): 36},
        36,
        [0, 0, [0, 0]],
    ),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_two_sites_with_replication_factor_four(example: Example) -> None:
    lists, emptied, dead, question, spreads, copies, figures = example
    brokers = _brokers(frozenset(emptied), frozenset(dead))
    placement = place(brokers, _partitions(lists), question)
    most = figures_of(placement, set(brokers.ids[brokers.target].tolist()))["most_in_one_rack"]
    assert (dict(_spreads(placement)), placement.copies) == (spreads, copies)
    assert [most["worse"], most["uneven"], most["fixable"]] == figures


# list before, list given -> most in one rack, [worse, avoidable, fixable]; a holds 1, 2, 3 and 7, b holds 4, 5 and 6
GIVEN: Final[dict[str, tuple[list[int], list[int], list[int], list[object]]]] = {
    "4 to 5, 3+2": ([1, 4, 2, 5], [1, 4, 2, 5, 6], [2, 3], [0, 0, [0, 0]]),
    "4 to 6, 3+3": ([1, 4, 2, 5], [1, 4, 2, 5, 3, 6], [2, 3], [0, 0, [0, 0]]),
    "4 to 6, 4+2": ([1, 4, 2, 5], [1, 4, 2, 5, 3, 7], [2, 4], [0, 1, [0, 1]]),
    "4 to 7, 4+3": ([1, 4, 2, 5], [1, 4, 2, 5, 3, 6, 7], [2, 4], [0, 0, [0, 0]]),
    "6 to 4, 3+1": ([1, 4, 2, 5, 3, 6], [1, 2, 3, 4], [3, 3], [0, 1, [0, 1]]),
    "6 to 4, 2+2": ([1, 4, 2, 5, 3, 6], [1, 4, 2, 5], [3, 2], [0, 0, [0, 0]]),
    "4 to 3, 3+1 to 2+1": ([1, 2, 3, 4], [1, 2, 4], [3, 2], [0, 0, [1, 0]]),
    "5 to 4, 4+1 to 3+1": ([1, 2, 3, 7, 4], [1, 2, 3, 4], [4, 3], [0, 0, [1, 1]]),
    "2 to 4, 2+2": ([1, 4], [1, 4, 2, 5], [1, 2], [0, 0, [0, 0]]),
    "2 to 3, 2+1": ([1, 4], [1, 4, 2], [1, 2], [0, 0, [0, 0]]),
    "same number, 3+1": ([1, 4, 2, 5], [1, 2, 3, 4], [2, 3], [0, 1, [0, 1]]),
}


@pytest.mark.parametrize("example", GIVEN.values(), ids=GIVEN)
def test_given_lists_are_judged_by_their_own_replication_factor(
    example: tuple[list[int], list[int], list[int], list[object]],
) -> None:
    before, after, in_one, figures = example
    brokers = _brokers()
    placement = evaluate_given(brokers, _partitions([before]), padded([after]))
    most = figures_of(placement, set(brokers.ids.tolist()))["most_in_one_rack"]
    assert (most["most"], [most["worse"], most["avoidable"], most["fixable"]]) == (in_one, figures)


def _least_of(case: Case, factor: int) -> int:
    """The least in one rack of so many replicas, by trying all sets of brokers that may hold some."""
    allowed = case.brokers.ids[case.brokers.target & case.brokers.live & ~case.brokers.emptied].tolist()
    return max(1, min(most_in_one(case, some) for some in combinations(allowed, min(factor, len(allowed)))))


def _judge(case: Case, lists: list[tuple[set[int], set[int]]]) -> dict[str, object]:
    """The figures of racks, partition by partition, from the definition."""
    racks = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    usable = case.brokers.ids[case.brokers.target & case.brokers.live & ~case.brokers.emptied].tolist()
    named = max(len({racks[broker] for broker in usable} - {None}), 1)
    judged: Counter[str] = Counter()
    for before, after in lists:
        now, then = most_in_one(case, before), most_in_one(case, after)
        least_now, least_then = _least_of(case, len(before)), _least_of(case, len(after))
        judged["fixable now"] += now > least_now
        judged["fixable"] += then > least_then
        spans = [len({racks.get(broker) for broker in some} - {None}) for some in (before, after)]
        judged["fewer"] += spans[1] < min(spans[0], len(after))
        if before != after:
            avoidable = then - least_then > max(now - least_now, 0)
            judged["avoidable"] += avoidable
            judged["worse"] += not avoidable and then > max(now, -(-len(after) // named))
    return {
        "worse": judged["worse"],
        "avoidable": judged["avoidable"],
        "fixable": [judged["fixable now"], judged["fixable"]],
        "fewer": judged["fewer"],
    }


def _figures(placement: Placement) -> dict[str, object]:
    figures = figures_of(placement, set())
    most = figures["most_in_one_rack"]
    return {name: most[name] for name in ("worse", "avoidable", "fixable")} | {"fewer": figures["fewer_racks"]}


def _pairs(case: Case, placement: Placement) -> list[tuple[set[int], set[int]]]:
    lists = zip(case.partitions.replicas.tolist(), placement.replicas.tolist(), strict=True)
    return [({*earlier} - {NO_BROKER}, {*then} - {NO_BROKER}) for earlier, then in lists]


@MANY
@given(cases(), st.none() | st.integers(1, 4), st.none() | st.integers(0, 4))
def test_figures_of_racks_are_those_of_trying_all(case: Case, factor: int | None, most: int | None) -> None:
    """Of every question, also where the replication factor changes and --max-moves leaves some as they are."""
    question = replace(case.question, max_moves=most)
    if factor is not None:
        question = PlacementGoal(replication_factor=factor, max_moves=most)
    try:
        placement = place(case.brokers, case.partitions, question)
    except PlacementError:
        return
    assert _figures(placement) == _judge(case, _pairs(case, placement))


@MANY
@given(cases(), st.data())
def test_figures_of_racks_of_given_lists_are_those_of_trying_all(case: Case, data: st.DataObject) -> None:
    case = replace(case, brokers=replace(case.brokers, emptied=np.zeros_like(case.brokers.emptied)))
    rows = len(case.partitions.topic)
    one = st.lists(st.sampled_from(case.brokers.ids.tolist()), min_size=1, max_size=5, unique=True)
    given_lists = data.draw(st.lists(one, min_size=rows, max_size=rows))
    placement = evaluate_given(case.brokers, case.partitions, padded(given_lists))
    assert _figures(placement) == _judge(case, _pairs(case, placement))


def test_a_rebalance_spreads_crowded_partitions() -> None:
    spreads = _spreads(place(_brokers(), _partitions(CROWDED), REBALANCE))
    assert spreads[2, 2] >= PARTITIONS // 2
    assert spreads.keys() == {(2, 2), (3, 1)}


def test_why_replicas_move_is_said() -> None:
    placement = place(_brokers(), _partitions(CROWDED), PlacementGoal(fix_racks=True))
    assert all(reason.startswith("most in one rack 3 → 2: ") for reason in placement.reasons)


def _least(case: Case, row: int, factor: int) -> int:
    """Return the lowest number in one rack on brokers that this row may use, by trying all of them."""
    before = set(case.partitions.replicas[row].tolist()) - {NO_BROKER}
    live = set(case.brokers.ids[case.brokers.live & ~case.brokers.emptied].tolist())
    allowed = sorted(set(recipients(case)) | before & live)
    return min(most_in_one(case, some) for some in combinations(allowed, factor))


@MANY
@given(cases(), st.none() | st.integers(0, 4), st.none() | st.lists(st.integers(0, 99), min_size=9, max_size=9))
def test_no_rack_gets_more_than_necessary(case: Case, most: int | None, sizes: list[int] | None) -> None:
    """With limits and sizes, too; `--fix-racks` reaches the lowest number."""
    weights = None if sizes is None else np.array(sizes[: len(case.partitions.topic)])
    question = replace(case.question, max_moves=most)
    try:
        placement = place(case.brokers, replace(case.partitions, weights=weights), question)
    except PlacementError:
        return
    for row, (earlier, becomes) in enumerate(
        zip(case.partitions.replicas.tolist(), placement.replicas.tolist(), strict=True)
    ):
        if earlier == becomes[: len(earlier)] and set(becomes[len(earlier) :]) <= {NO_BROKER}:
            continue
        before, after = ({*some} - {NO_BROKER} for some in (earlier, becomes))
        least = _least(case, row, len(after))
        assert most_in_one(case, after) <= max(most_in_one(case, before), least)
        if question.fix_racks and not question.even and most is None and not is_held(case, row):
            assert most_in_one(case, after) == least


@MANY
@given(cases())
def test_intermediate_lists_crowd_no_rack(case: Case) -> None:
    try:
        placement = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    planned = cut_into_waves(case.partitions, placement, rack_of, WaveLimits(one_at_a_time=True))
    for row, then in zip(planned.row.tolist(), planned.after.T.tolist(), strict=True):
        ends = (case.partitions.replicas[row].tolist(), placement.replicas[row].tolist())
        limit = max(most_in_one(case, {*end} - {NO_BROKER}) for end in ends)
        assert most_in_one(case, {*then} - {NO_BROKER}) <= limit


RACKS: Final = st.lists(st.sampled_from([0, 1, 2, NO_RACK]), max_size=6)


@MANY
@given(RACKS, st.integers(1, 5), st.integers(0, 3), st.integers(1, 4))
def test_max_independent_against_all_subsets(racks: list[int], factor: int, need: int, limit: int) -> None:
    """A set fits if replicas in new racks could extend it so that it spans `need` racks."""
    need = min(need, factor)

    def fits(some: tuple[int, ...]) -> bool:
        named = Counter(rack for rack in some if rack != NO_RACK)
        lacking = max(need - len(named), 0)
        return len(some) + lacking <= factor and max(named.values(), default=0) <= limit

    sizes = [len(some) for size in range(len(racks) + 1) for some in combinations(racks, size) if fits(some)]
    column = np.array(racks, dtype=np.int64).reshape(-1, 1)
    held = np.ones(column.shape, dtype=bool)
    kept = max_independent(column, held, *(np.array([number]) for number in (factor, need, limit)))
    assert kept.tolist() == [max(sizes)]
    assert max_per_rack(column).tolist() == [max(Counter(r for r in racks if r != NO_RACK).values(), default=0)]


@MANY
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 5),
)
def test_lowest_crowding_against_all_lists(racks: list[tuple[int, int]], elsewhere: int, more: int) -> None:
    options = product(*(range(room + 1) for _, room in racks), range(elsewhere + 1))
    reached = [
        max(1, *(held + added for (held, _), added in zip(racks, option, strict=False)))
        for option in options
        if sum(option) == more
    ]
    held, room = (np.array([[pair[n]] for pair in racks]) for n in (0, 1))
    if reached:
        assert lowest_crowding(held, room, np.array([elsewhere]), np.array([more])).tolist() == [min(reached)]
