"""How far changes have come that their leader alone does not show: drains, new partitions, topics created again."""

from typing import Any, Final

import msgspec
import pytest

from jobs.preconditions.change_status import change_status
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition, CurrentTopic, Decoded
from schemas.enums import NO_VERSION, Action
from schemas.rows import Change
from schemas.tables import CHANGES
from schemas.znode_codecs import Assignment, State
from tests.jobs.support.rows.plan_rows import creation

MINE, OTHER = "AAAAAAAAAAAAAAAAAAAAAg", "BBBBBBBBBBBBBBBBBBBBBg"
COMPLETE, DIVERGED = ReassignmentStatus.COMPLETE, ReassignmentStatus.DIVERGED
STATE: Final = "leader 1, ISR [1, 2], leader epoch 6"
RECREATED: Final = "topic t was deleted and created again"


def _change(action: Action, **columns: Any) -> Change:  # noqa: ANN401 - columns of a change
    planned = {
        "action": action.value,
        "replicas_before": [1, 2],
        "leader_before": 2,
        "isr_before": [1, 2],
        "isr_after": [1],
        "leader_epoch_before": 5,
        "leader_epoch_after": 6,
        "adding_before": [],
        "removing_before": [],
        "is_new": False,
        "topic_version": 0,
        "topic_id": MINE,
    }
    row = dict.fromkeys(CHANGES.names) | creation("t", 0, [1, 2]) | planned | columns
    return msgspec.convert(row | {"cluster": "", "plan_id": ""}, Change)


NEW: Final = {"is_new": True, "replicas_before": None, "topic_version": NO_VERSION, "isr_after": [1, 2]}

# the change, replicas, ISR and topic id now -> status and detail
CASES: Final[list[tuple[Change, list[int], list[int], str, ReassignmentStatus, str]]] = [
    (_change(Action.CONTROLLED_SHUTDOWN), [1, 2], [1], MINE, COMPLETE, STATE.replace("1, 2", "1")),
    (_change(Action.CONTROLLED_SHUTDOWN), [1, 2], [1, 2], MINE, DIVERGED, f"broker 2 is in the ISR again: {STATE}"),
    (_change(Action.SHRINK_ISR), [1, 2], [1, 2], MINE, COMPLETE, STATE),
    (_change(Action.CREATE, **NEW), [1, 2], [1, 2], OTHER, COMPLETE, STATE),
    (_change(Action.CREATE, **NEW), [1, 3], [1, 2], OTHER, DIVERGED, "its replicas are now [1, 3]"),
    (_change(Action.CREATE, **NEW | {"topic_version": 0}), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
    (_change(Action.ELECT_PREFERRED), [1, 2], [1, 2], MINE, COMPLETE, STATE),
    (_change(Action.ELECT_PREFERRED), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
    (_change(Action.REASSIGN, replicas_before=[1, 3]), [1, 2], [1, 2], OTHER, DIVERGED, RECREATED),
]


@pytest.mark.parametrize(("change", "replicas", "isr", "topic_id", "status", "detail"), CASES)
def test_change_status(  # noqa: PLR0913, PLR0917 - a table
    change: Change, replicas: list[int], isr: list[int], topic_id: str, status: ReassignmentStatus, detail: str
) -> None:
    topic = CurrentTopic("/brokers/topics/t", 0, Decoded(Assignment({0: replicas}, {}, {}, topic_id)))
    state = State(controller_epoch=1, leader=1, leader_epoch=6, isr=isr)

    found = change_status(
        change,
        [change] if change.action == Action.REASSIGN else [],
        CurrentPartition(topic, 0, "/brokers/topics/t/partitions/0/state", 1, Decoded(state)),
    )

    assert found == (status, detail)
