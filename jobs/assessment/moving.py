"""What moves now: how far the reassignments of a plan have come, and whether anybody else's run.

Read from ZooKeeper, where Kafka's controller writes adding and removing replicas before it begins
(`KafkaController.onPartitionReassignment`, 2.4 and later) and where older ones have only /admin/reassign_partitions.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.admin_requests import Targets
from jobs.adapters.zookeeper.cluster import REASSIGN, TOPICS, reassign_requests
from jobs.adapters.zookeeper.connection import Znode, children, connected, sync
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.assessment.premises import assigned, read_changed, understood
from jobs.basics.errors import RefusedError
from jobs.records.plans.stored import Plan, moves_replicas
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import Standing
from planner.reassignment.replica_assignment import target
from schemas.names import Action, PlanKind
from schemas.rows import Change, Key
from schemas.znodes import MalformedZnodeError, State, decode_assignment

_SHOWN: Final = 10
_REORDERING: Final = frozenset({PlanKind.DRAIN, PlanKind.UNDRAIN})
"""Plans whose reassignments only reorder replicas: nothing is copied, so nobody is in their way."""


def reassignments_of(plan: Plan) -> list[Change]:
    """The changes of a plan that reassign, wave by wave."""
    return [change for change in plan.changes if change.action == Action.REASSIGN]


def standings(client: KazooClient, changes: Sequence[Change], plan: Plan) -> Iterator[tuple[Change, Standing, str]]:
    """Tell how far reassignments of a plan that were asked for have come, and what shows it.

    Who cancelled one, or moves its partition elsewhere, has made it diverge.
    """
    requests = reassign_requests(client) or {}
    later: dict[Key, list[Change]] = {}
    for change in reassignments_of(plan):
        later.setdefault(change.key, []).append(change)
    for change, topic, state in read_changed(client, changes):
        then = [row.replicas_after for row in later.get(change.key, ()) if row.wave > change.wave]
        yield change, *_standing_of(change, topic, understood(state), requests, then)


def moving_of(settings: Settings, plan: Plan) -> list[Change]:
    """Read the cluster: the changes of a plan whose partitions are on their way now."""
    moves = reassignments_of(plan)
    if not moves:
        return []
    with connected(settings.zookeeper) as client:
        sync(client)
        return [change for change, standing, _ in standings(client, moves, plan) if standing is Standing.IN_PROGRESS]


def moving_in_zookeeper(client: KazooClient) -> Targets:
    """Where every partition that moves is going, whoever asked; raise RefusedError where nobody can tell."""
    requests = requests_in_zookeeper(client)
    names = children(client, TOPICS) or []
    targets: dict[Key, list[int]] = {}
    for znode in read_many(client, [f"{TOPICS}/{name}" for name in names]):
        targets.update(_moving(znode))
    targets.update(requests)
    return targets


def requests_in_zookeeper(client: KazooClient) -> Targets:
    """What stands in /admin/reassign_partitions; raise RefusedError where it is not understood."""
    requests = reassign_requests(client)
    if requests is None:
        raise RefusedError(f"{REASSIGN} is not understood: nobody can tell what moves; mend or delete it first")
    return requests


def refuse_others(plan: Plan, moving: Targets) -> None:
    """Raise RefusedError where something moves that this plan did not ask for; plans that only reorder may."""
    if plan.row["kind"] in _REORDERING or not reassignments_of(plan):
        return
    mine: dict[Key, list[list[int]]] = {}
    for change in reassignments_of(plan):
        mine.setdefault(change.key, []).append(change.replicas_after)
    others = [f"{key[0]}-{key[1]} to {goal}" for key, goal in sorted(moving.items()) if goal not in mine.get(key, [])]
    if others:
        shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        raise RefusedError(
            f"a reassignment that is not plan {plan.title}'s runs: {shown}; wait until it is complete "
            "(`surveyor verify` of its plan, or kafka-reassign-partitions --list, shows it) or cancel it, "
            "then commit again",
        )


def _standing_of(
    change: Change, topic: Znode, state: State | None, requests: Targets, then: Sequence[list[int]]
) -> tuple[Standing, str]:
    goal = change.replicas_after
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return Standing.DIVERGED, str(error)
    if assignment is None:
        return Standing.DIVERGED, "the partition is gone"
    if requests.get(change.key) == goal:
        return Standing.IN_PROGRESS, "ordered"
    replicas, adding, removing = assignment
    now = target(replicas, removing)
    if now != goal:
        return Standing.COMPLETE if now in then else Standing.DIVERGED, f"its replicas are now {replicas}"
    missing = [broker for broker in goal if state is None or broker not in state.isr]
    if adding or removing or (moves_replicas(change) and missing):
        return Standing.IN_PROGRESS, f"not yet in sync: {missing}"
    return Standing.COMPLETE, f"replicas {replicas}"


def _moving(znode: Znode) -> dict[Key, list[int]]:
    """Partitions of a topic that move, with their targets."""
    if znode.stat is None:
        return {}
    topic = znode.path.rsplit("/", 1)[1]
    try:
        assignment = decode_assignment(znode.data)
    except MalformedZnodeError as error:
        raise RefusedError(
            f"{znode.path} is not understood ({error}): nobody can tell whether {topic} moves; mend it first",
        ) from None
    moving = assignment.adding_replicas.keys() | assignment.removing_replicas.keys()
    return {
        (topic, number): target(assignment.partitions[number], assignment.removing_replicas.get(number, []))
        for number in sorted(moving)
        if assignment.adding_replicas.get(number) or assignment.removing_replicas.get(number)
    }
