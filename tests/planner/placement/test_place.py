"""Placement: worked examples of every question, and what must hold whatever the cluster looks like."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings

from planner.placement.problem import NOBODY, Partitions, Placement, PlacementError, Question
from planner.placement.solve import place
from tests.planner.placement.clusters import Case, brokers_of, cases, partitions_of
from tests.planner.placement.exact import is_held

MANY: Final = settings(deadline=None, max_examples=80)
FOUR: Final = (None,) * 4
"""Brokers 3, 1, 4 and 15, without racks."""


def _lists(found: Placement) -> list[list[int]]:
    return [[broker for broker in replicas if broker != NOBODY] for replicas in found.replicas.tolist()]


# racks, emptied, question, before, after, copies, reasons
Example = tuple[tuple[str | None, ...], set[int], Question, list[list[int]], list[list[int]], int, tuple[str, ...]]
EXAMPLES: Final[dict[str, Example]] = {
    "a broker is emptied, its place in the list kept": (
        FOUR,
        {3},
        Question(leaders=False),
        [[3, 1], [4, 15]],
        [[4, 1], [4, 15]],
        1,
        ("empties 3: 3 → 4; holds 3: 1 → 0, 4: 1 → 2; 4 leads instead of 3; leads 3: 1 → 0, 4: 1 → 2",),
    ),
    "and leaders are evened out, rather where a partition changes anyway": (
        FOUR,
        {3},
        Question(),
        [[3, 1], [4, 15]],
        [[1, 4], [4, 15]],
        1,
        ("empties 3: 3 → 4; holds 3: 1 → 0, 4: 1 → 2; 1 leads instead of 3; leads 1: 0 → 1, 3: 1 → 0",),
    ),
    "leaders are evened out by reordering": (
        FOUR,
        set(),
        Question(),
        [[4, 1], [4, 15]],
        [[1, 4], [4, 15]],
        0,
        ("evens out leaders: 1 leads instead of 4; leads 1: 0 → 1, 4: 2 → 1",),
    ),
    "the successor takes every place it may": (
        FOUR,
        {3},
        Question(leaders=False, replacements=((3, 15),)),
        [[3, 1], [1, 3], [15, 3]],
        [[15, 1], [1, 15], [15, 4]],
        3,
        (
            "replaces 3 by 15: 3 → 15; holds 3: 3 → 0, 15: 1 → 3; 15 leads instead of 3; leads 3: 1 → 0, 15: 1 → 2",
            "replaces 3 by 15: 3 → 15; holds 3: 3 → 0, 15: 1 → 3",
            "empties 3: 3 → 4; holds 3: 3 → 0, 4: 0 → 1",
        ),
    ),
    "more replicas go to the emptiest": (
        FOUR,
        set(),
        Question(replication_factor=2),
        [[3], [3]],
        [[3, 1], [3, 4]],
        2,
        (
            "replication factor 1 → 2: none → 1; holds 1: 0 → 1",
            "replication factor 1 → 2: none → 4; holds 4: 0 → 1",
        ),
    ),
    "fewer replicas keep the preferred leader": (
        FOUR,
        set(),
        Question(replication_factor=1),
        [[3, 1], [1, 3]],
        [[3], [1]],
        0,
        (
            "replication factor 2 → 1: 1 → none; holds 1: 2 → 1",
            "replication factor 2 → 1: 3 → none; holds 3: 2 → 1",
        ),
    ),
    "racks are widened": (
        ("a", "a", "b", "b"),
        set(),
        Question(fix_racks=True),
        [[3, 1], [3, 4]],
        [[15, 1], [3, 4]],
        1,
        ("racks 1 → 2: 3 → 15; holds 3: 2 → 1, 15: 0 → 1; 15 leads instead of 3; leads 3: 2 → 1, 15: 0 → 1",),
    ),
    "a rack is not left": (
        ("a", "a", "b", "b"),
        {15},
        Question(),
        [[3, 15], [1, 15]],
        [[3, 4], [1, 4]],
        2,
        (
            "empties 15: 15 → 4; holds 4: 0 → 2, 15: 2 → 0",
            "empties 15: 15 → 4; holds 4: 0 → 2, 15: 2 → 0",
        ),
    ),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_worked_examples(example: Example) -> None:
    racks, emptied, question, before, after, copies, reasons = example
    found = place(brokers_of(racks, emptied=frozenset(emptied)), partitions_of(before), question)
    assert (_lists(found), found.copies, found.reasons) == (after, copies, reasons)


def _broken(case: Case, found: Placement) -> list[str]:
    """Return the hard rules that a placement breaks."""
    broken = []
    flags = (case.brokers.target, case.brokers.emptied)
    target, emptied = (set(case.brokers.ids[flag].tolist()) for flag in flags)
    rack_of = dict(zip(case.brokers.ids.tolist(), case.brokers.racks, strict=True))
    before = _lists(replace(found, replicas=case.partitions.replicas))
    for row, (was, becomes) in enumerate(zip(before, _lists(found), strict=True)):
        free = case.partitions.movable[row] and not is_held(case, row)
        factor = case.question.replication_factor or len(was)
        racks = [len({rack_of[broker] for broker in some} - {None}) for some in (was, becomes)]
        rules = {
            "replicas are distinct": len(set(becomes)) == len(becomes),
            "who may not change does not": free or becomes == was,
            "as many replicas as asked for": not free or len(becomes) == factor,
            "nothing goes to who may not take it": set(becomes) - set(was) <= target,
            "who is emptied is empty": not free or not set(becomes) & emptied,
            "no rack is lost": racks[1] >= min(racks[0], len(becomes)),
            "a new replication factor keeps the preferred leader": case.question.replication_factor is None
            or was[0] in emptied
            or becomes[0] == was[0],
        }
        broken += [f"{row}: {rule}" for rule, holds in rules.items() if not holds]
    return broken


@MANY
@given(cases())
def test_hard_rules_hold(case: Case) -> None:
    try:
        found = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    assert _broken(case, found) == []
    assert found.copies == int((found.moves.target != NOBODY).sum())
    assert found.copies >= found.lower_bound or case.question.even
    differs = (case.partitions.replicas != found.replicas[:, : case.partitions.replicas.shape[1]]).any(axis=1)
    widened = (found.replicas[:, case.partitions.replicas.shape[1] :] != NOBODY).any(axis=1)
    assert found.changed.tolist() == np.flatnonzero(differs | widened).tolist()
    assert len(found.reasons) == len(found.changed)


@MANY
@given(cases())
def test_in_whatever_order_rows_and_brokers_come_the_answer_is_the_same(case: Case) -> None:
    backwards = Partitions(
        topic=case.partitions.topic[::-1],
        partition=case.partitions.partition[::-1],
        replicas=case.partitions.replicas[::-1],
        movable=case.partitions.movable[::-1],
    )
    brokers = replace(
        case.brokers,
        ids=case.brokers.ids[::-1],
        racks=case.brokers.racks[::-1],
        live=case.brokers.live[::-1],
        target=case.brokers.target[::-1],
        emptied=case.brokers.emptied[::-1],
    )
    try:
        found = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    again = place(brokers, backwards, case.question)
    assert found.replicas.tolist() == again.replicas[::-1].tolist()
    assert found.reasons == again.reasons[::-1]


@MANY
@given(cases((Question(even=True), Question(), Question(even=True, fix_racks=True))))
def test_doing_it_leaves_nothing_to_do(case: Case) -> None:
    try:
        found = place(case.brokers, case.partitions, case.question)
    except PlacementError:
        return
    again = place(case.brokers, replace(case.partitions, replicas=found.replicas), case.question)
    assert again.changed.tolist() == []


def test_what_cannot_be_done_is_said() -> None:
    racks = ("a", "a", "b")
    with pytest.raises(PlacementError, match=r"1 partitions would have fewer racks than now \(rows \[1\]\)"):
        place(brokers_of(racks, emptied=frozenset({4})), partitions_of([[3], [3, 4]]), Question())
    with pytest.raises(PlacementError, match="2 partitions would have more replicas than the 3 brokers that may hold"):
        place(brokers_of(racks), partitions_of([[3], [3, 4]]), Question(replication_factor=4))


def test_bytes_are_balanced_where_sizes_are_known() -> None:
    partitions = replace(partitions_of([[3], [3], [3], [1]]), weights=np.array([50, 30, 20, 100]))
    found = place(brokers_of((None,) * 3), partitions, Question(even=True))
    assert found.brokers.bytes is not None
    held = dict(zip(found.brokers.names, found.brokers.bytes[1].tolist(), strict=True))
    assert (held, found.copies) == ({"1": 100, "3": 50, "4": 50}, 2)
