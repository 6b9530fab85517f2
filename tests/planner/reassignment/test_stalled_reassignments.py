"""Obstacles of reassignments. The oracle simulates progress and checks whether anything happens."""

from collections.abc import Collection, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reassignment.stalled_reassignments import describe_reassignment, obstacle
from schemas.enums import RejectionCode as Code
from schemas.replica_assignment import ReplicaAssignment

Brokers = list[int]

STILL: Final = ReplicaAssignment([1, 2])
MOVING: Final = ReplicaAssignment([1, 3, 2], adding=[3], removing=[2])
LIVE: Final = {1, 2, 3}

Case = tuple[ReplicaAssignment | None, Brokers | None, Brokers | None, set[int], bool, Code | None, Brokers]

# assignment, request, ISR, live, queued for deletion -> code, brokers waited for
CASES: Final[list[Case]] = [
    (None, [1, 2], [], LIVE, False, Code.UNKNOWN_PARTITION, []),
    (STILL, [], [1, 2], LIVE, False, Code.INVALID_TARGET, []),
    (STILL, [1, 1], [1, 2], LIVE, False, Code.INVALID_TARGET, []),
    (STILL, [-1, 1], [1, 2], LIVE, False, Code.INVALID_TARGET, []),
    (STILL, [1, 2], [1, 2], LIVE, False, Code.ALREADY_ASSIGNED, []),
    (STILL, [1, 2], [1], {1}, False, Code.ALREADY_ASSIGNED, []),
    (STILL, [1, 3], [1, 2], LIVE, True, Code.DELETION_REQUESTED, []),
    (STILL, [2, 1], [1, 2], LIVE, False, None, []),
    (STILL, [1, 3], [1, 2], LIVE, False, None, []),
    (STILL, [1, 9], [1, 2], LIVE, False, Code.WAITS_FOR_BROKER, [9]),
    (STILL, [3, 9], [1, 2], LIVE, False, None, []),  # 3 is being copied
    (STILL, [3], [1, 2], {3}, False, Code.NO_LIVE_LEADER, [1, 2]),
    (MOVING, None, [1, 2], LIVE, False, None, []),
    (MOVING, None, [1, 2], LIVE, True, None, []),  # which the deletion waits for
    (MOVING, None, [1, 2], {1, 2}, False, Code.WAITS_FOR_BROKER, [3]),
    (MOVING, [1, 3], [1, 2], {1, 2}, True, Code.WAITS_FOR_BROKER, [3]),
    (MOVING, None, [1, 2, 3], {1, 2}, False, None, []),
    (MOVING, None, [2], {3}, False, Code.NO_LIVE_LEADER, [2]),
    (MOVING, None, [], LIVE, False, Code.NO_LIVE_LEADER, []),
    (MOVING, None, None, LIVE, False, None, []),  # not known
]


@pytest.mark.parametrize(("now", "request_", "isr", "live", "deleting", "code", "waits_for"), CASES)
def test_a_case(  # noqa: PLR0913, PLR0917 - a table
    now: ReplicaAssignment | None,
    request_: Brokers | None,
    isr: Brokers | None,
    live: set[int],
    deleting: bool,  # noqa: FBT001 - a table
    code: Code | None,
    waits_for: Brokers,
) -> None:
    reason = obstacle(now, request_, isr, live, deleting=deleting)

    assert (None if reason is None else reason.code, [] if reason is None else list(reason.waits_for)) == (
        code,
        waits_for,
    )


def something_happens(goal: Sequence[int], isr: Collection[int], live: Collection[int]) -> bool:
    """Every live broker of the goal catches up if a live replica is in sync; then the move may be complete."""
    later = {*isr, *(set(goal) & set(live) if set(isr) & set(live) else ())}
    return later & set(goal) != set(isr) & set(goal) or later >= set(goal)


BROKERS: Final = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)


@given(BROKERS, BROKERS, st.lists(st.integers(1, 5), unique=True), st.sets(st.integers(1, 5)))
def test_nothing_else_keeps_it_from_moving(before: Brokers, goal: Brokers, isr: Brokers, live: set[int]) -> None:
    now = ReplicaAssignment(before)
    requested = obstacle(now, goal, isr, live)
    begun = obstacle(now.towards(goal), None, isr, live)

    if before != goal:
        assert requested == begun
    assert (begun is None) == something_happens(goal, isr, live)


def test_what_shares_brokers_and_what_copies() -> None:
    rows = [
        describe_reassignment(("t", 0), STILL, [2, 1], [1, 2], LIVE),
        describe_reassignment(("t", 1), STILL, [1, 3], [1, 2], LIVE),
        describe_reassignment(("t", 2), MOVING, None, [1, 2], LIVE),
        describe_reassignment(("t", 3), None, [7], [], LIVE),
        describe_reassignment(("t", 4), STILL, [1], [1, 2], LIVE),
    ]

    assert [(row.name, row.goal, set(row.brokers), row.copies, row.is_empty) for row in rows] == [
        ("t-0", (2, 1), {1, 2}, False, False),
        ("t-1", (1, 3), {1, 2, 3}, True, False),
        ("t-2", (1, 3), {1, 2, 3}, True, False),
        ("t-3", (7,), {7}, True, True),
        ("t-4", (1,), {1, 2}, False, False),
    ]
