"""Reassignments that are not part of a plan, judged from typed state alone."""

from typing import Final

from jobs.preconditions.running_reassignments import OtherReassignments, Reassignments, others_than
from planner.reassignment.obstacles import Reassignment
from schemas.plan import Plan
from tests.jobs.support.rows.plan_rows import plan_record
from tests.typed_rows import typed

MOVE: Final = typed(topic="a", replicas_before=[1, 2], replicas_after=[3, 2])
ORDER: Final = typed(topic="a", replicas_before=[1, 2], replicas_after=[2, 1])

OWN: Final = Reassignment("a", 0, (3, 2), frozenset({1, 2, 3}))
SAME_TOPIC: Final = Reassignment("a", 1, (8, 9), frozenset({7, 8, 9}))
SAME_BROKER: Final = Reassignment("b", 0, (3, 9), frozenset({3, 9}))
ONLY_ORDERED: Final = Reassignment("b", 1, (2, 1), frozenset({1, 2}), copies=False)
ELSEWHERE: Final = Reassignment("b", 2, (8, 9), frozenset({7, 8, 9}))

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
