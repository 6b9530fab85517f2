"""The progress of a plan's reassignments, and other reassignments that run, wait or cannot be carried out.

Since 2.4 Kafka's controller stores adding and removing replicas before it begins
(`KafkaController.onPartitionReassignment`); of older ones only the requests are known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.reassignment.partition_rollback import steps_of
from planner.reassignment.reassignment_status import ReassignmentStatus, status_of, status_towards
from planner.reassignment.stalled_reassignments import BlockedReassignment, describe_reassignment
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState
from schemas.enums import Action
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key
from schemas.stored_plan import Plan
from schemas.text import join_ids
from schemas.znode_codecs import MalformedZnodeError
from schemas.znode_paths import REASSIGN_PARTITIONS


def reassignments_of(plan: Plan) -> list[Change]:
    """Return the reassignments of a plan, wave by wave."""
    return [change for change in plan.changes if change.action == Action.REASSIGN]


def reassignment_statuses(
    changes: Sequence[Change], requested: Sequence[Change], current: CurrentState
) -> Iterator[tuple[Change, ReassignmentStatus, str]]:
    """Yield the status of each of these reassignments, and the detail that shows it.

    `requested` has all reassignments that are known to be requested. A reassignment is also complete if its partition
    has the target of a later wave's request. It has diverged if another client has cancelled it or moves its partition.
    """
    requested_by_key: dict[Key, list[Change]] = {}
    for change in requested:
        requested_by_key.setdefault(change.key, []).append(change)
    for change in changes:
        later_targets = [row.replicas_after for row in requested_by_key.get(change.key, ()) if row.wave > change.wave]
        yield change, *_requested_reassignment_status(change, current, later_targets)


def planned_reassignment_status(
    change: Change, steps: Sequence[Change], partition: CurrentPartition
) -> tuple[ReassignmentStatus, str]:
    """Return how far a reassignment has come among all steps of its partition, and the detail that shows it.

    Nothing needs to be requested. A partition that moves to the target from other replicas than planned has diverged.
    """
    current, detail = _current_assignment(partition)
    if current is None:
        return ReassignmentStatus.DIVERGED, detail
    status, current_step = status_of(steps_of(steps), current)
    if status is ReassignmentStatus.DIVERGED:
        return ReassignmentStatus.DIVERGED, detail
    steps_ahead = steps.index(change) - current_step
    if status is ReassignmentStatus.COMPLETE or steps_ahead < 0:
        return ReassignmentStatus.COMPLETE, detail
    if status is ReassignmentStatus.IN_PROGRESS and steps_ahead == 0:
        lagging = partition.lagging(change.replicas_after)
        return (
            ReassignmentStatus.IN_PROGRESS,
            f"replicas [{join_ids(current.replicas)}], not yet in sync [{join_ids(lagging)}]",
        )
    return ReassignmentStatus.NOT_STARTED, detail


def _requested_reassignment_status(
    change: Change, current: CurrentState, later_targets: Sequence[list[int]]
) -> tuple[ReassignmentStatus, str]:
    """Return how far a requested reassignment has come, from whatever replicas, and the detail that shows it."""
    goal, partition = change.replicas_after, current.partitions[change.key]
    assignment, detail = _current_assignment(partition)
    if assignment is None:
        return ReassignmentStatus.DIVERGED, detail
    if current.requests.get(change.key) == goal:
        return ReassignmentStatus.IN_PROGRESS, "requested"
    status = status_towards(goal, assignment)
    if status is ReassignmentStatus.DIVERGED:
        return (
            ReassignmentStatus.COMPLETE if assignment.target in later_targets else status,
            reasons.REPLICAS_NOW.render(replicas=assignment.replicas),
        )
    missing = partition.lagging(goal)
    if status is ReassignmentStatus.IN_PROGRESS or (change.moves_replicas and missing):
        return ReassignmentStatus.IN_PROGRESS, f"not yet in sync: [{join_ids(missing)}]"
    return status, detail


def _current_assignment(partition: CurrentPartition) -> tuple[ReplicaAssignment | None, str]:
    """Return the assignment and its replicas as text; None and the reason if it is not decoded or does not exist."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError as error:
        return None, str(error)
    if assignment is None:
        return None, reasons.PARTITION_GONE.render()
    return assignment, reasons.REPLICAS.render(replicas=assignment.replicas)


@dataclass(frozen=True, slots=True)
class Reassignments:
    """All reassignments of a cluster that run or are requested, and the znodes that could not be read."""

    understood: list[BlockedReassignment]
    not_understood: list[str]
    """Znodes that cannot be decoded, each with the reason."""


def classify(current: CurrentReassignments) -> Reassignments:
    """Find what keeps each reassignment from moving."""
    empty_request = (
        f"{REASSIGN_PARTITIONS} (Kafka treats it as empty; `delete {REASSIGN_PARTITIONS}` in zookeeper-shell clears it)"
    )
    not_understood = [empty_request] if current.requests is None else []
    understood = [
        _classify(key, partition, current)
        for key, partition in current.partitions.items()
        if not _has_ended(key, partition, current)
    ]
    return Reassignments(understood, [*not_understood, *current.not_understood])


def _has_ended(key: Key, partition: CurrentPartition, current: CurrentReassignments) -> bool:
    """Return whether a reassignment has ended since it was listed: its partition was read later."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError:
        return False
    return key not in (current.requests or {}) and (assignment is None or not assignment.is_being_reassigned)


@dataclass(frozen=True, slots=True)
class OtherReassignments:
    """The reassignments that are not part of a plan, if the plan has to copy replicas."""

    in_the_way: Sequence[BlockedReassignment] = ()
    """Reassignments that copy replicas and share a topic or a broker with a pending change that copies replicas."""
    running: Sequence[BlockedReassignment] = ()
    stalled: Sequence[BlockedReassignment] = ()
    not_understood: Sequence[str] = ()
    """Znodes that cannot be decoded, each with the reason."""


def others_than(plan: Plan, pending: Sequence[Change], reassignments: Reassignments) -> OtherReassignments:
    """Return the reassignments of a cluster that are not part of a plan; none if no pending change copies replicas."""
    copying = [change for change in pending if change.action == Action.REASSIGN and change.moves_replicas]
    if not copying:
        return OtherReassignments()
    own_targets: dict[Key, list[list[int]]] = {}
    for change in reassignments_of(plan):
        own_targets.setdefault(change.key, []).append(change.replicas_after)
    others = [
        other
        for other in reassignments.understood
        if list(other.goal) not in own_targets.get((other.topic, other.partition), [])
    ]
    topics = {change.topic for change in copying}
    brokers = {broker for change in copying for broker in (*(change.replicas_before or ()), *change.replicas_after)}
    running = [other for other in others if other.obstacle is None]
    return OtherReassignments(
        in_the_way=[other for other in running if other.copies and (other.topic in topics or other.brokers & brokers)],
        running=running,
        stalled=[other for other in others if other.obstacle is not None],
        not_understood=reassignments.not_understood,
    )


def _classify(key: Key, partition: CurrentPartition, current: CurrentReassignments) -> BlockedReassignment:
    requests = current.requests or {}
    try:
        assignment = partition.assignment
    except MalformedZnodeError:  # Kafka's controller has the assignment in memory and may be moving it
        goal = tuple(requests.get(key, current.moving.get(key, ())))
        return BlockedReassignment(*key, goal, frozenset(goal))
    deleting = key[0] in current.deleting
    request = requests.get(key)
    return describe_reassignment(
        key, assignment, request, partition.isr, current.live, deleting=deleting, ignored=current.ignored
    )
