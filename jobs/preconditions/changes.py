"""Whether a change may still be written: read what is, compare it with what the plan was computed from.

A change is applied already when leader, ISR and epoch are the `_after` ones at the version after; it is stale when a
version moved on, when a broker it needs bounced or left, or when one it counts on being gone came back; else it is due.
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
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.repositories.plans.repository import Plan
from planner.reassignment.replica_assignment import target
from planner.text import other_topic as other_topic_in_words
from schemas.enums import NO_VERSION, Action, Outcome, RequestKind
from schemas.rows import Change
from schemas.znodes import Assignment, MalformedZnodeError, State, decode_state, read_assignment

Assigned = tuple[list[int], list[int], list[int]]
"""Replicas, adding and removing replicas."""


def topic_path(change: Change) -> str:
    return f"{TOPICS}/{change.topic}"


def state_path(change: Change) -> str:
    return f"{topic_path(change)}/partitions/{change.partition}/state"


def read_changed(client: KazooClient, changes: Sequence[Change]) -> Iterator[tuple[Change, Znode, Znode]]:
    """Read the topic's znode and the state of each change, all at once."""
    topics = sorted({topic_path(change) for change in changes})
    znodes = {znode.path: znode for znode in read_many(client, [*topics, *map(state_path, changes)])}
    return ((change, znodes[topic_path(change)], znodes[state_path(change)]) for change in changes)


def _split_due(
    client: KazooClient,
    changes: Sequence[Change],
    judge: Callable[[Change, Znode, Znode], RowOutcome | None],
) -> tuple[list[Change], list[RowOutcome]]:
    due: list[Change] = []
    verdicts: list[RowOutcome] = []
    for change, topic, state in read_changed(client, changes):
        verdict = judge(change, topic, state)
        if verdict is None:
            due.append(change)
        else:
            verdicts.append(verdict)
    return due, verdicts


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The cluster now, beside the brokers the plan knew."""

    live: Mapping[int, int]
    planned_epochs: Mapping[int, int]
    deleting: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, state: ClusterState) -> "Preconditions":
        queued = (row["topic"] for row in state.requests if row["kind"] == RequestKind.DELETE_TOPIC)
        return cls(state.live, _planned_broker_epochs(plan), frozenset(queued))

    @classmethod
    def read(cls, plan: Plan, client: KazooClient) -> "Preconditions":
        """The same, read in a few requests: between two writes."""
        return cls(broker_epochs(client), _planned_broker_epochs(plan), frozenset(topics_to_delete(client)))

    def still_hold(self, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Judge by brokers and deletions alone: for changes whose znodes the write itself checks."""
        why = [(change, self._deleted(change) or self._brokers_moved(change)) for change in changes]
        stale = [RowOutcome(change, Outcome.STALE, reason) for change, reason in why if reason is not None]
        return [change for change, reason in why if reason is None], stale

    def judge(self, client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Read the changes' znodes at once; return those that are due, and the verdicts on the others."""
        return _split_due(client, changes, self._judge)

    def _judge(self, change: Change, topic: Znode, state: Znode) -> RowOutcome | None:
        if is_applied(change, state) and not _is_other_creation(change, topic):
            return RowOutcome(change, Outcome.APPLIED, "found applied", state.version, is_found=True)
        why = (
            self._deleted(change)
            or _topic_moved(change, topic)
            or _state_moved(change, state)
            or self._brokers_moved(change)
        )
        return None if why is None else RowOutcome(change, Outcome.STALE, why)

    def _deleted(self, change: Change) -> str | None:
        """A topic queued for deletion gets no change but what brings a reassignment to its end, which it waits for."""
        if change.action in {Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT}:
            return None
        return f"topic {change.topic} is queued for deletion" if change.topic in self.deleting else None

    def _brokers_moved(self, change: Change) -> str | None:
        for broker in change.requires_live:
            if broker not in self.live:
                return f"broker {broker} is no longer alive"
            if self.live[broker] != self.planned_epochs.get(broker):
                return f"broker {broker} registered anew since the snapshot"
        back = [broker for broker in change.requires_dead if broker in self.live]
        return f"broker {back[0]} came back" if back else None


def _planned_broker_epochs(plan: Plan) -> dict[int, int]:
    return {broker["broker_id"]: broker["broker_epoch"] for broker in plan.row["brokers"]}


def is_applied(change: Change, znode: Znode) -> bool:
    """Tell whether a state is the one this change makes, at the version its write makes."""
    state = understood(znode)
    if state is None or znode.version != change.state_version + 1:
        return False
    after = (change.leader_after, change.isr_after, change.leader_epoch_after)
    return bool((state.leader, state.isr, state.leader_epoch) == after)


def understood(znode: Znode) -> State | None:
    """Decode a state, None where it is absent or malformed."""
    try:
        return None if znode.stat is None else decode_state(znode.data)
    except MalformedZnodeError:
        return None


@lru_cache(16)
def _decoded(data: bytes | None) -> Assignment:
    """Decode a topic once for all its changes, which come one after another; nobody changes what is returned."""
    return read_assignment(data)


def is_other_topic(change: Change, topic: Znode) -> bool:
    """Tell whether a topic of this name is not the one the change is about: one made anew starts its versions anew."""
    if topic.stat is None:
        return False
    try:
        return bool(_decoded(topic.data).topic_id != change.topic_id)
    except MalformedZnodeError:
        return True


def other_topic_reason(change: Change, topic: Znode) -> str:
    """Say what became of the topic of a change."""
    try:
        now = _decoded(topic.data).topic_id
    except MalformedZnodeError as error:
        return f"{topic.path} is not understood ({error})"
    return other_topic_in_words(f"topic {change.topic}", change.topic_id, now)


def _is_other_creation(change: Change, topic: Znode) -> bool:
    """The same; by its replicas where the topic is planned without an id, which a controller may have added since."""
    if change.topic_version != NO_VERSION or change.topic_id is not None or topic.stat is None:
        return is_other_topic(change, topic)
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError:
        return True
    return assignment is None or assignment[0] != change.replicas_after


def adds_partition(change: Change) -> bool:
    """Tell whether a change is about a partition that its topic does not assign yet, though there is the topic."""
    new = change.action == Action.CREATE and change.topic_version != NO_VERSION
    return bool(new and change.replicas_before is None)


def reassigns(change: Change) -> bool:
    """Tell whether a change, written by us, assigns replicas anew to a partition that there is."""
    return change.action in {Action.START_REASSIGNMENT, Action.END_REASSIGNMENT}


def _is_added(change: Change, topic: Znode) -> bool:
    """Tell whether the topic assigns a partition as planned already, be it by a commit that did not come to its end."""
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
    if topic.version != change.topic_version:
        return f"{topic.path} is at version {topic.version}, planned at {change.topic_version}"
    return other_topic_reason(change, topic) if is_other_topic(change, topic) else None


def _state_moved(change: Change, znode: Znode) -> str | None:
    version = NO_VERSION if znode.version is None else znode.version
    state = understood(znode)
    if version == change.state_version and (version == NO_VERSION or _is_before(change, state)):
        return None
    now = "" if state is None else f": leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    return f"{znode.path} is at version {version}, planned at {change.state_version}{now}"


def _is_before(change: Change, state: State | None) -> bool:
    """Tell whether a state is the one planned from: that of a topic made anew has the same version again."""
    before = (change.leader_before, change.isr_before, change.leader_epoch_before)
    return state is not None and bool((state.leader, state.isr, state.leader_epoch) == before)


def judge_for_admin(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    """The same for changes that Kafka's controller is asked for, which decides on ISR and epochs itself.

    Due is what still has the assignment, and for an election the leader, that the plan was computed from; a move also
    needs a live leader in the ISR.
    """
    moving = any(change.action == Action.REASSIGN for change in changes)
    requests = (reassign_requests(client) if moving else None) or {}
    registered = set(children(client, BROKER_IDS) or ()) if moving else set[str]()

    def judge(change: Change, topic: Znode, state: Znode) -> RowOutcome | None:
        requested = requests.get((change.topic, change.partition))
        if change.action == Action.REASSIGN and requested == change.replicas_after:
            return _found_in_progress(change)
        judged = _judge_for_admin(change, topic, state)
        if judged is not None or change.action != Action.REASSIGN:
            return judged
        why = _leaderless(understood(state), registered)
        return None if why is None else RowOutcome(change, Outcome.STALE, why)

    return _split_due(client, changes, judge)


def _leaderless(state: State | None, registered: Collection[str]) -> str | None:
    """Say why a partition must not be moved now: nobody has its records to copy, and who comes is empty.

    Kafka takes such a request all the same, and where unclean elections are allowed it makes an empty replica the
    leader as soon as it can: the records of whoever was in the ISR are gone then.
    """
    if state is not None and state.leader in state.isr and str(state.leader) in registered:
        return None
    what = "no state" if state is None else f"leader {state.leader}, ISR {state.isr}"
    return (
        f"no live leader is in its ISR ({what}): to move it may lose its records; `surveyor plan recover` comes first"
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
    why = _assignment_moved(change, topic, assignment)
    return RowOutcome(change, Outcome.STALE, why) if judged is None and why is not None else judged


def _assignment_moved(change: Change, topic: Znode, assignment: Assigned) -> str | None:
    if assignment != (change.replicas_before, change.adding_before, change.removing_before):
        return f"its replicas are now {assignment[0]}"
    # a topic of before 2.8 may get its id from an upgraded controller, and is the same then
    anew = change.topic_id is not None and is_other_topic(change, topic)
    return other_topic_reason(change, topic) if anew else None


def _reassigned(change: Change, assignment: Assigned) -> RowOutcome | None:
    replicas, adding, removing = assignment
    if target(replicas, removing) != change.replicas_after:
        return None
    return _found_in_progress(change) if adding or removing else RowOutcome(change, Outcome.APPLIED, "found applied")


def _found_in_progress(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, "found in progress", is_running=True)


def _elected(change: Change, state: State | None) -> RowOutcome | None:
    if state is not None and state.leader == change.leader_after:
        return RowOutcome(change, Outcome.APPLIED, "found applied")
    if state is None or state.leader != change.leader_before:
        return RowOutcome(change, Outcome.STALE, f"the leader is no longer {change.leader_before}")
    return None


def _creation_for_admin(change: Change, topic: Znode) -> RowOutcome | None:
    """A topic that exists has an id of Kafka's own: it counts as created where its replicas are those planned."""
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
    """Replicas, adding and removing replicas of a partition in its topic's znode, None where it has none.

    Raise MalformedZnodeError where the partition's entry, or the znode as a whole, is not understood.
    """
    if topic.stat is None:
        return None
    assignment = _decoded(topic.data)
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
