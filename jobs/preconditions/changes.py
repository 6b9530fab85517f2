"""Whether a change may still be written: compare the current state with what the plan was computed from.

A change is already applied if leader, ISR and leader epoch are the `_after` values at the version after. It is stale if
a version has moved on, if a broker that it requires has left or registered again, or if a broker that must be dead has
returned. Otherwise it is pending.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentTopic, Leadership
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.plan import Plan, RowOutcome
from schemas.rows import Change, Key
from schemas.znode_codecs import MalformedZnodeError


def split_due(
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
        judged = [(change, self._deleted(change) or self._brokers_moved(change)) for change in changes]
        stale = [RowOutcome(change, Outcome.STALE, reason) for change, reason in judged if reason is not None]
        return [change for change, reason in judged if reason is None], stale

    def judge(
        self, changes: Sequence[Change], partitions: Mapping[Key, CurrentPartition]
    ) -> tuple[list[Change], list[RowOutcome]]:
        """Return the pending changes, and the outcomes of the others."""
        return split_due(changes, lambda change: self._judge(change, partitions[change.key]))

    def _judge(self, change: Change, partition: CurrentPartition) -> RowOutcome | None:
        if is_applied(change, partition) and not is_other_creation(change, partition.topic):
            return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_APPLIED.render(), partition.version, is_found=True)
        reason = (
            self._deleted(change)
            or topic_moved(change, partition.topic)
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
        return reasons.TOPIC_QUEUED.render(topic=change.topic) if change.topic in self.deleting else None

    def _brokers_moved(self, change: Change) -> str | None:
        for broker in change.requires_live:
            if broker not in self.live:
                return reasons.BROKER_GONE.render(broker=broker)
            if self.live[broker] != self.planned_epochs.get(broker):
                return reasons.BROKER_RESTARTED.render(broker=broker)
        back = [broker for broker in change.requires_dead if broker in self.live]
        return reasons.BROKER_BACK.render(broker=back[0]) if back else None


def is_applied(change: Change, partition: CurrentPartition) -> bool:
    """Return whether a state is the one that this change writes, at the version of that write."""
    state = partition.state
    if state is None or change.state_version is None or partition.version != change.state_version + 1:
        return False
    after = (change.leader_after, change.isr_after, change.leader_epoch_after)
    return bool((state.leader, state.isr, state.leader_epoch) == after)


def is_other_topic(change: Change, topic: CurrentTopic) -> bool:
    """Return whether the topic of this name is another one than the change's.

    A topic that was created again starts with version 0 again, so versions do not suffice to detect it.
    """
    content = topic.content.value
    return topic.exists and (content is None or content.topic_id != change.topic_id)


def other_topic_reason(change: Change, topic: CurrentTopic) -> str:
    """Return what happened to the topic of a change."""
    content = topic.content.value
    if content is None:
        return reasons.NOT_UNDERSTOOD.render(path=topic.path, fault=topic.content.reason)
    return reasons.other_topic(f"topic {change.topic}", change.topic_id, content.topic_id)


def is_other_creation(change: Change, topic: CurrentTopic) -> bool:
    """Return whether an existing topic is another one than the planned one.

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
    """Return whether a change creates a partition that its existing topic does not assign yet."""
    new = change.action == Action.CREATE and change.topic_version != NO_VERSION
    return bool(new and change.replicas_before is None)


def is_unclean(change: Change) -> bool:
    """Return whether a change elects a replica that is not in sync, because none in sync is live."""
    return change.action == Action.ELECT and change.leader_after not in (change.isr_before or ())


def reassigns(change: Change) -> bool:
    """Return whether a change, written in batch mode, sets a new assignment of an existing partition."""
    return change.action in {Action.START_REASSIGNMENT, Action.END_REASSIGNMENT}


def is_added(change: Change, topic: CurrentTopic) -> bool:
    """Return whether the topic already assigns a partition as planned, perhaps by a commit that was interrupted."""
    if not adds_partition(change) or is_other_topic(change, topic):
        return False
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError:
        return False
    return assignment is not None and assignment.replicas == change.replicas_after


def topic_moved(change: Change, topic: CurrentTopic) -> str | None:
    if change.topic_version == NO_VERSION:
        return reasons.OTHER_TOPIC_EXISTS.render(topic=change.topic) if is_other_creation(change, topic) else None
    if not topic.exists:
        return reasons.TOPIC_GONE.render(topic=change.topic)
    if is_added(change, topic):
        return None
    if topic.version != change.topic_version and not topic.is_forbidden:
        return reasons.OTHER_VERSION.render(path=topic.path, version=topic.version, planned=change.topic_version)
    if adds_partition(change) or reassigns(change):
        reason = _unread_fields(topic)
        if reason:
            return reasons.PARTLY_UNDERSTOOD.render(path=topic.path, fault=reason)
    return other_topic_reason(change, topic) if is_other_topic(change, topic) else None


def _unread_fields(topic: CurrentTopic) -> str:
    """Return why the topic id or the moves of a topic are unknown, empty if they are known."""
    content = topic.content.value
    return topic.content.reason if content is None else "; ".join(part.reason for part in content.unread_fields)


def _state_moved(change: Change, partition: CurrentPartition) -> str | None:
    version, state = NO_VERSION if partition.version is None else partition.version, partition.state
    if partition.version is not None and state is None:
        return reasons.NOT_UNDERSTOOD.render(path=partition.path, fault=partition.content.reason)
    if version == change.state_version and (version == NO_VERSION or _is_before(change, state)):
        return None
    moved = reasons.OTHER_VERSION.render(path=partition.path, version=version, planned=change.state_version)
    return moved if state is None else reasons.WITH_STATE.render(reason=moved, state=state_now(state))


def state_now(state: Leadership) -> str:
    """Return a state as a detail of a message."""
    return reasons.STATE_NOW.render(leader=state.leader, isr=state.isr, leader_epoch=state.leader_epoch)


def _is_before(change: Change, state: Leadership | None) -> bool:
    """Return whether a state is the one planned from; the state of a topic created again can have the same version."""
    before = (change.leader_before, change.isr_before, change.leader_epoch_before)
    return state is not None and bool((state.leader, state.isr, state.leader_epoch) == before)
