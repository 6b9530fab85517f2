"""The input of a rollback, judged from a plan and the rows of its partitions as they are now."""

from typing import Final

import pytest

from jobs.core.errors import RefusedError
from jobs.execution.rollback import Destinations, find_rollback, refuse_running
from planner.reassignment.partition_rollback import ClusterFacts
from schemas.enums import RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import ReplicaAssignment
from schemas.stored_plan import Plan
from tests.jobs.support.rows.plan_rows import plan_record
from tests.planner.frames import partition_info
from tests.typed_rows import typed

MOVES: Final = [
    typed(partition=number, replicas_before=[1, 2], replicas_after=[3, 2], leader_after=3) for number in range(3)
]
PLAN: Final = Plan(plan_record(status="committed"), MOVES, [], [])
TOPICS: Final = {"t": TopicInfo(topic="t", topic_version=0)}
FACTS: Final = ClusterFacts(
    eligible={1, 2, 3}, live={1, 2, 3}, drained=(), racks={1: "a", 2: "b", 3: "a"}, deleting=(), min_isr=1
)
KEYS: Final = {("t", number) for number in range(3)}


def now(number: int, replicas: list[int], adding: list[int], removing: list[int]) -> PartitionInfo:
    moving = {"adding_replicas": adding, "removing_replicas": removing}
    return partition_info(replicas, 2, [2, 3], partition=number, **moving)


MOVED: Final = {("t", number): now(number, [3, 2], [], []) for number in range(3)}


def test_moved_partitions_that_a_commit_requested_go_back() -> None:
    partitions = MOVED | {("t", 1): now(1, [1, 2], [], [])}

    rollback = find_rollback(
        PLAN, partitions, TOPICS, requested=KEYS - {("t", 2)}, destination_of=Destinations("snapshot 1"), facts=FACTS
    )

    assert [(change.key, change.replicas_after) for change in rollback.changes] == [(("t", 0), [1, 2])]
    assert {key: code for key, (code, _) in rollback.rejected.items()} == {
        ("t", 1): RejectionCode.ALREADY_ASSIGNED,
        ("t", 2): RejectionCode.NOT_REQUESTED,
    }
    assert not rollback.is_back


def test_assignments_of_another_snapshot() -> None:
    """One that moved then, one that did not exist then, and one that is restored."""
    then = {("t", 0): ReplicaAssignment([2, 1], [], []), ("t", 1): ReplicaAssignment([2, 1, 3], [3], [])}

    rollback = find_rollback(
        PLAN, MOVED, TOPICS, requested=KEYS, destination_of=Destinations("snapshot 4", then), facts=FACTS
    )

    assert [(change.key, change.replicas_after) for change in rollback.changes] == [(("t", 0), [2, 1])]
    assert {key: code for key, (code, _) in rollback.rejected.items()} == {
        ("t", 1): RejectionCode.REASSIGNMENT_IN_PROGRESS,
        ("t", 2): RejectionCode.UNKNOWN_PARTITION,
    }


def test_refused_while_the_plan_moves_a_partition() -> None:
    moving = MOVED | {("t", 0): now(0, [3, 2, 1], [3], [1])}

    with pytest.raises(RefusedError, match="still moves 1 partition: t-0"):
        refuse_running(PLAN, moving)
