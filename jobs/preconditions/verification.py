"""How far a committed plan has come, change by change, as the cluster shows it now."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow.compute as pc

from jobs.adapters.zookeeper.cluster import BROKER_IDS
from jobs.adapters.zookeeper.connection import Znode, children, connected, sync
from jobs.preconditions.changes import assigned, read_changed, understood
from jobs.preconditions.operations import TopicNow, read_tasks, verdict_on
from jobs.repositories.figures import Figures, figures_in, spans_of
from jobs.repositories.plans.repository import Plan
from jobs.repositories.snapshots import last_snapshot, table_as_of
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import Standing, standing_of
from planner.reassignment.replica_assignment import ReplicaAssignment
from planner.reassignment.rollback import legs_of, ways_of
from planner.text import few
from schemas.enums import NO_LEADER, Action, OperationKind, Outcome
from schemas.rows import Change, Operation, PlanRow
from schemas.znodes import MalformedZnodeError, State, read_assignment


def standing_of_change(
    change: Change, way: Sequence[Change], topic: Znode, state: State | None
) -> tuple[Standing, str]:
    """Tell how far one change has come, and what is found; `way`: its partition's reassignments, wave by wave."""
    if change.action == Action.REASSIGN:
        return _reassignment(change, way, topic, state)
    if state is None:
        return Standing.NOT_STARTED if change.is_new else Standing.DIVERGED, "no state znode"
    if change.action == Action.ELECT_PREFERRED and change.leader_epoch_after is None:
        return _election_after(change, way, topic, state)
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    before, after = change.leader_epoch_before, change.leader_epoch_after
    if state.leader == change.leader_after and after is not None and state.leader_epoch >= after:
        return Standing.COMPLETE, detail
    # before the wave before it, a later wave's partition has an even older epoch
    if not change.is_new and before is not None and state.leader_epoch <= before:
        return Standing.NOT_STARTED, detail
    return Standing.DIVERGED, detail


def _election_after(change: Change, way: Sequence[Change], topic: Znode, state: State) -> tuple[Standing, str]:
    """Tell how far an election has come that waits for moves, whose epochs nobody could foretell."""
    detail = f"leader {state.leader}, ISR {state.isr}, leader epoch {state.leader_epoch}"
    if way and _reassignment(way[-1], way, topic, state)[0] is not Standing.COMPLETE:
        return Standing.NOT_STARTED, f"{detail}: its replicas are not there yet"
    if state.leader == change.leader_after:
        return Standing.COMPLETE, detail
    return Standing.NOT_STARTED if state.leader == change.leader_before else Standing.DIVERGED, detail


def _reassignment(change: Change, way: Sequence[Change], topic: Znode, state: State | None) -> tuple[Standing, str]:
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return Standing.DIVERGED, str(error)
    if assignment is None:
        return Standing.DIVERGED, "the partition is gone"
    now = ReplicaAssignment(*assignment)
    standing, at = standing_of(legs_of(way), now)
    detail = f"replicas {now.replicas}"
    if standing is Standing.DIVERGED:
        return Standing.DIVERGED, detail
    ahead = way.index(change) - at
    if standing is Standing.COMPLETE or ahead < 0:
        return Standing.COMPLETE, detail
    if standing is Standing.IN_PROGRESS and ahead == 0:
        missing = [broker for broker in change.replicas_after if state is None or broker not in state.isr]
        return Standing.IN_PROGRESS, f"{detail}, not yet in sync {missing}"
    return Standing.NOT_STARTED, detail


def standing_of_task(task: Operation, now: TopicNow, live: Collection[str] | None = None) -> tuple[Standing, str]:
    """Tell how far an operation has come, and what is found; `live`: ids of the brokers that are registered."""
    verdict = verdict_on(task, now)
    if verdict is None and task.action == OperationKind.DELETE_REPLICAS:
        return Standing.IN_PROGRESS, "queued for deletion, and still there"
    if verdict is None:
        return Standing.NOT_STARTED, "as it was planned from"
    if verdict.outcome is not Outcome.APPLIED:
        return Standing.DIVERGED, verdict.message
    goes_on = task.action == OperationKind.DELETE_TOPIC and now.topic.stat is not None
    if not goes_on:
        return Standing.COMPLETE, verdict.message
    return Standing.IN_PROGRESS, f"{verdict.message}{_waits_for(now, live)}"


def _waits_for(now: TopicNow, live: Collection[str] | None) -> str:
    """Name the brokers that hold a replica of a queued topic and are not there: its deletion waits for each."""
    try:
        partitions = read_assignment(now.topic.data).partitions
    except MalformedZnodeError as error:
        return f"; its znode is not understood ({error})"
    absent = {broker for replicas in partitions.values() for broker in replicas if str(broker) not in (live or ())}
    if live is None or not absent:
        return ""
    return f"; it waits for {'brokers' if len(absent) > 1 else 'broker'} {few(sorted(absent))}, not alive: start it"


def evenness_now(settings: Settings, plan: Plan) -> Figures | None:
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


def verify_plan(settings: Settings, plan: Plan) -> list[tuple[PlanRow, Standing, str]]:
    """Read the cluster and tell how far each change has come."""
    with connected(settings.zookeeper) as client:
        sync(client)
        znodes = read_changed(client, plan.changes)
        tasks = read_tasks(client, plan.tasks)
        live = children(client, BROKER_IDS) or []
    ways = ways_of(plan.changes)
    changes = [
        (change, *standing_of_change(change, ways.get((change.topic, change.partition), ()), topic, understood(state)))
        for change, topic, state in znodes
    ]
    return [*changes, *((task, *standing_of_task(task, now, live)) for task, now in tasks)]
