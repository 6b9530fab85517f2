"""Whether a change may still be requested from Kafka's controller, which decides on ISR and epochs itself.

The counterpart of `jobs.preconditions.change_preconditions` for admin mode. The assignment, and for an election the
leader, must be as in the plan's snapshot. `Preconditions.broken` decides on brokers and deletions as in batch mode.
"""

from collections.abc import Collection, Sequence

from jobs.preconditions.cancellation_plan import check_cancellation
from jobs.preconditions.change_preconditions import (
    Preconditions,
    adds_partition,
    is_added,
    is_other_topic,
    other_topic_reason,
    split_due,
    topic_moved,
)
from jobs.preconditions.planned_registrations import (
    NO_REGISTRATIONS,
    PlannedRegistrations,
    current_registration,
    is_unversioned,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from planner.reassignment.registration_differences import differences, unclean_choice
from planner.rules.inputs import has_live_leader
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Leadership
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change
from schemas.stored_plan import RowOutcome
from schemas.text import join_ids
from schemas.znode_codecs import MalformedZnodeError


def check_for_admin(
    changes: Sequence[Change],
    current: CurrentState,
    registrations: PlannedRegistrations = NO_REGISTRATIONS,
    preconditions: Preconditions | None = None,
) -> tuple[list[Change], list[RowOutcome]]:
    """Check changes that are requested from Kafka's controller, which decides on ISR and epochs itself.

    A change is pending while its brokers and the assignment, and for an election the leader, are as in the plan's
    snapshot. A reassignment also needs a live leader in the ISR. Without versions, the whole state of a partition must
    be unchanged; `registrations` has the part of the state that changes do not contain. If a change follows others of
    its plan on the same partition, only the brokers, the assignment and a live leader are checked, because the state
    before the change is not known in advance. `preconditions` are the preconditions of all changes of the plan.
    """
    of_changes = preconditions or Preconditions.in_admin_mode(changes, current)

    def check(change: Change) -> RowOutcome | None:
        if change.action == Action.CANCEL:
            return check_cancellation(change, current)
        partition, requested = current.partitions[change.key], current.requests.get(change.key)
        if change.action == Action.REASSIGN and requested == change.replicas_after:
            return _found_in_progress(change)
        outcome = _check_for_admin(change, partition)
        if outcome is not None:
            return outcome
        reason = of_changes.broken(change)
        if change.action == Action.REASSIGN:
            reason = reason or _leaderless(partition.state, current.live)
        elif change.action != Action.CREATE:
            reason = reason or _leader_moved(change, partition.state)
        if change.action == Action.ELECT:
            reason = reason or _other_choice(change, partition, current.live)
        reason = reason or _changed_since_planned(change, partition, registrations)
        return None if reason is None else RowOutcome(change, Outcome.STALE, reason)

    return split_due(changes, check)


def _leader_moved(change: Change, state: Leadership | None) -> str | None:
    if state is not None and state.leader == change.leader_before:
        return None
    return f"the leader is no longer {change.leader_before}"


def _other_choice(change: Change, partition: CurrentPartition, live: Collection[int]) -> str | None:
    """Return why an unclean election would not elect the planned replica."""
    now = current_registration(partition)
    chosen = None if now is None else unclean_choice(now, partition.last_known, live)
    if chosen == change.leader_after:
        return None
    return f"the controller would elect {chosen}, and {change.leader_after} was planned"


def _changed_since_planned(
    change: Change, partition: CurrentPartition, registrations: PlannedRegistrations
) -> str | None:
    """Return the changes since the plan in a cluster without versions."""
    if not is_unversioned(change):
        return None
    planned, now = registrations.of(change), current_registration(partition)
    if now is None:
        return reasons.NOT_UNDERSTOOD.render(path=partition.path, fault=partition.content.reason)
    moved = None if planned is None else differences(planned, now)
    return None if moved is None else f"changed since the plan: {moved}"


def _leaderless(state: Leadership | None, live: Collection[int]) -> str | None:
    """Return why a partition must not be moved now: no live replica has its records, and an added replica would be
    empty.

    Kafka accepts such a request. If unclean elections are allowed, Kafka makes an empty replica the leader as soon as
    it can, and the records of the former ISR are lost.
    """
    if state is not None and has_live_leader(state.leader, state.isr, live):
        return None
    no_state = reasons.NO_STATE_NOW.render()
    current = no_state if state is None else f"leader {state.leader}, ISR [{join_ids(state.isr)}]"
    return (
        f"no live leader is in its ISR ({current}): moving it may lose its records; elect a leader first, "
        "`surveyor status` shows how"
    )


def _check_for_admin(change: Change, partition: CurrentPartition) -> RowOutcome | None:
    topic = partition.topic
    if change.topic_version == NO_VERSION:
        return _creation_for_admin(change, topic)
    if adds_partition(change):
        return _expansion_for_admin(change, topic)
    try:
        assignment = partition.assignment
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, reasons.NOT_DECODED.render(path=topic.path, fault=error))
    if assignment is None:
        return RowOutcome(change, Outcome.STALE, f"{change.name} is gone")
    # a topic created before 2.8 may get its id from an upgraded controller; it is still the same topic
    if change.topic_id is not None and is_other_topic(change, topic):
        return RowOutcome(change, Outcome.STALE, other_topic_reason(change, topic))
    return _check_assigned(change, partition, assignment)


def _check_assigned(change: Change, partition: CurrentPartition, assignment: ReplicaAssignment) -> RowOutcome | None:
    outcome = _reassigned(change, assignment) if change.action == Action.REASSIGN else _elected(change, partition.state)
    if outcome is None and assignment != (change.replicas_before, change.adding_before, change.removing_before):
        return RowOutcome(change, Outcome.STALE, reasons.REPLICAS_NOW.render(replicas=assignment.replicas))
    return outcome


def _reassigned(change: Change, assignment: ReplicaAssignment) -> RowOutcome | None:
    status = status_towards(change.replicas_after, assignment)
    if status is ReassignmentStatus.DIVERGED:
        return None
    is_running = status is ReassignmentStatus.IN_PROGRESS
    return _found_in_progress(change) if is_running else _found_applied(change)


def _found_applied(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, reasons.FOUND_APPLIED.render())


def _found_in_progress(change: Change) -> RowOutcome:
    return RowOutcome(change, Outcome.APPLIED, "found in progress", is_running=True)


def _elected(change: Change, state: Leadership | None) -> RowOutcome | None:
    return _found_applied(change) if state is not None and state.leader == change.leader_after else None


def _creation_for_admin(change: Change, topic: CurrentTopic) -> RowOutcome | None:
    """Check the creation of a topic.

    An existing topic has an id set by Kafka: it counts as created if its replicas are the planned ones.
    `jobs.preconditions.operations` then compares its number of partitions and its configs.
    """
    if not topic.exists:
        return None
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError as error:
        return RowOutcome(change, Outcome.STALE, reasons.NOT_DECODED.render(path=topic.path, fault=error))
    if assignment is not None and assignment.replicas == change.replicas_after:
        return _found_applied(change)
    return RowOutcome(change, Outcome.STALE, reasons.OTHER_TOPIC_EXISTS.render(topic=change.topic))


def _expansion_for_admin(change: Change, topic: CurrentTopic) -> RowOutcome | None:
    if is_added(change, topic):
        return _found_applied(change)
    moved = topic_moved(change, topic) or _taken(change, topic)
    return None if moved is None else RowOutcome(change, Outcome.STALE, moved)


def _taken(change: Change, topic: CurrentTopic) -> str | None:
    """Return why adding the partition is stale: it exists with other replicas, as the topic's version would show."""
    try:
        assignment = topic.assigned(change.partition)
    except MalformedZnodeError as error:
        return reasons.NOT_DECODED.render(path=topic.path, fault=error)
    if assignment is None:
        return None
    return reasons.PARTITION_EXISTS.render(partition=change.partition, replicas=assignment.replicas)
