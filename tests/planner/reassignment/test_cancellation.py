"""Cancellations: the status of a partition, and the risks. The oracle uses sets, step by step."""

from itertools import combinations, product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reassignment.cancellation import cancellation_risk
from planner.reassignment.reassignment_status import ReassignmentStatus, ReassignmentStep, cancelled_replicas, status_of
from schemas.enums import RejectionCode
from schemas.replica_assignment import ReplicaAssignment

WAY: Final = [ReassignmentStep([1, 2, 3], [4, 2, 3]), ReassignmentStep([4, 2, 3], [4, 5, 3])]
UP: Final = [ReassignmentStep([1, 2], [1, 2, 3])]
MIXED: Final = [ReassignmentStep([1, 2, 3], [3, 4, 2])]

# steps, replicas, adding, removing -> status, step
CASES: Final[list[tuple[list[ReassignmentStep], list[int], list[int], list[int], ReassignmentStatus, int]]] = [
    (WAY, [1, 2, 3], [], [], ReassignmentStatus.NOT_STARTED, 0),
    (WAY, [4, 2, 3, 1], [4], [1], ReassignmentStatus.IN_PROGRESS, 0),
    (WAY, [4, 2, 3], [], [], ReassignmentStatus.NOT_STARTED, 1),
    (WAY, [4, 5, 3, 2], [5], [2], ReassignmentStatus.IN_PROGRESS, 1),
    (WAY, [4, 3, 2], [], [], ReassignmentStatus.OUT_OF_ORDER, 1),
    (WAY, [2, 3, 1], [], [], ReassignmentStatus.OUT_OF_ORDER, 0),
    (WAY, [4, 5, 3], [], [], ReassignmentStatus.COMPLETE, 1),
    (WAY, [4, 5, 3, 1], [], [], ReassignmentStatus.DIVERGED, 0),
    (WAY, [6, 2, 3, 1], [6], [1], ReassignmentStatus.DIVERGED, 0),  # another target
    (WAY, [4, 2, 3, 9], [4], [9], ReassignmentStatus.DIVERGED, 0),  # the planned target, from other replicas
    (UP, [1, 2, 3], [3], [], ReassignmentStatus.IN_PROGRESS, 0),
    (UP, [1, 2, 3], [], [], ReassignmentStatus.COMPLETE, 0),
    (MIXED, [3, 4, 2, 1], [4], [1], ReassignmentStatus.IN_PROGRESS, 0),
    (MIXED, [3, 2, 1], [], [], ReassignmentStatus.OUT_OF_ORDER, 0),
    (MIXED, [2, 1, 3], [], [], ReassignmentStatus.DIVERGED, 0),
]


@pytest.mark.parametrize(("way", "replicas", "adding", "removing", "expected", "step"), CASES)
def test_status_of_a_partition(  # noqa: PLR0913, PLR0917 - a table
    way: list[ReassignmentStep],
    replicas: list[int],
    adding: list[int],
    removing: list[int],
    expected: ReassignmentStatus,
    step: int,
) -> None:
    assert status_of(way, ReplicaAssignment(replicas, adding, removing)) == (expected, step)


# replicas, adding, ISR, live -> code, text
DANGERS: Final[list[tuple[list[int], list[int], list[int] | None, set[int], RejectionCode | None, str]]] = [
    ([1, 2, 3], [3], [1, 2], {1, 2, 3}, None, ""),
    ([1, 2, 3], [3], [2], {1, 2}, None, ""),  # the copy that is deleted may be dead
    ([1, 2, 3], [3], [1, 3], {1, 3}, RejectionCode.REPLICA_NOT_ALIVE, "copies on [3] would be deleted, and only ["),
    ([1, 2, 3], [3], [3], {1, 2, 3}, RejectionCode.NO_ELIGIBLE_LEADER, "its ISR is [3]"),
    ([1, 2, 3], [3], [1, 3], {2, 3}, RejectionCode.NO_ELIGIBLE_LEADER, "no replica could lead it"),
    ([1, 2, 3], [3], None, {1, 2, 3}, RejectionCode.NO_ELIGIBLE_LEADER, "its ISR is not known"),
    ([1, 2, 3], [3], [1], {1, 3}, None, ""),  # 2 is dead, and the deleted copy is not in sync
    ([1, 2, 3], [3], [1], {3}, None, ""),  # no copy in sync is lost, though no original is live
    ([1, 2, 3], [], [1], {1}, None, ""),  # nothing is deleted
    ([1, 2, 3], [], None, {1}, None, ""),
]


@pytest.mark.parametrize(("replicas", "adding", "isr", "live", "code", "words"), DANGERS)
def test_when_it_must_not_turn_back(  # noqa: PLR0913, PLR0917 - a table
    replicas: list[int],
    adding: list[int],
    isr: list[int] | None,
    live: set[int],
    code: RejectionCode | None,
    words: str,
) -> None:
    rejection = cancellation_risk(ReplicaAssignment(replicas, adding), isr, live)

    assert (None if rejection is None else rejection.code) == code
    assert rejection is None or words in rejection.reason


def test_fewer_copies_have_to_be_allowed() -> None:
    """Checks every assignment, ISR and set of live brokers of three."""
    some = [set(ids) for size in range(4) for ids in combinations((1, 2, 3), size)]
    for adding, isr, live in product(some, some, some):
        now = ReplicaAssignment([1, 2, 3], sorted(adding))
        origin = {1, 2, 3} - adding
        loses, leaves = bool(adding & isr), bool(origin & isr & live)
        asked, allowed = (cancellation_risk(now, sorted(isr), live, fewer_copies=flag) for flag in (False, True))
        assert (asked is None) == (not loses or (leaves and origin <= live))
        assert (allowed is None) == (not loses or leaves)


replicas = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)


@given(replicas, replicas)
def test_reassigning_against_sets(before: list[int], after: list[int]) -> None:
    moving = ReplicaAssignment(before).towards(after)

    assert set(moving.replicas) == set(before) | set(after)
    assert (set(moving.adding), set(moving.removing)) == (set(after) - set(before), set(before) - set(after))
    assert (moving.target, sorted(moving.origin)) == (after, sorted(before))


@given(replicas, replicas)
def test_what_is_cancelled_is_recognised_all_the_way(before: list[int], after: list[int]) -> None:
    """Each stage (requested, cancelled, order restored) has its own status, unless stages have equal replicas."""
    leg = ReassignmentStep(before, after)
    moving = ReplicaAssignment(before).towards(after)
    cancelled = moving.towards(moving.origin)

    stages = [status_of([leg], now)[0] for now in (ReplicaAssignment(before), moving, cancelled)]

    begins = ReassignmentStatus.COMPLETE if before == after else ReassignmentStatus.NOT_STARTED
    runs = ReassignmentStatus.IN_PROGRESS if moving.is_being_reassigned else ReassignmentStatus.COMPLETE
    ends = (
        runs
        if not moving.is_being_reassigned
        else begins
        if cancelled_replicas(leg) == before
        else ReassignmentStatus.OUT_OF_ORDER
    )
    assert stages == [begins, runs, ends]
    assert (list(cancelled.replicas), cancelled.is_being_reassigned) == (cancelled_replicas(leg), False)
