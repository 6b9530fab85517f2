"""What a cancelled step of a plan is called, by where its partition is afterwards."""

from types import SimpleNamespace
from typing import Any, Final

import pytest

from jobs.execution.cancellation import _changed_reason
from jobs.preconditions.cancellation_plan import PartitionStatus
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.enums import Outcome

STATE: Final = "replicas [1, 2]"

# wave and status afterwards, stranded -> outcome, text; the step was the one of wave 2
CASES: Final[list[tuple[int, ReassignmentStatus, bool, Outcome, str]]] = [
    (2, ReassignmentStatus.NOT_STARTED, False, Outcome.APPLIED, STATE),
    (2, ReassignmentStatus.OUT_OF_ORDER, False, Outcome.APPLIED, STATE),
    (2, ReassignmentStatus.NOT_STARTED, True, Outcome.FAILED, "no replica can lead it"),
    (2, ReassignmentStatus.COMPLETE, False, Outcome.STALE, "it was complete before it could be cancelled"),
    (3, ReassignmentStatus.NOT_STARTED, False, Outcome.STALE, "it was complete before it could be cancelled"),
    (1, ReassignmentStatus.NOT_STARTED, False, Outcome.STALE, "another client changed it"),
    (3, ReassignmentStatus.OUT_OF_ORDER, False, Outcome.STALE, "another client changed it"),
    (3, ReassignmentStatus.IN_PROGRESS, False, Outcome.STALE, "another client changed it"),
    (2, ReassignmentStatus.DIVERGED, False, Outcome.STALE, "another client changed it"),
]


def at(wave: int, status: ReassignmentStatus, *, stranded: bool = False) -> PartitionStatus:
    change: Any = SimpleNamespace(wave=wave)
    return PartitionStatus(change, status, STATE, stranded=stranded)


@pytest.mark.parametrize(("wave", "status", "stranded", "outcome", "words"), CASES)
def test_outcome_of_a_cancelled_step(
    wave: int,
    status: ReassignmentStatus,
    stranded: bool,  # noqa: FBT001 - a table
    outcome: Outcome,
    words: str,
) -> None:
    found, message = _changed_reason(at(2, ReassignmentStatus.IN_PROGRESS), at(wave, status, stranded=stranded))

    assert (found, words in message) == (outcome, True), message
