"""How far a committed plan has come, change by change, as the cluster shows it now."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.preconditions.changes import state_now
from jobs.preconditions.operations import outcome_of
from jobs.preconditions.running_reassignments import planned_reassignment_status
from planner.placement.plan_figures import Figures, spans_of
from planner.reassignment.partition_rollback import steps_by_partition
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Leadership, OperationState
from schemas.enums import NO_LEADER, Action, OperationKind, Outcome
from schemas.plan import Plan
from schemas.rows import Change, Key, Operation, PlanRow
from schemas.text import abbreviate
from schemas.znode_codecs import MalformedZnodeError


def change_status(
    change: Change, steps: Sequence[Change], partition: CurrentPartition
) -> tuple[ReassignmentStatus, str]:
    """Return how far one change has come, with details.

    `steps` has all reassignments of its partition, wave by wave.
    """
    if change.action == Action.REASSIGN:
        return planned_reassignment_status(change, steps, partition)
    state = partition.state
    if state is None:
        return (
            ReassignmentStatus.NOT_STARTED if change.is_new else ReassignmentStatus.DIVERGED,
            reasons.NO_STATE_NOW.render(),
        )
    # without ZooKeeper, a new order of replicas does not raise the leader epoch
    is_epoch_unknown = change.leader_epoch_after is None or (bool(steps) and partition.topic.is_unversioned)
    if change.action == Action.ELECT_PREFERRED and is_epoch_unknown:
        return _election_after(change, steps, partition, state)
    detail = state_now(state)
    before, after, current = change.leader_epoch_before, change.leader_epoch_after, state.leader_epoch
    if state.leader == change.leader_after and after is not None and current is not None and current >= after:
        return ReassignmentStatus.COMPLETE, detail
    # a change of a later wave has a `leader_epoch_before` that the partition may not have reached yet
    if not change.is_new and before is not None and current is not None and current <= before:
        return ReassignmentStatus.NOT_STARTED, detail
    return ReassignmentStatus.DIVERGED, detail


def _election_after(
    change: Change, steps: Sequence[Change], partition: CurrentPartition, state: Leadership
) -> tuple[ReassignmentStatus, str]:
    """Status of an election that follows reassignments, whose leader epochs cannot be known in advance."""
    detail = state_now(state)
    if steps and planned_reassignment_status(steps[-1], steps, partition)[0] is not ReassignmentStatus.COMPLETE:
        return ReassignmentStatus.NOT_STARTED, reasons.REPLICAS_PENDING.render(state=detail)
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
        return ReassignmentStatus.IN_PROGRESS, reasons.QUEUED_AND_EXISTS.render()
    if outcome is None:
        return ReassignmentStatus.NOT_STARTED, reasons.UNCHANGED.render()
    if outcome.outcome is not Outcome.APPLIED:
        return ReassignmentStatus.DIVERGED, outcome.message
    in_progress = operation.action == OperationKind.DELETE_TOPIC and topic.exists
    if not in_progress:
        return ReassignmentStatus.COMPLETE, outcome.message
    return ReassignmentStatus.IN_PROGRESS, f"{outcome.message}{_waits_for(topic, live)}"


def _waits_for(topic: CurrentTopic, live: Collection[int]) -> str:
    """Name the brokers that hold a replica of a queued topic and are not live: the deletion waits for each."""
    if topic.content.value is None:
        return reasons.TOPIC_UNREAD.render(fault=topic.content.reason)
    assigned = topic.content.value.partitions.values()
    absent = {broker for replicas in assigned for broker in replicas if broker not in live}
    if not absent:
        return ""
    noun = "brokers" if len(absent) > 1 else "broker"
    return reasons.DELETION_WAITS.render(noun=noun, absent=abbreviate(sorted(absent)))


def current_evenness(counted: Sequence[int], current: Mapping[Key, CurrentPartition], snapshot: pa.Table) -> Figures:
    """Return the least and most replicas and leaders that a broker of `counted` has now.

    `current` has the partitions of the plan. The other partitions come from `snapshot`, with topic, partition, replicas
    and leader.
    """
    plan_partitions = {key: _held_and_led(partition) for key, partition in current.items()}
    keys = zip(snapshot["topic"].to_pylist(), snapshot["partition"].to_pylist(), strict=True)
    other_partitions = snapshot.filter(np.array([key not in plan_partitions for key in keys], dtype=bool))
    held = pc.list_flatten(other_partitions["replicas"]).to_numpy()
    led = pc.fill_null(other_partitions["leader"], NO_LEADER).to_numpy()
    readable = [partition for partition in plan_partitions.values() if partition is not None]
    replicas = [broker for brokers, _ in readable for broker in brokers]
    return {
        "replicas_per_broker": spans_of(np.append(held, np.array(replicas, dtype=np.int64)), counted),
        "led_per_broker": spans_of(
            np.append(led, np.array([leader for _, leader in readable], dtype=np.int64)), counted
        ),
    }


def _held_and_led(partition: CurrentPartition) -> tuple[Sequence[int], int] | None:
    """The replicas and the leader of a partition; None if they cannot be decoded or do not exist."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError:
        return None
    if assignment is None:
        return None
    return assignment.replicas, NO_LEADER if partition.state is None else partition.state.leader


def verify_plan(
    plan: Plan, current: CurrentState, operations: OperationState
) -> list[tuple[PlanRow, ReassignmentStatus, str]]:
    """Return the status of each change and operation, with details."""
    steps_by_key = steps_by_partition(plan.changes)
    changes = [
        (change, *change_status(change, steps_by_key.get(change.key, ()), current.partitions[change.key]))
        for change in plan.changes
    ]
    return [*changes, *((task, *operation_status(task, operations, current.live)) for task in plan.tasks)]
