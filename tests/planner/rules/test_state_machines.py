"""The state machines: exactly Kafka's transitions, the states of replicas, and changes that are refused."""

from itertools import product
from typing import Any, Final

import pytest

from planner.rules.decisions import change_of
from planner.rules.inputs import BrokerSets, ControllerConfig
from planner.rules.partition_cycle import CycleState
from planner.rules.state_machines import (
    PREVIOUS_REPLICA_STATES,
    TRANSITIONS,
    illegal_transition,
    partition_state,
    replica_state,
)
from schemas.enums import NO_LEADER, Action, PartitionState, RejectionCode, ReplicaState
from schemas.partition_info import PartitionInfo
from tests.planner.frames import partition_info

P, R = PartitionState, ReplicaState

PARTITION_TRANSITIONS: Final = {
    (P.NON_EXISTENT, P.NEW),
    *product((P.NEW, P.ONLINE, P.OFFLINE), (P.ONLINE, P.OFFLINE)),
    (P.OFFLINE, P.NON_EXISTENT),
}
"""Before and after, as in PartitionState.scala of Kafka 3.9."""

REPLICA_TRANSITIONS: Final = {
    (R.NON_EXISTENT, R.NEW),
    *product((R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE), (R.ONLINE, R.OFFLINE)),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}
"""Before and after, as in ReplicaState.scala of Kafka 3.9."""

LIVE: Final = BrokerSets.of({1: True, 2: True, 3: True, 4: False}, {})
"""Broker 4 is registered and not understood; 7 and 8 are gone."""


@pytest.mark.parametrize(("before", "after"), [*product(R, repeat=2)])
def test_replica_transition(before: ReplicaState, after: ReplicaState) -> None:
    """ReplicaStateMachineTest: every test of a transition, and testInvalid…Transition for all other pairs."""
    assert (before in PREVIOUS_REPLICA_STATES[after]) is ((before, after) in REPLICA_TRANSITIONS)


def test_actions_take_legal_transitions_only() -> None:
    assert {(start, after) for after, starts in TRANSITIONS.values() for start in starts} <= PARTITION_TRANSITIONS
    assert {*Action} - TRANSITIONS.keys() == {Action.REASSIGN, Action.CANCEL}  # they write a request, and no state


@pytest.mark.parametrize(("leader", "state"), [(None, P.NEW), (1, P.ONLINE), (7, P.OFFLINE), (NO_LEADER, P.OFFLINE)])
def test_state_of_a_partition(leader: int | None, state: PartitionState) -> None:
    """PartitionStateMachineTest: testUpdatingOfflinePartitionsCount and `initializePartitionState`."""
    assert partition_state(leader, LIVE.live) is state


@pytest.mark.parametrize("flags", [*product((False, True), repeat=5)])
def test_state_of_a_replica(flags: tuple[bool, ...]) -> None:
    """ReplicaStateMachineTest: testStartupOnlinePartition, testStartupOfflinePartition, and deletions on from there."""
    is_deleting, is_reachable, is_new, stop_replica_sent, is_deleted = flags
    state = replica_state(
        is_deleting=is_deleting,
        is_reachable=is_reachable,
        is_new=is_new,
        stop_replica_sent=stop_replica_sent,
        is_deleted=is_deleted,
    )

    if not is_deleting:
        assert state is ((R.NEW if is_new else R.ONLINE) if is_reachable else R.OFFLINE)
    elif is_deleted:
        assert state is R.DELETION_SUCCESSFUL
    elif not is_reachable:
        assert state is R.DELETION_INELIGIBLE
    else:
        assert state is (R.DELETION_STARTED if stop_replica_sent else R.NEW if is_new else R.ONLINE)


def _row(leader: int | None, replicas: list[int], **columns: Any) -> PartitionInfo:  # noqa: ANN401 - columns of PARTITIONS
    isr = None if leader is None else [leader] if leader >= 0 else replicas[:1]
    return partition_info(replicas, leader, columns.pop("isr", isr), **columns)


@pytest.mark.parametrize(
    ("before", "action", "leader", "said"),
    [
        (None, Action.CREATE, 1, None),
        (1, Action.CREATE, 1, "it is Online and would be Online; create leads to Online from New only"),
        (7, Action.ELECT, 1, None),
        (NO_LEADER, Action.ELECT, 1, None),
        (None, Action.ELECT, 1, "it is New and would be Online; elect leads to Online from Online, Offline only"),
        (7, Action.ELECT, -1, "it is Offline and would be Offline; elect leads to Online from Online, Offline only"),
        (7, Action.TAKE_OFFLINE, -1, None),
        (None, Action.TAKE_OFFLINE, -1, "it is New and would be Offline; take_offline leads to Offline from Online, "),
        (1, Action.TAKE_OFFLINE, 1, "it is Online and would be Online; take_offline leads to Offline from Online, "),
        (1, Action.SHRINK_ISR, 1, None),
        (7, Action.SHRINK_ISR, 1, "it is Offline and would be Online; shrink_isr leads to Online from Online only"),
        (4, Action.START_REASSIGNMENT, 4, None),
        (7, Action.NARROW_TO_TARGET, 1, "it is Offline and would be Online; narrow_to_target leads to Online from "),
    ],
)
def test_illegal_partition_transitions_are_refused(
    before: int | None, action: Action, leader: int, said: str | None
) -> None:
    change = change_of(_row(before, [1, 2, 7]), None, LIVE, action, leader_after=leader, isr_after=[1], reason="")

    why_not = illegal_transition(change, LIVE, ())

    assert why_not == said if said is None else (why_not or "").startswith(said)


@pytest.mark.parametrize(
    ("stopped", "failed", "state"),
    [([3], (), None), ([], (), R.DELETION_STARTED), ([2], (), R.DELETION_STARTED), ([], [3], None), (None, (), None)],
)
def test_a_replica_leaves_the_assignment_once_it_is_deleted(
    stopped: list[int] | None, failed: list[int], state: ReplicaState | None
) -> None:
    """A replica on a broker that is gone or not understood, or whose log dir failed, is not waited for."""
    row = _row(1, [1, 2, 3, 4, 7])
    columns = {"replicas_after": [1, 2], "leader_after": 1, "isr_after": [1, 2], "reason": ""}
    change = change_of(row, None, LIVE, Action.END_REASSIGNMENT, **columns)

    why_not = illegal_transition(change, LIVE.with_failed(failed), stopped)

    said = f"its replica on broker 3 is {state}; NonExistentReplica follows ReplicaDeletionSuccessful only"
    assert why_not == (None if state is None else said)


def test_an_illegal_change_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other partitions continue, as with Kafka's `logInvalidTransition`."""
    rows = {("t", number): _row(7, [7, 1], partition=number, isr=[7, 1]) for number in range(2)}
    state = CycleState(rows, {}, LIVE, ControllerConfig())
    legal = illegal_transition
    monkeypatch.setattr(
        "planner.rules.partition_cycle.illegal_transition",
        lambda change, *of: "no" if change.partition else legal(change, *of),
    )

    elected, refused = state.decisions([*rows])

    assert (elected.code, elected.change and elected.change.leader_after) == (None, 1)
    assert (refused.change, refused.code, refused.why_not) == (None, RejectionCode.ILLEGAL_TRANSITION, "no")
