"""What a cancelled step of a plan is called, by where its partition is afterwards."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.preconditions.cancellation_plan import PartitionStatus, ended_reason, partitions_of
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition, CurrentTopic, Decoded, LeaderAndIsr
from schemas.enums import Outcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change
from schemas.znode_codecs import Assignment
from tests.typed_rows import typed

STATE: Final = "replicas [1, 2]"

# status of the step afterwards, stranded -> outcome, text
CASES: Final[list[tuple[ReassignmentStatus, bool, Outcome, str]]] = [
    (ReassignmentStatus.NOT_STARTED, False, Outcome.APPLIED, STATE),
    (ReassignmentStatus.OUT_OF_ORDER, False, Outcome.APPLIED, STATE),
    (ReassignmentStatus.NOT_STARTED, True, Outcome.FAILED, "no replica can lead it"),
    (ReassignmentStatus.COMPLETE, False, Outcome.STALE, "it was complete before it could be cancelled"),
    (ReassignmentStatus.COMPLETE, True, Outcome.FAILED, "no replica can lead it"),
    (ReassignmentStatus.DIVERGED, True, Outcome.STALE, "another client changed it"),
    (ReassignmentStatus.IN_PROGRESS, False, Outcome.STALE, "another client changed it"),
    (ReassignmentStatus.DIVERGED, False, Outcome.STALE, "another client changed it"),
]


def at(status: ReassignmentStatus, *, stranded: bool = False) -> PartitionStatus:
    change: Any = SimpleNamespace()
    return PartitionStatus(change, status, STATE, stranded=stranded)


@pytest.mark.parametrize(("status", "stranded", "outcome", "words"), CASES)
def test_outcome_of_a_cancelled_step(
    status: ReassignmentStatus,
    stranded: bool,  # noqa: FBT001 - a table
    outcome: Outcome,
    words: str,
) -> None:
    found, message = ended_reason(at(status, stranded=stranded))

    assert (found, words in message) == (outcome, True), message


A, B = [1, 2], [3, 2]


replicas = st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True)


@given(st.data(), st.lists(replicas, min_size=2, max_size=5))
def test_every_step_of_any_plan_is_judged_by_where_it_leads(data: st.DataObject, stops: list[list[int]]) -> None:
    """The replicas of three brokers repeat often, so many steps start and end where others do."""
    moves = [(before, after) for before, after in pairwise(stops) if {*before} != {*after}]
    steps = [typed(wave=wave, **to(*move)) for wave, move in enumerate(moves)]
    wave = data.draw(st.integers(0, len(steps) - 1)) if steps else None
    if wave is None:
        return
    before, after = moves[wave]

    assert outcome_of(steps, wave, cancelled(steps[wave])) is Outcome.APPLIED
    assert outcome_of(steps, wave, before) is Outcome.APPLIED
    assert outcome_of(steps, wave, after) is Outcome.STALE


def to(before: list[int], after: list[int]) -> dict[str, list[int]]:
    return {"replicas_before": before, "replicas_after": after}


def cancelled(step: Change) -> list[int]:
    """The replicas that Kafka's controller leaves."""
    return list(ReplicaAssignment(step.replicas_before or ()).towards(step.replicas_after).origin)


def outcome_of(steps: list[Change], wave: int, now: list[int]) -> Outcome:
    """Return the outcome of the step's cancellation where the partition has these replicas now."""
    topic = CurrentTopic("topic t", None, Decoded(Assignment({0: now}, {}, {}, None)), is_unversioned=True)
    partition = CurrentPartition(topic, 0, "t-0", None, Decoded(LeaderAndIsr(now[0], 5, now)))
    cluster: Any = SimpleNamespace(live={1: None, 2: None, 3: None}, deleting=())
    (status,) = partitions_of(cluster, [[steps[wave]]], {("t", 0): partition})
    return ended_reason(status)[0]
