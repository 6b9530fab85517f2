"""How far a committed plan has come, change by change, as the cluster shows it now."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow.compute as pc
from kazoo.client import KazooClient

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.cluster import BROKER_IDS
from jobs.adapters.zookeeper.connection import Znode, children, sync
from jobs.preconditions.changes import assigned, read_changed, understood
from jobs.preconditions.operations import TaskZnodes, read_tasks, verdict_on
from jobs.repositories.figures import Figures, figures_in, spans_of
from jobs.repositories.plans.repository import Plan
from jobs.repositories.snapshots import last_snapshot, table_as_of
from planner.reassignment.cancellation import ReassignmentStatus, status_of
from planner.reassignment.rollback import steps_by_partition, steps_of
from schemas.enums import NO_LEADER, Action, OperationKind, Outcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Operation, PlanRow
from schemas.text import abbreviate
from schemas.znodes import MalformedZnodeError, State, read_assignment


def change_status(
    change: Change, steps: Sequence[Change], topic: Znode, state: State | None
) -> tuple[ReassignmentStatus, str]:
    """Return how far one change has come, with details.

    `steps` has all reassignments of its partition, wave by wave.
    """
    if change.action == Action.REASSIGN:
        return _reassignment(change, steps, topic, state)
    if state is None:
        return ReassignmentStatus.NOT_STARTED if change.is_new else ReassignmentStatus.DIVERGED, "no state znode"
    if change.action == Action.ELECT_PREFERRED and change.leader_epoch_after is None:
        return _election_after(change, steps, topic, state)
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    before, after = change.leader_epoch_before, change.leader_epoch_after
    if state.leader == change.leader_after and after is not None and state.leader_epoch >= after:
        return ReassignmentStatus.COMPLETE, detail
    # a change of a later wave has a `leader_epoch_before` that the partition may not have reached yet
    if not change.is_new and before is not None and state.leader_epoch <= before:
        return ReassignmentStatus.NOT_STARTED, detail
    return ReassignmentStatus.DIVERGED, detail


def _election_after(
    change: Change, steps: Sequence[Change], topic: Znode, state: State
) -> tuple[ReassignmentStatus, str]:
    """Status of an election that follows reassignments, whose leader epochs cannot be known in advance."""
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    if steps and _reassignment(steps[-1], steps, topic, state)[0] is not ReassignmentStatus.COMPLETE:
        return ReassignmentStatus.NOT_STARTED, f"{detail}: its replicas are not there yet"
    if state.leader == change.leader_after:
        return ReassignmentStatus.COMPLETE, detail
    return (
        ReassignmentStatus.NOT_STARTED if state.leader == change.leader_before else ReassignmentStatus.DIVERGED,
        detail,
    )


def _reassignment(
    change: Change, steps: Sequence[Change], topic: Znode, state: State | None
) -> tuple[ReassignmentStatus, str]:
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return ReassignmentStatus.DIVERGED, str(error)
    if assignment is None:
        return ReassignmentStatus.DIVERGED, "the partition is gone"
    current = ReplicaAssignment(*assignment)
    status, current_step = status_of(steps_of(steps), current)
    detail = f"replicas {current.replicas}"
    if status is ReassignmentStatus.DIVERGED:
        return ReassignmentStatus.DIVERGED, detail
    steps_ahead = steps.index(change) - current_step
    if status is ReassignmentStatus.COMPLETE or steps_ahead < 0:
        return ReassignmentStatus.COMPLETE, detail
    if status is ReassignmentStatus.IN_PROGRESS and steps_ahead == 0:
        missing = [broker for broker in change.replicas_after if state is None or broker not in state.isr]
        return ReassignmentStatus.IN_PROGRESS, f"{detail}, not yet in sync {missing}"
    return ReassignmentStatus.NOT_STARTED, detail


def task_status(
    task: Operation, znodes: TaskZnodes, live: Collection[str] | None = None
) -> tuple[ReassignmentStatus, str]:
    """Return how far an operation has come, and the details; `live` has the ids of the registered brokers."""
    verdict = verdict_on(task, znodes)
    if verdict is None and task.action == OperationKind.DELETE_REPLICAS:
        return ReassignmentStatus.IN_PROGRESS, "queued for deletion, and still exists"
    if verdict is None:
        return ReassignmentStatus.NOT_STARTED, "unchanged since the plan was made"
    if verdict.outcome is not Outcome.APPLIED:
        return ReassignmentStatus.DIVERGED, verdict.message
    in_progress = task.action == OperationKind.DELETE_TOPIC and znodes.topic.stat is not None
    if not in_progress:
        return ReassignmentStatus.COMPLETE, verdict.message
    return ReassignmentStatus.IN_PROGRESS, f"{verdict.message}{_waits_for(znodes, live)}"


def _waits_for(znodes: TaskZnodes, live: Collection[str] | None) -> str:
    """Name the brokers that hold a replica of a queued topic and are not alive: the deletion waits for each."""
    try:
        partitions = read_assignment(znodes.topic.data).partitions
    except MalformedZnodeError as error:
        return f"; its znode is not understood ({error})"
    absent = {broker for replicas in partitions.values() for broker in replicas if str(broker) not in (live or ())}
    if live is None or not absent:
        return ""
    return (
        f"; it waits for {'brokers' if len(absent) > 1 else 'broker'} {abbreviate(sorted(absent))}, not alive: start it"
    )


def current_evenness(client: KazooClient, lake: Warehouse, plan: Plan) -> Figures | None:
    """Return the least and most replicas and leaders per broker now; None for plans without figures.

    Partitions of the plan are read from ZooKeeper, the others from the newest snapshot.
    """
    counted, snapshot = figures_in(plan.row).get("brokers_counted"), last_snapshot(lake)
    if counted is None or snapshot is None:
        return None
    sync(client)
    changed_znodes = read_changed(client, [*{change.key: change for change in plan.changes}.values()])
    plan_partitions = {change.key: _held_and_led(change, topic, state) for change, topic, state in changed_znodes}
    rows = table_as_of(lake, snapshot, "partitions", columns=("topic", "partition", "replicas", "leader"))
    keys = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    other_partitions = rows.filter(np.array([key not in plan_partitions for key in keys], dtype=bool))
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


def _held_and_led(change: Change, topic: Znode, state: Znode) -> tuple[list[int], int] | None:
    """The replicas and the leader of a partition; None if they are not understood or do not exist."""
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError:
        return None
    state_content = understood(state)
    if assignment is None:
        return None
    return assignment[0], NO_LEADER if state_content is None else state_content.leader


def verify_plan(client: KazooClient, plan: Plan) -> list[tuple[PlanRow, ReassignmentStatus, str]]:
    """Read the cluster and return the status of each change and operation, with details."""
    sync(client)
    znodes = read_changed(client, plan.changes)
    tasks = read_tasks(client, plan.tasks)
    live = children(client, BROKER_IDS) or []
    steps_by_key = steps_by_partition(plan.changes)
    changes = [
        (
            change,
            *change_status(change, steps_by_key.get((change.topic, change.partition), ()), topic, understood(state)),
        )
        for change, topic, state in znodes
    ]
    return [*changes, *((task, *task_status(task, task_znodes, live)) for task, task_znodes in tasks)]
