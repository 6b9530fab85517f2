"""Whether a change may still be written: read the current state, and compare it with what the plan was computed
from.

A change is already applied if leader, ISR and leader epoch are the `_after` values at the version after. It is stale if
a version has moved on, if a broker that it requires has left or registered again, or if a broker that must be dead has
returned. Otherwise it is pending.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import (
    BROKER_IDS,
    TOPICS,
    ClusterState,
    broker_epochs,
    reassign_requests,
    topics_to_delete,
)
from jobs.adapters.zookeeper.connection import Znode, children
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from planner.reassignment.cancellation import ReassignmentStatus, status_towards
from schemas.enums import NO_VERSION, Action, Outcome, RequestKind
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change
from schemas.text import other_topic as other_topic_in_words
from schemas.znodes import FORBIDDEN, Assignment, MalformedZnodeError, State, decode_state, read_assignment

Assigned = tuple[list[int], list[int], list[int]]
"""Replicas, adding replicas and removing replicas."""


def topic_path(change: Change) -> str:
    return f"{TOPICS}/{change.topic}"


def state_path(change: Change) -> str:
    return f"{topic_path(change)}/partitions/{change.partition}/state"


def read_changed(client: KazooClient, changes: Sequence[Change]) -> Iterator[tuple[Change, Znode, Znode]]:
    """Read the topic znode and the state of each change in batches."""
    topics = sorted({topic_path(change) for change in changes})
    znodes = {znode.path: znode for znode in read_permitted(client, [*topics, *map(state_path, changes)])}
    return ((change, znodes[topic_path(change)], znodes[state_path(change)]) for change in changes)


def _split_due(
    client: KazooClient,
    changes: Sequence[Change],
    judge: Callable[[Change, Znode, Znode], RowOutcome | None],
) -> tuple[list[Change], list[RowOutcome]]:
    """Read the znodes of the changes, and split the changes into pending ones and outcomes."""
    pending: list[Change] = []
    verdicts: list[RowOutcome] = []
    for change, topic, state in read_changed(client, changes):
        verdict = judge(change, topic, state)
        if verdict is None:
            pending.append(change)
        else:
            verdicts.append(verdict)
    return pending, verdicts


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The live brokers and deletions now, and the broker epochs that the plan knows."""

    live: Mapping[int, int]
    planned_epochs: Mapping[int, int]
    deleting: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, state: ClusterState) -> "Preconditions":
        queued_topics = (row["topic"] for row in state.requests if row["kind"] == RequestKind.DELETE_TOPIC)
        return cls(state.live, _planned_broker_epochs(plan), frozenset(queued_topics))

    @classmethod
    def read(cls, plan: Plan, client: KazooClient) -> "Preconditions":
        """Read live brokers and topic deletions in a few requests, for use between two writes."""
        return cls(broker_epochs(client), _planned_broker_epochs(plan), frozenset(topics_to_delete(client)))

    def still_hold(self, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Judge changes by brokers and deletions only, if the write itself checks their znodes."""
        reasons = [(change, self._deleted(change) or self._brokers_moved(change)) for change in changes]
        stale = [RowOutcome(change, Outcome.STALE, reason) for change, reason in reasons if reason is not None]
        return [change for change, reason in reasons if reason is None], stale

    def judge(self, client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Read the znodes of the changes; return the pending changes, and the outcomes of the others."""
        return _split_due(client, changes, self._judge)

    def _judge(self, change: Change, topic: Znode, state: Znode) -> RowOutcome | None:
        if is_applied(change, state) and not _is_other_creation(change, topic):
            return RowOutcome(change, Outcome.APPLIED, "found applied", state.version, is_found=True)
        reason = (
            self._deleted(change)
            or _topic_moved(change, topic)
            or _state_moved(change, state)
            or self._brokers_moved(change)
        )
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    def _deleted(self, change: Change) -> str | None:
        """Say that the topic is queued for deletion.

        None for the steps that end a reassignment: the deletion waits for them.
        """
        if change.action in {Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT}:
            return None
        return f"topic {change.topic} is queued for deletion" if change.topic in self.deleting else None

    def _brokers_moved(self, change: Change) -> str | None:
        for broker in change.requires_live:
            if broker not in self.live:
                return f"broker {broker} is no longer alive"
            if self.live[broker] != self.planned_epochs.get(broker):
                return f"broker {broker} registered again since the snapshot"
        back = [broker for broker in change.requires_dead if broker in self.live]
        return f"broker {back[0]} came back" if back else None


def _planned_broker_epochs(plan: Plan) -> dict[int, int]:
    return {broker.broker_id: broker.broker_epoch for broker in plan.row.brokers}


def is_applied(change: Change, znode: Znode) -> bool:
    """Whether a state is the one that this change writes, at the version of that write."""
    state = understood(znode)
    if state is None or znode.version != change.state_version + 1:
        return False
    after = (change.leader_after, change.isr_after, change.leader_epoch_after)
    return bool((state.leader, state.isr, state.leader_epoch) == after)


def understood(znode: Znode) -> State | None:
    """Decode a state; None if it is absent or malformed."""
    try:
        return None if znode.stat is None else decode_state(znode.data)
    except MalformedZnodeError:
        return None


@lru_cache(16)
def _decoded(data: bytes | None) -> Assignment:
    """Decode a topic once for all its changes, which follow one another; callers must not modify the result."""
    return read_assignment(data)


def is_other_topic(change: Change, topic: Znode) -> bool:
    """Whether the topic of this name is another one than the change's.

    A topic that was created again starts with version 0 again, so versions alone do not show it.
    """
    if topic.stat is None:
        return False
    try:
        return bool(_decoded(topic.data).topic_id != change.topic_id)
    except MalformedZnodeError:
        return True


def other_topic_reason(change: Change, topic: Znode) -> str:
    """Say what happened to the topic of a change."""
    try:
        current_id = _decoded(topic.data).topic_id
    except MalformedZnodeError as error:
        return f"{topic.path} is not understood ({error})"
    return other_topic_in_words(f"topic {change.topic}", change.topic_id, current_id)


def _is_other_creation(change: Change, topic: Znode) -> bool:
    """Whether an existing topic is another one than the planned one.

    A topic planned without an id is compared by its replicas, because a controller may have added an id since.
    """
    if change.topic_version != NO_VERSION or change.topic_id is not None or topic.stat is None:
        return is_other_topic(change, topic)
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError:
        return True
    return assignment is None or assignment[0] != change.replicas_after


def adds_partition(change: Change) -> bool:
    """Whether a change creates a partition that its existing topic does not assign yet."""
    new = change.action == Action.CREATE and change.topic_version != NO_VERSION
    return bool(new and change.replicas_before is None)


def reassigns(change: Change) -> bool:
    """Whether a change, written in batch mode, sets a new assignment of an existing partition."""
    return change.action in {Action.START_REASSIGNMENT, Action.END_REASSIGNMENT}


def _is_added(change: Change, topic: Znode) -> bool:
    """Whether the topic already assigns a partition as planned, perhaps by a commit that was interrupted."""
    if not adds_partition(change) or is_other_topic(change, topic):
        return False
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError:
        return False
    return assignment is not None and assignment[0] == change.replicas_after


def _topic_moved(change: Change, topic: Znode) -> str | None:
    if change.topic_version == NO_VERSION:
        return f"topic {change.topic} exists and is not the one planned" if _is_other_creation(change, topic) else None
    if topic.stat is None:
        return f"topic {change.topic} is gone"
    if _is_added(change, topic):
        return None
    if topic.version != change.topic_version and topic.data is not FORBIDDEN:
        return f"{topic.path} is at version {topic.version}, planned at {change.topic_version}"
    if adds_partition(change) or reassigns(change):
        why = _unread_fields(topic)
        if why:
            return f"{topic.path} is not written, because a part of it is not understood ({why})"
    return other_topic_reason(change, topic) if is_other_topic(change, topic) else None


def _unread_fields(topic: Znode) -> str:
    """Why the topic id or the moves of a topic are unknown, empty if they are known."""
    try:
        return "; ".join(part.reason for part in _decoded(topic.data).unread_fields)
    except MalformedZnodeError as error:
        return str(error)


def _state_moved(change: Change, znode: Znode) -> str | None:
    version = NO_VERSION if znode.version is None else znode.version
    try:
        state = None if znode.stat is None else decode_state(znode.data)
    except MalformedZnodeError as error:
        return f"{znode.path} is not understood ({error})"
    if version == change.state_version and (version == NO_VERSION or _is_before(change, state)):
        return None
    current = "" if state is None else f": leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    return f"{znode.path} is at version {version}, planned at {change.state_version}{current}"


def _is_before(change: Change, state: State | None) -> bool:
    """Whether a state is the one planned from; the state of a topic created again can have the same version."""
    before = (change.leader_before, change.isr_before, change.leader_epoch_before)
    return state is not None and bool((state.leader, state.isr, state.leader_epoch) == before)


def judge_for_admin(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    """Judge changes that are requested from Kafka's controller, which decides on ISR and epochs itself.

    A change is pending while the assignment, and for an election the leader, are those that the plan was computed from.
    A reassignment also needs a live leader in the ISR.
    """
    has_reassignments = any(change.action == Action.REASSIGN for change in changes)
    requests = (reassign_requests(client) if has_reassignments else None) or {}
    registered = set(children(client, BROKER_IDS) or ()) if has_reassignments else set[str]()

    def judge(change: Change, topic: Znode, state: Znode) -> RowOutcome | None:
        requested = requests.get((change.topic, change.partition))
        if change.action == Action.REASSIGN and requested == change.replicas_after:
            return _found_in_progress(change)
        judged = _judge_for_admin(change, topic, state)
        if judged is not None or change.action != Action.REASSIGN:
            return judged
        reason = _leaderless(understood(state), registered)
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    return _split_due(client, changes, judge)


def _leaderless(state: State | None, registered: Collection[str]) -> str | None:
    """Say why a partition must not be moved now: no live replica has its records, and an added replica would be
    empty.

    Kafka accepts such a request. If unclean elections are allowed, Kafka makes an empty replica the leader as soon as
    it can, and the records of the former ISR are lost.
    """
    if state is not None and state.leader in state.isr and str(state.leader) in registered:
        return None
    current = "no state" if state is None else f"leader {state.leader}, ISR {state.isr}"
    return (
        f"no live leader is in its ISR ({current}): moving it may lose its records; run `surveyor plan recover` first"
    )


def _judge_for_admin(change: Change, topic: Znode, state: Znode) -> RowOutcome | None:
    if change.topic_version == NO_VERSION:
        return _creation_for_admin(change, topic)
    if adds_partition(change):
        return _expansion_for_admin(change, topic)
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, f"{topic.path}: {error}")
    if assignment is None:
        return RowOutcome(change, Outcome.STALE, f"{change.topic}-{change.partition} is gone")
    judged = (
        _reassigned(change, assignment) if change.action == Action.REASSIGN else _elected(change, understood(state))
    )
    reason = _assignment_moved(change, topic, assignment)
    return RowOutcome(change, Outcome.STALE, reason) if judged is None and reason is not None else judged


def _assignment_moved(change: Change, topic: Znode, assignment: Assigned) -> str | None:
    if assignment != (change.replicas_before, change.adding_before, change.removing_before):
        return f"its replicas are now {assignment[0]}"
    # a topic created before 2.8 may get its id from an upgraded controller; it is still the same topic
    is_replaced = change.topic_id is not None and is_other_topic(change, topic)
    return other_topic_reason(change, topic) if is_replaced else None


def _reassigned(change: Change, assignment: Assigned) -> RowOutcome | None:
    status = status_towards(change.replicas_after, ReplicaAssignment(*assignment))
    if status is ReassignmentStatus.DIVERGED:
        return None
    is_running = status is ReassignmentStatus.IN_PROGRESS
    return _found_in_progress(change) if is_running else RowOutcome(change, Outcome.APPLIED, "found applied")


def _found_in_progress(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, "found in progress", is_running=True)


def _elected(change: Change, state: State | None) -> RowOutcome | None:
    if state is not None and state.leader == change.leader_after:
        return RowOutcome(change, Outcome.APPLIED, "found applied")
    if state is None or state.leader != change.leader_before:
        return RowOutcome(change, Outcome.STALE, f"the leader is no longer {change.leader_before}")
    return None


def _creation_for_admin(change: Change, topic: Znode) -> RowOutcome | None:
    """Judge the creation of a topic.

    An existing topic has an id set by Kafka: it counts as created if its replicas are the planned ones.
    """
    if topic.stat is None:
        return None
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, f"{topic.path}: {error}")
    if assignment is not None and assignment[0] == change.replicas_after:
        return RowOutcome(change, Outcome.APPLIED, "found applied")
    return RowOutcome(change, Outcome.STALE, f"topic {change.topic} exists and is not the one planned")


def _expansion_for_admin(change: Change, topic: Znode) -> RowOutcome | None:
    if _is_added(change, topic):
        return RowOutcome(change, Outcome.APPLIED, "found applied")
    moved = _topic_moved(change, topic)
    return None if moved is None else RowOutcome(change, Outcome.STALE, moved)


def assigned(topic: Znode, partition: int) -> Assigned | None:
    """Return replicas, adding and removing replicas of a partition in its topic's znode; None if it has none.

    Raises MalformedZnodeError if the partition's entry, or the znode as a whole, cannot be parsed.
    """
    if topic.stat is None:
        return None
    assignment = _decoded(topic.data)
    if assignment.unread_moves:
        raise MalformedZnodeError(assignment.unread_moves)
    replicas = assignment.partitions.get(partition)
    if replicas is None:
        for part in assignment.unread:
            if part.number == partition:
                raise MalformedZnodeError(part.reason)
        return None
    return (
        replicas,
        assignment.adding_replicas.get(partition, []),
        assignment.removing_replicas.get(partition, []),
    )
