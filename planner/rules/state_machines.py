"""The state machines of partitions and replicas: valid previous states, present states, and illegal changes.

Corresponds to `PartitionState.validPreviousStates`, `ReplicaState.validPreviousStates`, `PartitionStateMachine` and
`ReplicaStateMachine`. No states are kept: they follow from the znodes and from the responses of brokers, as Kafka's
controller initializes them at its failover. Every decision is checked against the state machines before it is written.
An illegal transition is refused and reported, and the other partitions continue (`logInvalidTransition`).
"""

from collections.abc import Collection, Container, Mapping
from typing import Final

from planner.rules.inputs import BrokerSets
from schemas import reasons
from schemas.enums import Action, PartitionState, ReplicaState
from schemas.replica_assignment import difference
from schemas.rows import Change
from schemas.text import join_ids

_P: Final = PartitionState
_R: Final = ReplicaState

PREVIOUS_REPLICA_STATES: Final[Mapping[ReplicaState, tuple[ReplicaState, ...]]] = {
    _R.NEW: (_R.NON_EXISTENT,),
    _R.ONLINE: (_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE),
    _R.OFFLINE: (_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE),
    _R.DELETION_STARTED: (_R.OFFLINE,),
    _R.DELETION_SUCCESSFUL: (_R.DELETION_STARTED,),
    _R.DELETION_INELIGIBLE: (_R.OFFLINE, _R.DELETION_STARTED),
    _R.NON_EXISTENT: (_R.DELETION_SUCCESSFUL,),
}
"""By state, the states that it may follow."""

_ONLINE_OR_OFFLINE: Final = (_P.ONLINE, _P.OFFLINE)

TRANSITIONS: Final[Mapping[Action, tuple[PartitionState, tuple[PartitionState, ...]]]] = {
    Action.CREATE: (_P.ONLINE, (_P.NEW,)),
    Action.ELECT: (_P.ONLINE, _ONLINE_OR_OFFLINE),
    Action.ELECT_PREFERRED: (_P.ONLINE, _ONLINE_OR_OFFLINE),
    Action.CONTROLLED_SHUTDOWN: (_P.ONLINE, _ONLINE_OR_OFFLINE),
    Action.TAKE_OFFLINE: (_P.OFFLINE, _ONLINE_OR_OFFLINE),
    **dict.fromkeys(
        (
            Action.SHRINK_ISR,
            Action.STOP_REPLICA,
            Action.START_REPLICA,
            Action.START_REASSIGNMENT,
            Action.NARROW_TO_TARGET,
            Action.END_REASSIGNMENT,
        ),
        (_P.ONLINE, (_P.ONLINE,)),
    ),
}
"""The state that each action leads to, and the states it can start from.

`doHandleStateChanges` initializes a New partition with its first leader and elects only if it had one before, so there
are two transitions to Online.
"""


def partition_state(leader: int | None, live: Container[int]) -> PartitionState:
    """Return the state of a partition that is assigned (`PartitionStateMachine.initializePartitionState`)."""
    if leader is None:
        return _P.NEW
    return _P.ONLINE if leader in live else _P.OFFLINE


def replica_state(
    *, is_deleting: bool, is_reachable: bool, is_new: bool, stop_replica_sent: bool = False, is_deleted: bool = False
) -> ReplicaState:
    """Return the state of a replica that is assigned (`ReplicaStateMachine.initializeReplicaState`).

    `is_deleting`: its log will be deleted. `is_reachable`: its broker is registered and understood, and its log dir
    has not failed. `stop_replica_sent`: the broker was sent StopReplica with deletion. `is_deleted`: it has confirmed
    that.
    """
    if is_deleting and is_deleted:
        return _R.DELETION_SUCCESSFUL
    if not is_reachable:
        return _R.DELETION_INELIGIBLE if is_deleting else _R.OFFLINE
    if is_deleting and stop_replica_sent:
        return _R.DELETION_STARTED
    return _R.NEW if is_new else _R.ONLINE


def allowed_transition(action: Action) -> str:
    """Return which transition an action makes.

    >>> allowed_transition(Action.CREATE)
    'create leads to Online from New only'
    """
    leads_to, starts = TRANSITIONS[action]
    return reasons.ALLOWED_TRANSITION.render(action=action.value, state=leads_to, starts=join_ids(starts))


def illegal_transition(change: Change, brokers: BrokerSets, stopped: Collection[int] | None) -> str | None:
    """Return why a change must not be written, None if its transitions are legal.

    `stopped`: the brokers that have confirmed the deletion of their replica at the present leader epoch, None if the
    controller stops replicas afterwards. A replica that leaves the assignment must be deleted, except that Kafka does
    not wait for one that cannot be reached.
    """
    leads_to, starts = TRANSITIONS[Action(change.action)]
    state, after = partition_state(change.leader_before, brokers.live), _state_after(change)
    if state not in starts or after is not leads_to:
        allowed = allowed_transition(Action(change.action))
        return reasons.ILLEGAL_CHANGE.render(state=state, after=after, allowed=allowed)
    leaving = () if stopped is None else difference(change.replicas_before or (), change.replicas_after)
    for broker in leaving:
        is_reachable = broker in brokers.eligible and broker not in brokers.failed
        replica = replica_state(
            is_deleting=True,
            is_reachable=is_reachable,
            is_new=False,
            stop_replica_sent=True,
            is_deleted=broker in (stopped or ()),
        )
        if replica not in (*PREVIOUS_REPLICA_STATES[_R.NON_EXISTENT], _R.DELETION_INELIGIBLE):
            allowed = join_ids(PREVIOUS_REPLICA_STATES[_R.NON_EXISTENT])
            return reasons.ILLEGAL_REMOVAL.render(broker=broker, state=replica, after=_R.NON_EXISTENT, starts=allowed)
    return None


def _state_after(change: Change) -> PartitionState:
    """Return the state of the partition after a change, whose leader is live if it has one."""
    return _P.ONLINE if change.leader_after >= 0 else _P.OFFLINE
