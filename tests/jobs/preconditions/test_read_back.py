"""Accepted changes of a KRaft cluster are read back: what happened between the last reading and the request is said."""

import pytest

from jobs.preconditions.planned_registrations import NO_REGISTRATIONS
from jobs.preconditions.wave_outcomes import read_back
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Decoded, LeaderAndIsr
from schemas.enums import Outcome
from schemas.znode_codecs import Assignment
from tests.typed_rows import UNVERSIONED, typed

PLANNED, OTHER = "KHtsfPk5R_Cc71NtSF0-Vw", "AAAAAAAAAAAAAAAAAAAAAQ"

MOVE = typed(
    replicas_before=[1, 2],
    replicas_after=[3, 2],
    adding_before=[],
    adding_after=[3],
    removing_before=[],
    removing_after=[1],
    leader_before=1,
    leader_after=1,
    leader_epoch_before=0,
    isr_before=[1, 2],
    isr_after=[1, 2],
    **UNVERSIONED,
    topic_id=PLANNED,
)


def moving(topic_id: str) -> CurrentState:
    assignment = Assignment({0: [3, 2, 1]}, {0: [3]}, {0: [1]}, topic_id)
    topic = CurrentTopic("topic t", None, Decoded(assignment), is_unversioned=True)
    state = Decoded(LeaderAndIsr(1, 0, [1, 2]))
    return CurrentState({("t", 0): CurrentPartition(topic, 0, "t-0", None, state, [], [])}, {}, frozenset({1, 2, 3}))


@pytest.mark.parametrize(("topic_id", "expected"), [(PLANNED, []), (OTHER, [Outcome.FAILED])])
def test_a_move_of_a_topic_that_was_created_again_has_failed(topic_id: str, expected: list[Outcome]) -> None:
    """The Admin API names a topic, and the new one has the same replicas, leader and epoch."""
    found = read_back([MOVE], moving(topic_id), NO_REGISTRATIONS)
    assert [outcome.outcome for outcome in found] == expected
    assert all(outcome.message.startswith("accepted for another topic: ") for outcome in found)
