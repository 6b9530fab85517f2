"""Whether a change may still be written: compare the current state with what the plan was computed from.

A change is already applied if leader, ISR and leader epoch are the `_after` values at the version after. It is stale if
a version has moved on, if a broker that it requires has left or registered again, or if a broker that must be dead has
returned. Otherwise it is pending.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from jobs.repositories.plans.commit_rows import RowOutcome
from jobs.repositories.plans.repository import Plan
from planner.reassignment.premise import (
    PartitionPremise,
    differences,
    unclean_choice,
    unexplained_by_election,
    unexplained_by_move,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Leadership
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key
from schemas.text import other_topic as other_topic_in_words
from schemas.znodes import MalformedZnodeError


@dataclass(frozen=True, slots=True)
class Premises:
    """What the rows of a plan without versions do not say of their partitions."""

    eligible: Mapping[Key, list[int] | None] = field(default_factory=dict)
    """Eligible leader replicas as planned, where they are known."""
    first_waves: Mapping[Key, int] = field(default_factory=dict)
    """The wave of the first change of each partition."""

    def of(self, change: Change) -> PartitionPremise | None:
        """Return the state that a change was planned on; None for one that follows others of its plan."""
        follows = self.first_waves.get(change.key, change.wave) < change.wave
        if follows or change.leader_epoch_before is None:
            return None
        return PartitionPremise(
            change.replicas_before or [],
            change.adding_before or [],
            change.removing_before or [],
            change.leader_before,
            change.leader_epoch_before,
            change.isr_before or [],
            self.eligible.get(change.key),
        )


NO_PREMISES: Final = Premises()


def _split_due(
    changes: Sequence[Change], judge: Callable[[Change], RowOutcome | None]
) -> tuple[list[Change], list[RowOutcome]]:
    """Split the changes into pending ones and outcomes."""
    pending: list[Change] = []
    outcomes: list[RowOutcome] = []
    for change in changes:
        outcome = judge(change)
        if outcome is None:
            pending.append(change)
        else:
            outcomes.append(outcome)
    return pending, outcomes


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The live brokers and deletions now, and the broker epochs that the plan knows."""

    live: Mapping[int, int]
    planned_epochs: Mapping[int, int | None]
    deleting: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, live: Mapping[int, int], deleting: Collection[str]) -> "Preconditions":
        planned_epochs = {broker.broker_id: broker.broker_epoch for broker in plan.row.brokers}
        return cls(live, planned_epochs, frozenset(deleting))

    def still_hold(self, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Judge changes by brokers and deletions only, if the write itself checks their znodes."""
        reasons = [(change, self._deleted(change) or self._brokers_moved(change)) for change in changes]
        stale = [RowOutcome(change, Outcome.STALE, reason) for change, reason in reasons if reason is not None]
        return [change for change, reason in reasons if reason is None], stale

    def judge(
        self, changes: Sequence[Change], partitions: Mapping[Key, CurrentPartition]
    ) -> tuple[list[Change], list[RowOutcome]]:
        """Return the pending changes, and the outcomes of the others."""
        return _split_due(changes, lambda change: self._judge(change, partitions[change.key]))

    def _judge(self, change: Change, partition: CurrentPartition) -> RowOutcome | None:
        if is_applied(change, partition) and not _is_other_creation(change, partition.topic):
            return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_APPLIED.say(), partition.version, is_found=True)
        reason = (
            self._deleted(change)
            or _topic_moved(change, partition.topic)
            or _state_moved(change, partition)
            or self._brokers_moved(change)
        )
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    def _deleted(self, change: Change) -> str | None:
        """Return the message that the topic is queued for deletion.

        None for the steps that end a reassignment: the deletion waits for them.
        """
        if change.action in {Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT}:
            return None
        return reasons.TOPIC_QUEUED.say(topic=change.topic) if change.topic in self.deleting else None

    def _brokers_moved(self, change: Change) -> str | None:
        for broker in change.requires_live:
            if broker not in self.live:
                return reasons.BROKER_GONE.say(broker=broker)
            if self.live[broker] != self.planned_epochs.get(broker):
                return reasons.BROKER_RESTARTED.say(broker=broker)
        back = [broker for broker in change.requires_dead if broker in self.live]
        return reasons.BROKER_BACK.say(broker=back[0]) if back else None


def is_applied(change: Change, partition: CurrentPartition) -> bool:
    """Whether a state is the one that this change writes, at the version of that write."""
    state = partition.state
    if state is None or change.state_version is None or partition.version != change.state_version + 1:
        return False
    after = (change.leader_after, change.isr_after, change.leader_epoch_after)
    return bool((state.leader, state.isr, state.leader_epoch) == after)


def is_other_topic(change: Change, topic: CurrentTopic) -> bool:
    """Whether the topic of this name is another one than the change's.

    A topic that was created again starts with version 0 again, so versions alone do not show it.
    """
    content = topic.content.value
    return topic.exists and (content is None or content.topic_id != change.topic_id)


def other_topic_reason(change: Change, topic: CurrentTopic) -> str:
    """Return what happened to the topic of a change."""
    content = topic.content.value
    if content is None:
        return reasons.NOT_UNDERSTOOD.say(path=topic.path, fault=topic.content.reason)
    return other_topic_in_words(f"topic {change.topic}", change.topic_id, content.topic_id)


def _is_other_creation(change: Change, topic: CurrentTopic) -> bool:
    """Whether an existing topic is another one than the planned one.

    A topic planned without an id is compared by its replicas, because a controller may have added an id since.
    """
    if change.topic_version != NO_VERSION or change.topic_id is not None or not topic.exists:
        return is_other_topic(change, topic)
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError:
        return True
    return assignment is None or assignment.replicas != change.replicas_after


def adds_partition(change: Change) -> bool:
    """Whether a change creates a partition that its existing topic does not assign yet."""
    new = change.action == Action.CREATE and change.topic_version != NO_VERSION
    return bool(new and change.replicas_before is None)


def reassigns(change: Change) -> bool:
    """Whether a change, written in batch mode, sets a new assignment of an existing partition."""
    return change.action in {Action.START_REASSIGNMENT, Action.END_REASSIGNMENT}


def _is_added(change: Change, topic: CurrentTopic) -> bool:
    """Whether the topic already assigns a partition as planned, perhaps by a commit that was interrupted."""
    if not adds_partition(change) or is_other_topic(change, topic):
        return False
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError:
        return False
    return assignment is not None and assignment.replicas == change.replicas_after


def _topic_moved(change: Change, topic: CurrentTopic) -> str | None:
    if change.topic_version == NO_VERSION:
        return reasons.OTHER_TOPIC_EXISTS.say(topic=change.topic) if _is_other_creation(change, topic) else None
    if not topic.exists:
        return reasons.TOPIC_GONE.say(topic=change.topic)
    if _is_added(change, topic):
        return None
    if topic.version != change.topic_version and not topic.is_forbidden:
        return reasons.OTHER_VERSION.say(path=topic.path, version=topic.version, planned=change.topic_version)
    if adds_partition(change) or reassigns(change):
        reason = _unread_fields(topic)
        if reason:
            return reasons.PARTLY_UNDERSTOOD.say(path=topic.path, fault=reason)
    return other_topic_reason(change, topic) if is_other_topic(change, topic) else None


def _unread_fields(topic: CurrentTopic) -> str:
    """Why the topic id or the moves of a topic are unknown, empty if they are known."""
    content = topic.content.value
    return topic.content.reason if content is None else "; ".join(part.reason for part in content.unread_fields)


def _state_moved(change: Change, partition: CurrentPartition) -> str | None:
    version, state = NO_VERSION if partition.version is None else partition.version, partition.state
    if partition.version is not None and state is None:
        return reasons.NOT_UNDERSTOOD.say(path=partition.path, fault=partition.content.reason)
    if version == change.state_version and (version == NO_VERSION or _is_before(change, state)):
        return None
    moved = reasons.OTHER_VERSION.say(path=partition.path, version=version, planned=change.state_version)
    return moved if state is None else f"{moved}: {state_now(state)}"


def state_now(state: Leadership) -> str:
    """Return a state as a detail of a message."""
    return reasons.STATE_NOW.say(leader=state.leader, isr=state.isr, leader_epoch=state.leader_epoch)


def _is_before(change: Change, state: Leadership | None) -> bool:
    """Whether a state is the one planned from; the state of a topic created again can have the same version."""
    before = (change.leader_before, change.isr_before, change.leader_epoch_before)
    return state is not None and bool((state.leader, state.isr, state.leader_epoch) == before)


def judge_for_admin(
    changes: Sequence[Change], current: CurrentState, premises: Premises = NO_PREMISES
) -> tuple[list[Change], list[RowOutcome]]:
    """Judge changes that are requested from Kafka's controller, which decides on ISR and epochs itself.

    A change is pending while the assignment, and for an election the leader, are those that the plan was computed from.
    A reassignment also needs a live leader in the ISR. Without versions, the whole state of a partition must be as it
    was; `premises` has the part of it that is not in the changes. For a change that follows others of its plan on the
    same partition, the state before it is not known in advance: only the assignment and a live leader are checked.
    """

    def judge(change: Change) -> RowOutcome | None:
        partition, requested = current.partitions[change.key], current.requests.get(change.key)
        if change.action == Action.REASSIGN and requested == change.replicas_after:
            return _found_in_progress(change)
        judged = _judge_for_admin(change, partition)
        if judged is not None:
            return judged
        reason = _leaderless(partition.state, current.live) if change.action == Action.REASSIGN else None
        if change.action == Action.ELECT:
            reason = _unclean_moved(change, partition, current.live)
        reason = reason or _premise_moved(change, partition, premises)
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    return _split_due(changes, judge)


def is_unversioned(change: Change) -> bool:
    """Whether a change of an existing partition was planned without versions, so on its whole state."""
    return not change.is_new and change.state_version is None


def is_unclean(change: Change) -> bool:
    """Whether a change elects a replica that is not in sync, because none in sync is alive."""
    return change.action == Action.ELECT and change.leader_after not in (change.isr_before or ())


def state_of(partition: CurrentPartition) -> PartitionPremise | None:
    """Return the whole state of a partition as it is now; None if it does not exist or is not understood."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError:
        return None
    state = partition.state
    if assignment is None or state is None:
        return None
    lists = assignment.replicas, assignment.adding, assignment.removing
    return PartitionPremise(*lists, state.leader, state.leader_epoch, state.isr, partition.eligible)


def _unclean_moved(change: Change, partition: CurrentPartition, live: Collection[int]) -> str | None:
    """Say why an unclean election must not be requested any more, or would not elect the replica that was planned."""
    if back := [broker for broker in change.requires_dead if broker in live]:
        return reasons.BROKER_BACK.say(broker=back[0])
    now = state_of(partition)
    chosen = None if now is None else unclean_choice(now, partition.last_known, live)
    if chosen == change.leader_after:
        return None
    return reasons.OTHER_CHOICE.say(chosen=chosen, planned=change.leader_after)


def _premise_moved(change: Change, partition: CurrentPartition, premises: Premises) -> str | None:
    """Return what changed since the plan, where nothing has a version."""
    if not is_unversioned(change):
        return None
    planned, now = premises.of(change), state_of(partition)
    if now is None:
        return reasons.NOT_UNDERSTOOD.say(path=partition.path, fault=partition.content.reason)
    moved = None if planned is None else differences(planned, now)
    return None if moved is None else reasons.CHANGED_SINCE_PLAN.say(differences=moved)


def read_back(changes: Sequence[Change], current: CurrentState, premises: Premises) -> list[RowOutcome]:
    """Return the outcomes of accepted changes whose partitions show more than the request explains.

    What changed between the last check and the request is found so, where nothing has a version.
    """
    outcomes = []
    for change in changes:
        partition = current.partitions[change.key]
        planned, now = premises.of(change), state_of(partition)
        if now is not None and change.topic_id is not None and is_other_topic(change, partition.topic):
            reason = other_topic_reason(change, partition.topic)
            outcomes.append(RowOutcome(change, Outcome.FAILED, reasons.OTHER_TOPIC_ACCEPTED.say(cause=reason)))
            continue
        if planned is None or not is_unversioned(change):
            continue
        if now is None:
            outcomes.append(RowOutcome(change, Outcome.UNKNOWN, reasons.ACCEPTED_UNREAD.say()))
        elif change.action == Action.REASSIGN:
            if (found := unexplained_by_move(planned, now, change.replicas_after)) is not None:
                has_diverged = now.assignment.target != change.replicas_after
                outcome = Outcome.FAILED if has_diverged else Outcome.APPLIED
                outcomes.append(RowOutcome(change, outcome, reasons.ACCEPTED_CHANGED.say(differences=found)))
        elif (found := _unexplained_election(planned, now, change)) is not None:
            outcome = Outcome.APPLIED if now.leader == change.leader_after else Outcome.FAILED
            outcomes.append(RowOutcome(change, outcome, reasons.ACCEPTED_CHANGED.say(differences=found)))
    return outcomes


def _unexplained_election(planned: PartitionPremise, now: PartitionPremise, change: Change) -> str | None:
    unclean = change.action == Action.ELECT
    return unexplained_by_election(planned, now, change.leader_after, unclean=unclean)


def _leaderless(state: Leadership | None, live: Collection[int]) -> str | None:
    """Return why a partition must not be moved now: no live replica has its records, and an added replica would be
    empty.

    Kafka accepts such a request. If unclean elections are allowed, Kafka makes an empty replica the leader as soon as
    it can, and the records of the former ISR are lost.
    """
    if state is not None and state.leader in state.isr and state.leader in live:
        return None
    no_state = reasons.NO_STATE_NOW.say()
    current = no_state if state is None else reasons.LEADER_NOW.say(leader=state.leader, isr=state.isr)
    return reasons.MOVE_MAY_LOSE.say(state=current)


def _judge_for_admin(change: Change, partition: CurrentPartition) -> RowOutcome | None:
    topic = partition.topic
    if change.topic_version == NO_VERSION:
        return _creation_for_admin(change, topic)
    if adds_partition(change):
        return _expansion_for_admin(change, topic)
    try:
        assignment = partition.assignment
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, reasons.NOT_DECODED.say(path=topic.path, fault=error))
    if assignment is None:
        return RowOutcome(change, Outcome.STALE, reasons.NAMED_PARTITION_GONE.say(partition=change.name))
    judged = _reassigned(change, assignment) if change.action == Action.REASSIGN else _elected(change, partition.state)
    reason = _assignment_moved(change, topic, assignment)
    return RowOutcome(change, Outcome.STALE, reason) if judged is None and reason is not None else judged


def _assignment_moved(change: Change, topic: CurrentTopic, assignment: ReplicaAssignment) -> str | None:
    if assignment != (change.replicas_before, change.adding_before, change.removing_before):
        return reasons.REPLICAS_NOW.say(replicas=assignment.replicas)
    # a topic created before 2.8 may get its id from an upgraded controller; it is still the same topic
    is_replaced = change.topic_id is not None and is_other_topic(change, topic)
    return other_topic_reason(change, topic) if is_replaced else None


def _reassigned(change: Change, assignment: ReplicaAssignment) -> RowOutcome | None:
    status = status_towards(change.replicas_after, assignment)
    if status is ReassignmentStatus.DIVERGED:
        return None
    is_running = status is ReassignmentStatus.IN_PROGRESS
    return _found_in_progress(change) if is_running else _found_applied(change)


def _found_applied(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_APPLIED.say())


def _found_in_progress(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_IN_PROGRESS.say(), is_running=True)


def _elected(change: Change, state: Leadership | None) -> RowOutcome | None:
    if state is not None and state.leader == change.leader_after:
        return _found_applied(change)
    if state is None or state.leader != change.leader_before:
        return RowOutcome(change, Outcome.STALE, reasons.LEADER_CHANGED.say(leader=change.leader_before))
    return None


def _creation_for_admin(change: Change, topic: CurrentTopic) -> RowOutcome | None:
    """Judge the creation of a topic.

    An existing topic has an id set by Kafka: it counts as created if its replicas are the planned ones.
    """
    if not topic.exists:
        return None
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, reasons.NOT_DECODED.say(path=topic.path, fault=error))
    if assignment is not None and assignment.replicas == change.replicas_after:
        return _found_applied(change)
    return RowOutcome(change, Outcome.STALE, reasons.OTHER_TOPIC_EXISTS.say(topic=change.topic))


def _expansion_for_admin(change: Change, topic: CurrentTopic) -> RowOutcome | None:
    if _is_added(change, topic):
        return _found_applied(change)
    moved = _topic_moved(change, topic) or _taken(change, topic)
    return None if moved is None else RowOutcome(change, Outcome.STALE, moved)


def _taken(change: Change, topic: CurrentTopic) -> str | None:
    """Return why adding the partition is stale: it exists with other replicas, as the topic's version would show."""
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError as error:
        return reasons.NOT_DECODED.say(path=topic.path, fault=error)
    if assignment is None:
        return None
    return reasons.PARTITION_EXISTS.say(partition=change.partition, replicas=assignment.replicas)
