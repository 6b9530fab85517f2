"""The status of a change by the cluster's current state: pending, already applied or stale.

A change is already applied if leader, ISR and leader epoch are the `_after` values at the version after. It is stale if
a version has moved on, if a broker that it requires has left or registered again, or if a broker that must be dead has
returned. Otherwise it is pending. `Preconditions.broken` decides on brokers and deletions in every mode, also for
`jobs.preconditions.admin_changes`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from jobs.preconditions.broker_assumptions import UNCHANGED, BrokersSincePlan
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Leadership
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.rows import Change, ChangeSummary, Key, Place
from schemas.stored_plan import RowOutcome
from schemas.znode_codecs import MalformedZnodeError

BrokersByChange = Mapping[Place | None, Sequence[int]]


def split_due(
    changes: Sequence[Change], check: Callable[[Change], RowOutcome | None]
) -> tuple[list[Change], list[RowOutcome]]:
    """Split the changes into pending ones and outcomes."""
    pending: list[Change] = []
    outcomes: list[RowOutcome] = []
    for change in changes:
        outcome = check(change)
        if outcome is None:
            pending.append(change)
        else:
            outcomes.append(outcome)
    return pending, outcomes


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The requirements of changes on brokers and topic deletions, with the current state of both."""

    live: Collection[int]
    deleting: Collection[str]
    restarted: Collection[int] = ()
    """Live brokers whose epoch is not the planned one. None in admin mode: Kafka's controller writes the epochs."""
    live_for_others: BrokersByChange = field(default_factory=dict)
    dead_for_others: BrokersByChange = field(default_factory=dict)
    """Brokers that a change requires to be live or dead because of other changes, as `required_by_others`."""
    since: BrokersSincePlan = UNCHANGED
    """Racks and drains, as far as they were compared; a commit does that once, before its first write or request."""

    @classmethod
    def in_batch_mode(
        cls,
        planned: Mapping[int, int | None],
        changes: Sequence[Change],
        live: Mapping[int, int | None],
        deleting: Collection[str],
        since: BrokersSincePlan = UNCHANGED,
    ) -> "Preconditions":
        """Return the preconditions of some changes; `planned` and `live` have the broker epochs then and now."""
        restarted = {broker for broker, epoch in live.items() if epoch != planned.get(broker)}
        return cls(live, frozenset(deleting), restarted, *required_by_others(changes), since)

    @classmethod
    def in_admin_mode(
        cls, changes: Sequence[Change], current: CurrentState, since: BrokersSincePlan = UNCHANGED
    ) -> "Preconditions":
        return cls(current.live, current.deleting, (), *required_by_others(changes), since)

    def still_hold(self, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
        """Check changes by brokers and deletions only."""

        def check(change: Change) -> RowOutcome | None:
            reason = self.broken(change)
            return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

        return split_due(changes, check)

    def check(
        self, changes: Sequence[Change], partitions: Mapping[Key, CurrentPartition]
    ) -> tuple[list[Change], list[RowOutcome]]:
        """Return the pending changes, and the outcomes of the others, in batch mode."""
        return split_due(changes, lambda change: self._check(change, partitions[change.key]))

    def _check(self, change: Change, partition: CurrentPartition) -> RowOutcome | None:
        topic = partition.topic
        if is_applied(change, partition) and not is_other_creation(change, topic):
            return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_APPLIED.render(), partition.version, is_found=True)
        is_begun = topic.exists if change.topic_version == NO_VERSION else is_added(change, topic)
        reason = topic_moved(change, topic) or self.broken(change, is_begun=is_begun) or _state_moved(change, partition)
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    def broken(self, change: ChangeSummary, *, is_begun: bool = False) -> str | None:
        """Return the precondition of a change that no longer holds, None if all hold.

        `is_begun`: the topic or partition that it creates exists already, so the rest is created as far as possible.
        """
        if change.topic in self.deleting and change.action not in ENDS_REASSIGNMENT:
            return f"topic {change.topic} is queued for deletion"
        place = None if is_begun else change.place
        for broker in (*change.requires_live, *self.live_for_others.get(place, ())):
            if broker not in self.live:
                return f"broker {broker} is not live"
            if broker in self.restarted:
                return f"broker {broker} registered again since the snapshot"
        dead = (*change.requires_dead, *self.dead_for_others.get(place, ()))
        back = [broker for broker in dead if broker in self.live]
        return reasons.BROKER_BACK.render(broker=back[0]) if back else self.since.unsuitable(change)


ENDS_REASSIGNMENT: Final = frozenset({Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT})
"""Steps that the deletion of a topic waits for."""


def required_by_others(changes: Sequence[ChangeSummary]) -> tuple[BrokersByChange, BrokersByChange]:
    """Return the brokers that must be live and those that must be dead for a change because of others.

    A topic, or the partitions added to it, are created as a whole or not at all. A partition is not moved to where its
    next move cannot begin: a change requires what later waves of its partition require.
    """
    return _required(changes, attrgetter("requires_live")), _required(changes, attrgetter("requires_dead"))


def _required(
    changes: Sequence[ChangeSummary], brokers_of: Callable[[ChangeSummary], Sequence[int]]
) -> BrokersByChange:
    """Return the brokers that others require, without those that the change requires itself."""
    created: dict[str, set[int]] = defaultdict(set)
    later: dict[Key, set[int]] = defaultdict(set)
    required: dict[Place | None, Sequence[int]] = {}
    for change in filter(creates, changes):
        created[change.topic].update(brokers_of(change))
    for change in sorted(changes, key=attrgetter("wave"), reverse=True):
        others = created[change.topic] if creates(change) else later[change.topic, change.partition]
        if more := others.difference(brokers_of(change)):
            required[change.place] = sorted(more)
        others.update(brokers_of(change))
    return required


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


def adds_partition(change: ChangeSummary) -> bool:
    """Return whether a change creates a partition that its existing topic does not assign yet."""
    new = change.action == Action.CREATE and change.topic_version != NO_VERSION
    return bool(new and change.replicas_before is None)


def creates(change: ChangeSummary) -> bool:
    """Return whether a change creates a partition, with its topic or in addition to the topic's partitions."""
    return change.topic_version == NO_VERSION or adds_partition(change)


def turns_back(change: Change) -> bool:
    """Return whether a cancellation turns a reassignment back.

    Otherwise nothing moved when it was planned, and Kafka's controller is asked only because it then watches /admin
    again, from which a request was removed.
    """
    return bool(change.adding_before or change.removing_before)


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
        return f"topic {change.topic} is gone"
    if is_added(change, topic):
        return None
    if topic.version != change.topic_version and not topic.is_forbidden:
        return reasons.OTHER_VERSION.render(path=topic.path, version=topic.version, planned=change.topic_version)
    if adds_partition(change) or reassigns(change):
        reason = _unread_fields(topic)
        if reason:
            return f"{topic.path} is not written, because a part of it is not understood ({reason})"
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
