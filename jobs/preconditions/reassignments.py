"""What moves now: how far the reassignments of a plan have come, and which others run, wait or ask in vain.

Read from ZooKeeper, where Kafka's controller writes adding and removing replicas before it begins
(`KafkaController.onPartitionReassignment`, 2.4 and later) and where older ones have only /admin/reassign_partitions.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.admin_requests import Targets
from jobs.adapters.zookeeper.cluster import (
    REASSIGN,
    TOPICS,
    broker_epochs,
    ignored_request,
    reassign_requests,
    topics_to_delete,
)
from jobs.adapters.zookeeper.connection import Znode, children, connected, sync
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.core.errors import RefusedError
from jobs.preconditions.changes import assigned, read_changed, understood
from jobs.repositories.plans.repository import Plan, moves_replicas
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line
from planner.reassignment.cancellation import ReassignmentStatus
from planner.reassignment.obstacles import Reassignment, reassignment
from planner.reassignment.replica_assignment import ReplicaAssignment, target
from planner.text import abbreviate, pluralise
from schemas.enums import Action
from schemas.rows import Change, Key
from schemas.znodes import Assignment, MalformedZnodeError, State, read_assignment

_MAX_PARTITIONS_PER_COMMAND: Final = 100
"""Partitions that a command names; the next one, after it, names others."""


def reassignments_of(plan: Plan) -> list[Change]:
    """The changes of a plan that reassign, wave by wave."""
    return [change for change in plan.changes if change.action == Action.REASSIGN]


def reassignment_statuses(
    client: KazooClient, changes: Sequence[Change], plan: Plan
) -> Iterator[tuple[Change, ReassignmentStatus, str]]:
    """Tell how far reassignments of a plan that were asked for have come, and what shows it.

    Who cancelled one, or moves its partition elsewhere, has made it diverge.
    """
    requests = reassign_requests(client) or {}
    later: dict[Key, list[Change]] = {}
    for change in reassignments_of(plan):
        later.setdefault(change.key, []).append(change)
    for change, topic, state in read_changed(client, changes):
        then = [row.replicas_after for row in later.get(change.key, ()) if row.wave > change.wave]
        yield change, *_status_of(change, topic, understood(state), requests, then)


def moving_of(settings: Settings, plan: Plan) -> list[Change]:
    """Read the cluster: the changes of a plan whose partitions are on their way now."""
    moves = reassignments_of(plan)
    if not moves:
        return []
    with connected(settings.zookeeper) as client:
        sync(client)
        return [
            change
            for change, standing, _ in reassignment_statuses(client, moves, plan)
            if standing is ReassignmentStatus.IN_PROGRESS
        ]


@dataclass(frozen=True, slots=True)
class Reassignments:
    """Everything of a cluster that moves or is asked to, and what could not be read of it."""

    readable: list[Reassignment]
    opaque: list[str]
    """Znodes that are not understood, each with the reason."""


def moving_in_zookeeper(client: KazooClient) -> dict[Key, list[int]]:
    """Where every partition that moves is going, whoever asked; topics that are not understood are left out."""
    return _moving_in_topics(client)[0] | (reassign_requests(client) or {})


def all_reassignments(client: KazooClient) -> Reassignments:
    """Read everything that moves or is asked to, and what keeps it from moving."""
    moving, opaque = _moving_in_topics(client)
    found = reassignments_among(client, moving)
    return Reassignments(found.readable, [*found.opaque, *opaque])


def reassignments_among(client: KazooClient, moving: Targets) -> Reassignments:
    """The same where it is known what moves."""
    requests = reassign_requests(client)
    void = f"{REASSIGN} (Kafka takes it for empty; `delete {REASSIGN}` in zookeeper-shell clears it)"
    opaque = [void] if requests is None else []
    return Reassignments(_classify(client, moving, requests or {}), opaque)


def warnings_of_others(settings: Settings, plan: Plan, due: Sequence[Change], others: Reassignments) -> list[str]:
    """Say what else moves or is asked to; raise RefusedError where that is in the way of what is due of this plan.

    In the way is what copies replicas and shares a topic or a broker with a change that copies replicas, too.
    """
    copying = [change for change in due if change.action == Action.REASSIGN and moves_replicas(change)]
    if not copying:
        return []
    mine: dict[Key, list[list[int]]] = {}
    for change in reassignments_of(plan):
        mine.setdefault(change.key, []).append(change.replicas_after)
    foreign = [each for each in others.readable if list(each.goal) not in mine.get((each.topic, each.partition), [])]
    topics = {change.topic for change in copying}
    brokers = {broker for change in copying for broker in (*(change.replicas_before or ()), *change.replicas_after)}
    running = [each for each in foreign if each.obstacle is None]
    near = [each for each in running if each.copies and (each.topic in topics or each.brokers & brokers)]
    if near:
        raise RefusedError(_refusal(settings, plan, near))
    unread = [f"not understood, and taken for what does not move: {znode}" for znode in others.opaque]
    beside = (
        [f"others move {abbreviate([each.in_words for each in running])}, in the way of nothing here"]
        if running
        else []
    )
    stalled = [
        f"{step.what}: `{command_line(settings, *shlex.split(step.command or ''))}`"
        for step in stalled_steps([each for each in foreign if each.obstacle is not None])
    ]
    return [f"surveyor: warning: {line}" for line in (*unread, *beside, *stalled)]


def stalled_steps(stalled: Sequence[Reassignment]) -> list[Suggestion]:
    """Say which reassignments do not move and what helps: the brokers that are down, or to cancel them."""
    void = [each for each in stalled if each.is_void]
    waiting = [each for each in stalled if not each.is_void]
    missing = sorted({broker for each in waiting if each.obstacle is not None for broker in each.obstacle.waits_for})
    steps = []
    if void:
        what = f"{pluralise(len(void), 'request')} in {REASSIGN} that cannot be carried out"
        steps.append(Suggestion(f"{what}: {abbreviate([each.in_words for each in void])}", _cancel_command(void)))
    if waiting:
        what = f"{pluralise(len(waiting), 'reassignment', 'does not move', 'do not move')}"
        start = f"start {'broker' if len(missing) == 1 else 'brokers'} {abbreviate(missing)}, or cancel"
        steps.append(
            Suggestion(f"{what}: {abbreviate([each.in_words for each in waiting])}; {start}", _cancel_command(waiting))
        )
    return steps


def _cancel_command(some: Sequence[Reassignment]) -> str:
    return shlex.join(["cancel", "--partitions", ",".join(each.name for each in some[:_MAX_PARTITIONS_PER_COMMAND])])


def _refusal(settings: Settings, plan: Plan, near: Sequence[Reassignment]) -> str:
    return (
        f"a reassignment that is not plan {plan.title}'s runs: {abbreviate([each.in_words for each in near])}; "
        "wait until it is complete (`surveyor verify` of its plan, or kafka-reassign-partitions --list, shows it) or "
        f"cancel it (`{command_line(settings, *shlex.split(_cancel_command(near)))}`), then commit again"
    )


def _classify(client: KazooClient, moving: Targets, requests: Targets) -> list[Reassignment]:
    """Read the partitions that move or are asked to, and judge each."""
    keys = sorted({*moving, *requests})
    if not keys:
        return []
    live, deleting = broker_epochs(client), set(topics_to_delete(client))
    ignored = ignored_request(client) if requests else None
    names = sorted({topic for topic, _ in keys})
    topics = dict(zip(names, read_many(client, [f"{TOPICS}/{name}" for name in names]), strict=True))
    states = read_many(client, [f"{TOPICS}/{topic}/partitions/{partition}/state" for topic, partition in keys])
    found = []
    for key, state in zip(keys, states, strict=True):
        try:
            assignment = assigned(topics[key[0]], key[1])
        except MalformedZnodeError:  # Kafka's controller has it in memory, and may move it
            goal = tuple(requests.get(key, moving.get(key, ())))
            found.append(Reassignment(*key, goal, frozenset(goal)))
            continue
        now = None if assignment is None else ReplicaAssignment(*assignment)
        found.append(
            reassignment(key, now, requests.get(key), _isr(state), live, deleting=key[0] in deleting, ignored=ignored)
        )
    return found


def _isr(state: Znode) -> list[int] | None:
    """The ISR, empty where there is no state, None where it is not understood."""
    known = understood(state)
    return known.isr if known is not None else [] if state.stat is None else None


def _status_of(
    change: Change, topic: Znode, state: State | None, requests: Targets, then: Sequence[list[int]]
) -> tuple[ReassignmentStatus, str]:
    goal = change.replicas_after
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return ReassignmentStatus.DIVERGED, str(error)
    if assignment is None:
        return ReassignmentStatus.DIVERGED, "the partition is gone"
    if requests.get(change.key) == goal:
        return ReassignmentStatus.IN_PROGRESS, "ordered"
    replicas, adding, removing = assignment
    now = target(replicas, removing)
    if now != goal:
        return (
            ReassignmentStatus.COMPLETE if now in then else ReassignmentStatus.DIVERGED,
            f"its replicas are now {replicas}",
        )
    missing = [broker for broker in goal if state is None or broker not in state.isr]
    if adding or removing or (moves_replicas(change) and missing):
        return ReassignmentStatus.IN_PROGRESS, f"not yet in sync: {missing}"
    return ReassignmentStatus.COMPLETE, f"replicas {replicas}"


def _moving_in_topics(client: KazooClient) -> tuple[dict[Key, list[int]], list[str]]:
    """Targets of the partitions whose topics say that they move, and what of topics is not understood."""
    targets: dict[Key, list[int]] = {}
    opaque = []
    for znode in read_many(client, [f"{TOPICS}/{name}" for name in children(client, TOPICS) or []]):
        if znode.stat is None:
            continue
        try:
            assignment = read_assignment(znode.data)
        except MalformedZnodeError as error:
            opaque.append(f"{znode.path} ({error})")
            continue
        targets |= _moving(znode.path.rsplit("/", 1)[1], assignment)
        if assignment.unread:
            opaque.append(f"{znode.path} ({assignment.reason})")
    return targets, opaque


def _moving(topic: str, assignment: Assignment) -> dict[Key, list[int]]:
    """Partitions of a topic that move, with their targets."""
    moving = assignment.adding_replicas.keys() | assignment.removing_replicas.keys()
    return {
        (topic, number): target(assignment.partitions[number], assignment.removing_replicas.get(number, []))
        for number in sorted(moving)
        if assignment.adding_replicas.get(number) or assignment.removing_replicas.get(number)
    }
