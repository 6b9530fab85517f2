"""Reassignments that are not part of a plan, judged from typed state alone."""

from typing import Final

import pytest

from jobs.execution.admin.wave_progress import blocked_text
from jobs.preconditions.reassignment_progress import (
    OtherReassignments,
    Reassignments,
    classify,
    others_than,
    reassignment_statuses,
)
from planner.reassignment.reassignment_status import ReassignmentStatus
from planner.reassignment.stalled_reassignments import BlockedReassignment
from schemas.current_state import (
    CurrentPartition,
    CurrentReassignments,
    CurrentState,
    CurrentTopic,
    Decoded,
    LeaderAndIsr,
)
from schemas.rows import Change
from schemas.stored_plan import Plan
from schemas.znode_codecs import Assignment
from tests.jobs.support.rows.plan_rows import plan_record
from tests.typed_rows import typed

MOVE: Final = typed(topic="a", replicas_before=[1, 2], replicas_after=[3, 2])
ORDER: Final = typed(topic="a", replicas_before=[1, 2], replicas_after=[2, 1])

OWN: Final = BlockedReassignment("a", 0, (3, 2), frozenset({1, 2, 3}))
SAME_TOPIC: Final = BlockedReassignment("a", 1, (8, 9), frozenset({7, 8, 9}))
SAME_BROKER: Final = BlockedReassignment("b", 0, (3, 9), frozenset({3, 9}))
ONLY_ORDERED: Final = BlockedReassignment("b", 1, (2, 1), frozenset({1, 2}), copies=False)
ELSEWHERE: Final = BlockedReassignment("b", 2, (8, 9), frozenset({7, 8, 9}))

ALL: Final = Reassignments([OWN, SAME_TOPIC, SAME_BROKER, ONLY_ORDERED, ELSEWHERE], ["/x (torn)"])


def test_those_that_share_a_topic_or_a_broker_are_in_the_way() -> None:
    plan = Plan(plan_record(), [MOVE], [], [])

    assert others_than(plan, [MOVE], ALL) == OtherReassignments(
        in_the_way=[SAME_TOPIC, SAME_BROKER],
        running=[SAME_TOPIC, SAME_BROKER, ONLY_ORDERED, ELSEWHERE],
        stalled=[],
        not_understood=["/x (torn)"],
    )


def test_none_is_in_the_way_of_a_new_order() -> None:
    assert others_than(Plan(plan_record(), [ORDER], [], []), [ORDER], ALL) == OtherReassignments()


AWAY: Final = typed(topic="a", wave=0, replicas_before=[1, 2], replicas_after=[3, 2])
BACK: Final = typed(topic="a", wave=1, replicas_before=[3, 2], replicas_after=[1, 2])

# replicas now, requested waves -> status of the first wave
STATUSES: Final = [
    ([1, 2], [AWAY], ReassignmentStatus.DIVERGED),
    ([1, 2], [AWAY, BACK], ReassignmentStatus.COMPLETE),
    ([3, 2], [AWAY], ReassignmentStatus.COMPLETE),
    ([3, 4], [AWAY, BACK], ReassignmentStatus.DIVERGED),
]


@pytest.mark.parametrize(("now", "requested", "status"), STATUSES)
def test_a_wave_that_was_cancelled_is_not_complete_though_the_next_one_leads_back(
    now: list[int], requested: list[Change], status: ReassignmentStatus
) -> None:
    topic = CurrentTopic("topic a", None, Decoded(Assignment({0: now}, {}, {}, None)), is_unversioned=True)
    partition = CurrentPartition(topic, 0, "a-0", None, Decoded(LeaderAndIsr(now[0], 5, now)))
    current = CurrentState({("a", 0): partition}, {}, frozenset())

    ((_, found, _),) = reassignment_statuses([AWAY], requested, current)

    assert found is status


@pytest.mark.parametrize(
    ("assignment", "requests", "names"),
    [
        (Assignment({0: [3, 2, 1]}, {0: [3]}, {0: [1]}, None), {}, ["a-0"]),
        (Assignment({0: [3, 2]}, {}, {}, None), {}, []),
        (Assignment({0: [1, 2]}, {}, {}, None), {("a", 0): [3, 2]}, ["a-0"]),
        (Assignment({}, {}, {}, None), {}, []),
    ],
    ids=["moves", "has ended since it was listed", "is requested", "was deleted since it was listed"],
)
def test_a_reassignment_that_has_ended_is_in_the_way_of_none(
    assignment: Assignment, requests: dict[tuple[str, int], list[int]], names: list[str]
) -> None:
    topic = CurrentTopic("topic a", None, Decoded(assignment), is_unversioned=True)
    partition = CurrentPartition(topic, 0, "a-0", None, Decoded(LeaderAndIsr(2, 5, [2])))
    listed = {("a", 0): [3, 2]}
    current = CurrentReassignments(listed, requests, {("a", 0): partition}, {2: 1, 3: 1}, frozenset(), None, [])
    assert [row.name for row in classify(current).understood] == names


# live brokers, ISR -> what a wait for the move from [1, 2] to [3, 2] names
BLOCKED: Final = [
    ({1, 2, 3}, [1, 2], ""),
    ({1, 2}, [1, 2], "1 move waits for broker 3, which is not live"),
    ({1, 3}, [1], "1 move waits for broker 2, which is not live"),
    ({1}, [1], "1 move waits for brokers 2, 3, which are not live"),
    ({1, 3}, [1, 2, 3], ""),
]


@pytest.mark.parametrize(("live", "isr", "text"), BLOCKED)
def test_a_wait_names_the_brokers_that_it_waits_for(live: set[int], isr: list[int], text: str) -> None:
    topic = CurrentTopic("topic a", None, Decoded(Assignment({0: [3, 2, 1]}, {0: [3]}, {0: [1]}, None)))
    partition = CurrentPartition(topic, 0, "a-0", None, Decoded(LeaderAndIsr(1, 5, isr)))
    assert blocked_text([MOVE], CurrentState({("a", 0): partition}, {}, frozenset(live))) == text
