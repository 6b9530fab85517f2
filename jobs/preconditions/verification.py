"""How far a committed plan has come, change by change, as the cluster shows it now."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow.compute as pc

from jobs.adapters.zookeeper.cluster import BROKER_IDS
from jobs.adapters.zookeeper.connection import Znode, children, connected, sync
from jobs.preconditions.changes import assigned, read_changed, understood
from jobs.preconditions.operations import TaskZnodes, read_tasks, verdict_on
from jobs.repositories.figures import Figures, figures_in, spans_of
from jobs.repositories.plans.repository import Plan
from jobs.repositories.snapshots import last_snapshot, table_as_of
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import ReassignmentStatus, status_of
from planner.reassignment.replica_assignment import ReplicaAssignment
from planner.reassignment.rollback import steps_by_partition, steps_of
from planner.text import abbreviate
from schemas.enums import NO_LEADER, Action, OperationKind, Outcome
from schemas.rows import Change, Operation, PlanRow
from schemas.znodes import MalformedZnodeError, State, read_assignment


def change_status(
    change: Change, way: Sequence[Change], topic: Znode, state: State | None
) -> tuple[ReassignmentStatus, str]:
    """Tell how far one change has come, and what is found; `way`: its partition's reassignments, wave by wave."""
    if change.action == Action.REASSIGN:
        return _reassignment(change, way, topic, state)
    if state is None:
        return ReassignmentStatus.NOT_STARTED if change.is_new else ReassignmentStatus.DIVERGED, "no state znode"
    if change.action == Action.ELECT_PREFERRED and change.leader_epoch_after is None:
        return _election_after(change, way, topic, state)
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    before, after = change.leader_epoch_before, change.leader_epoch_after
    if state.leader == change.leader_after and after is not None and state.leader_epoch >= after:
        return ReassignmentStatus.COMPLETE, detail
    # before the wave before it, a later wave's partition has an even older epoch
    if not change.is_new and before is not None and state.leader_epoch <= before:
        return ReassignmentStatus.NOT_STARTED, detail
    return ReassignmentStatus.DIVERGED, detail


def _election_after(
    change: Change, way: Sequence[Change], topic: Znode, state: State
) -> tuple[ReassignmentStatus, str]:
    """Tell how far an election has come that waits for moves, whose epochs nobody could foretell."""
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    if way and _reassignment(way[-1], way, topic, state)[0] is not ReassignmentStatus.COMPLETE:
        return ReassignmentStatus.NOT_STARTED, f"{detail}: its replicas are not there yet"
    if state.leader == change.leader_after:
        return ReassignmentStatus.COMPLETE, detail
    return (
        ReassignmentStatus.NOT_STARTED if state.leader == change.leader_before else ReassignmentStatus.DIVERGED,
        detail,
    )


def _reassignment(
    change: Change, way: Sequence[Change], topic: Znode, state: State | None
) -> tuple[ReassignmentStatus, str]:
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return ReassignmentStatus.DIVERGED, str(error)
    if assignment is None:
        return ReassignmentStatus.DIVERGED, "the partition is gone"
    now = ReplicaAssignment(*assignment)
    standing, at = status_of(steps_of(way), now)
    detail = f"replicas {now.replicas}"
    if standing is ReassignmentStatus.DIVERGED:
        return ReassignmentStatus.DIVERGED, detail
    ahead = way.index(change) - at
    if standing is ReassignmentStatus.COMPLETE or ahead < 0:
        return ReassignmentStatus.COMPLETE, detail
    if standing is ReassignmentStatus.IN_PROGRESS and ahead == 0:
        missing = [broker for broker in change.replicas_after if state is None or broker not in state.isr]
        return ReassignmentStatus.IN_PROGRESS, f"{detail}, not yet in sync {missing}"
    return ReassignmentStatus.NOT_STARTED, detail


def task_status(
    task: Operation, now: TaskZnodes, live: Collection[str] | None = None
) -> tuple[ReassignmentStatus, str]:
    """Tell how far an operation has come, and what is found; `live`: ids of the brokers that are registered."""
    verdict = verdict_on(task, now)
    if verdict is None and task.action == OperationKind.DELETE_REPLICAS:
        return ReassignmentStatus.IN_PROGRESS, "queued for deletion, and still there"
    if verdict is None:
        return ReassignmentStatus.NOT_STARTED, "as it was planned from"
    if verdict.outcome is not Outcome.APPLIED:
        return ReassignmentStatus.DIVERGED, verdict.message
    goes_on = task.action == OperationKind.DELETE_TOPIC and now.topic.stat is not None
    if not goes_on:
        return ReassignmentStatus.COMPLETE, verdict.message
    return ReassignmentStatus.IN_PROGRESS, f"{verdict.message}{_waits_for(now, live)}"


def _waits_for(now: TaskZnodes, live: Collection[str] | None) -> str:
    """Name the brokers that hold a replica of a queued topic and are not there: its deletion waits for each."""
    try:
        partitions = read_assignment(now.topic.data).partitions
    except MalformedZnodeError as error:
        return f"; its znode is not understood ({error})"
    absent = {broker for replicas in partitions.values() for broker in replicas if str(broker) not in (live or ())}
    if live is None or not absent:
        return ""
    return (
        f"; it waits for {'brokers' if len(absent) > 1 else 'broker'} {abbreviate(sorted(absent))}, not alive: start it"
    )


def current_evenness(settings: Settings, plan: Plan) -> Figures | None:
    """Return the replicas and leaders of each broker now, the least and the most; None for plans without figures.

    Partitions of the plan are read in ZooKeeper, the others as the newest snapshot has them.
    """
    counted, snapshot = figures_in(plan.row).get("brokers_counted"), last_snapshot(settings.lake)
    if counted is None or snapshot is None:
        return None
    with connected(settings.zookeeper) as client:
        sync(client)
        read = read_changed(client, [*{change.key: change for change in plan.changes}.values()])
    now = {change.key: _held_and_led(change, topic, state) for change, topic, state in read}
    rows = table_as_of(settings.lake, snapshot, "partitions", columns=("topic", "partition", "replicas", "leader"))
    keys = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    others = rows.filter(np.array([key not in now for key in keys], dtype=bool))
    held = pc.list_flatten(others["replicas"]).to_numpy()
    led = pc.fill_null(others["leader"], NO_LEADER).to_numpy()
    known = [found for found in now.values() if found is not None]
    replicas = [broker for brokers, _ in known for broker in brokers]
    return {
        "replicas_per_broker": spans_of(np.append(held, np.array(replicas, dtype=np.int64)), counted),
        "led_per_broker": spans_of(np.append(led, np.array([leader for _, leader in known], dtype=np.int64)), counted),
    }


def _held_and_led(change: Change, topic: Znode, state: Znode) -> tuple[list[int], int] | None:
    """The replicas and the leader of a partition, None where they are not understood or gone."""
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError:
        return None
    leads = understood(state)
    if assignment is None:
        return None
    return assignment[0], NO_LEADER if leads is None else leads.leader


def verify_plan(settings: Settings, plan: Plan) -> list[tuple[PlanRow, ReassignmentStatus, str]]:
    """Read the cluster and tell how far each change has come."""
    with connected(settings.zookeeper) as client:
        sync(client)
        znodes = read_changed(client, plan.changes)
        tasks = read_tasks(client, plan.tasks)
        live = children(client, BROKER_IDS) or []
    ways = steps_by_partition(plan.changes)
    changes = [
        (change, *change_status(change, ways.get((change.topic, change.partition), ()), topic, understood(state)))
        for change, topic, state in znodes
    ]
    return [*changes, *((task, *task_status(task, now, live)) for task, now in tasks)]
