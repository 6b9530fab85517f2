"""How far a committed plan has come, change by change, as the cluster shows it now."""

from collections.abc import Collection, Sequence

from jobs.preconditions.change_preconditions import is_other_topic, other_topic_reason, state_now, turns_back
from jobs.preconditions.operations import differing_topics, outcome_of
from jobs.preconditions.reassignment_progress import planned_reassignment_status
from planner.reassignment.partition_rollback import steps_by_partition
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Leadership, OperationState
from schemas.enums import NO_VERSION, Action, OperationKind, Outcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Operation, PlanRow
from schemas.stored_plan import Plan
from schemas.text import abbreviate
from schemas.znode_codecs import MalformedZnodeError


def change_status(
    change: Change, steps: Sequence[Change], partition: CurrentPartition
) -> tuple[ReassignmentStatus, str]:
    """Return how far one change has come, with details.

    `steps` has all reassignments of its partition, wave by wave.
    """
    if (other := _other_partition(change, partition)) is not None:
        return ReassignmentStatus.DIVERGED, other
    if change.action == Action.REASSIGN:
        return planned_reassignment_status(change, steps, partition)
    if change.action == Action.CANCEL:
        return _cancellation_status(change, partition)
    state = partition.state
    if state is None:
        return (
            ReassignmentStatus.NOT_STARTED if change.is_new else ReassignmentStatus.DIVERGED,
            reasons.NO_STATE_NOW.render(),
        )
    return _status_by_state(change, steps, partition, state)


def _cancellation_status(change: Change, partition: CurrentPartition) -> tuple[ReassignmentStatus, str]:
    try:
        now = partition.assignment or ReplicaAssignment([])
    except MalformedZnodeError as error:
        return ReassignmentStatus.DIVERGED, reasons.NOT_DECODED.render(path=partition.topic.path, fault=error)
    detail = reasons.REPLICAS.render(replicas=now.replicas)
    if turns_back(change) and now == (change.replicas_before, change.adding_before, change.removing_before):
        return ReassignmentStatus.NOT_STARTED, detail
    is_back = {*now.replicas} == {*change.replicas_after} and not now.is_being_reassigned
    return ReassignmentStatus.COMPLETE if is_back else ReassignmentStatus.DIVERGED, detail


def _status_by_state(
    change: Change, steps: Sequence[Change], partition: CurrentPartition, state: Leadership
) -> tuple[ReassignmentStatus, str]:
    # without ZooKeeper, a new order of replicas does not raise the leader epoch
    is_epoch_unknown = change.leader_epoch_after is None or (bool(steps) and partition.topic.is_unversioned)
    if change.action == Action.ELECT_PREFERRED and is_epoch_unknown:
        return _election_after(change, steps, partition, state)
    detail = state_now(state)
    if (back := _drained_in_isr(change, state)) is not None:
        return ReassignmentStatus.DIVERGED, f"broker {back} is in the ISR again: {detail}"
    before, after, current = change.leader_epoch_before, change.leader_epoch_after, state.leader_epoch
    if state.leader == change.leader_after and after is not None and current is not None and current >= after:
        return ReassignmentStatus.COMPLETE, detail
    # a change of a later wave has a `leader_epoch_before` that the partition may not have reached yet
    if not change.is_new and before is not None and current is not None and current <= before:
        return ReassignmentStatus.NOT_STARTED, detail
    return ReassignmentStatus.DIVERGED, detail


def _drained_in_isr(change: Change, state: Leadership) -> int | None:
    """Return a broker that a drain has taken out of the ISR and that is in it again."""
    if change.action not in {Action.CONTROLLED_SHUTDOWN, Action.STOP_REPLICA}:
        return None
    if state.leader_epoch is None or state.leader_epoch < (change.leader_epoch_after or 0):
        return None
    stopped = {*(change.stop_replica_to or ()), *(change.isr_before or ())} - {*change.isr_after}
    return min(stopped & {*state.isr}, default=None)


def _other_partition(change: Change, partition: CurrentPartition) -> str | None:
    """Return why a partition is another one than the change's, or was created on other replicas; None if it is not.

    Kafka gives a new topic an id of its own, and a topic without an id may get one.
    """
    topic = partition.topic
    if change.topic_version != NO_VERSION and change.topic_id is not None and is_other_topic(change, topic):
        return other_topic_reason(change, topic)
    if change.action != Action.CREATE:
        return None
    try:
        assignment = partition.assignment
    except MalformedZnodeError as error:
        return reasons.NOT_DECODED.render(path=topic.path, fault=error)
    if assignment is None or assignment.replicas == change.replicas_after:
        return None
    return reasons.REPLICAS_NOW.render(replicas=assignment.replicas)


def _election_after(
    change: Change, steps: Sequence[Change], partition: CurrentPartition, state: Leadership
) -> tuple[ReassignmentStatus, str]:
    """Status of an election that follows reassignments, whose leader epochs cannot be known in advance."""
    detail = state_now(state)
    if steps and planned_reassignment_status(steps[-1], steps, partition)[0] is not ReassignmentStatus.COMPLETE:
        return ReassignmentStatus.NOT_STARTED, f"{detail}: its replicas are not there yet"
    if state.leader == change.leader_after:
        return ReassignmentStatus.COMPLETE, detail
    return (
        ReassignmentStatus.NOT_STARTED if state.leader == change.leader_before else ReassignmentStatus.DIVERGED,
        detail,
    )


def operation_status(
    operation: Operation, current: OperationState, live: Collection[int]
) -> tuple[ReassignmentStatus, str]:
    """Return how far an operation has come, and the details; `live` has the registered brokers."""
    outcome, topic = outcome_of(operation, current), current.topics[operation.topic].topic
    if outcome is None and operation.action == OperationKind.DELETE_REPLICAS:
        return ReassignmentStatus.IN_PROGRESS, "queued for deletion, and still exists"
    if outcome is None:
        return ReassignmentStatus.NOT_STARTED, "unchanged since the plan was made"
    if outcome.outcome is not Outcome.APPLIED:
        return ReassignmentStatus.DIVERGED, outcome.message
    in_progress = operation.action == OperationKind.DELETE_TOPIC and topic.exists
    if not in_progress:
        return ReassignmentStatus.COMPLETE, outcome.message
    return ReassignmentStatus.IN_PROGRESS, f"{outcome.message}{_waits_for(topic, live)}"


def _waits_for(topic: CurrentTopic, live: Collection[int]) -> str:
    """Name the brokers that hold a replica of a queued topic and are not live: the deletion waits for each."""
    if topic.content.value is None:
        return f"; its znode is not understood ({topic.content.reason})"
    assigned = topic.content.value.partitions.values()
    absent = {broker for replicas in assigned for broker in replicas if broker not in live}
    if not absent:
        return ""
    noun = "brokers" if len(absent) > 1 else "broker"
    return f"; it waits for {noun} {abbreviate(sorted(absent))}, not live: start it"


def verify_plan(
    plan: Plan, current: CurrentState, operations: OperationState
) -> list[tuple[PlanRow, ReassignmentStatus, str]]:
    """Return the status of each change and operation, with details.

    `operations` has the topics of all operations. A partition of a topic that is created or expanded is complete only
    if its topic has the planned number of partitions and configs.
    """
    steps_by_key = steps_by_partition(plan.changes)
    differing = differing_topics(plan, operations)
    changes = [
        (change, ReassignmentStatus.DIVERGED, differing[change.topic])
        if status is ReassignmentStatus.COMPLETE and change.action == Action.CREATE and change.topic in differing
        else (change, status, detail)
        for change in plan.changes
        for status, detail in (change_status(change, steps_by_key.get(change.key, ()), current.partitions[change.key]),)
    ]
    return [*changes, *((task, *operation_status(task, operations, current.live)) for task in plan.tasks)]
