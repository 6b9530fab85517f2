"""Running reassignments: how far those of a plan have come, and which others run, wait or cannot be carried out.

They are read from ZooKeeper. Since 2.4 Kafka's controller writes adding and removing replicas before it begins
(`KafkaController.onPartitionReassignment`); older ones have only /admin/reassign_partitions.
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
from jobs.adapters.zookeeper.connection import Znode, children, sync
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.core.errors import RefusedError
from jobs.preconditions.changes import assigned, read_changed, understood
from jobs.repositories.plans.repository import Plan, moves_replicas
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line
from planner.reassignment.cancellation import ReassignmentStatus, status_towards
from planner.reassignment.obstacles import Reassignment, reassignment
from schemas.enums import Action
from schemas.replica_assignment import ReplicaAssignment, is_reassigned, target
from schemas.rows import Change, Key
from schemas.text import abbreviate, pluralise
from schemas.znodes import Assignment, MalformedZnodeError, State, read_assignment

_MAX_PARTITIONS_PER_COMMAND: Final = 100
"""Maximum number of partitions in a suggested command; run again, it is suggested for the others."""


def reassignments_of(plan: Plan) -> list[Change]:
    """Return the reassignments of a plan, wave by wave."""
    return [change for change in plan.changes if change.action == Action.REASSIGN]


def reassignment_statuses(
    client: KazooClient, changes: Sequence[Change], plan: Plan
) -> Iterator[tuple[Change, ReassignmentStatus, str]]:
    """Yield the status of each requested reassignment of a plan, and the detail that shows it.

    A reassignment has diverged if another client has cancelled it or moves its partition elsewhere.
    """
    requests = reassign_requests(client) or {}
    changes_by_key: dict[Key, list[Change]] = {}
    for change in reassignments_of(plan):
        changes_by_key.setdefault(change.key, []).append(change)
    for change, topic, state in read_changed(client, changes):
        later_targets = [row.replicas_after for row in changes_by_key.get(change.key, ()) if row.wave > change.wave]
        yield change, *_status_of(change, topic, understood(state), requests, later_targets)


def moving_of(client: KazooClient, plan: Plan) -> list[Change]:
    """Read from ZooKeeper which changes of a plan are moving now."""
    moves = reassignments_of(plan)
    if not moves:
        return []
    sync(client)
    return [
        change
        for change, status, _ in reassignment_statuses(client, moves, plan)
        if status is ReassignmentStatus.IN_PROGRESS
    ]


@dataclass(frozen=True, slots=True)
class Reassignments:
    """All reassignments of a cluster that run or are requested, and the znodes that could not be read."""

    readable: list[Reassignment]
    opaque: list[str]
    """Znodes that are not understood, each with the reason."""


def moving_in_zookeeper(client: KazooClient) -> dict[Key, list[int]]:
    """Return the target of each partition that moves; topics that are not understood are left out."""
    return _moving_in_topics(client)[0] | (reassign_requests(client) or {})


def all_reassignments(client: KazooClient) -> Reassignments:
    """Read all reassignments that run or are requested, and what keeps them from moving."""
    moving, opaque = _moving_in_topics(client)
    reassignments = reassignments_among(client, moving)
    return Reassignments(reassignments.readable, [*reassignments.opaque, *opaque])


def reassignments_among(client: KazooClient, moving: Targets) -> Reassignments:
    """Read the requests and judge them together with the given running reassignments."""
    requests = reassign_requests(client)
    empty_request = f"{REASSIGN} (Kafka treats it as empty; `delete {REASSIGN}` in zookeeper-shell clears it)"
    opaque = [empty_request] if requests is None else []
    return Reassignments(_classify(client, moving, requests or {}), opaque)


def warnings_of_others(settings: Settings, plan: Plan, pending: Sequence[Change], others: Reassignments) -> list[str]:
    """Warn of other reassignments; raise RefusedError if one is in the way of the plan's pending changes.

    A reassignment is in the way if it copies replicas and shares a topic or a broker with a change that copies
    replicas.
    """
    copying = [change for change in pending if change.action == Action.REASSIGN and moves_replicas(change)]
    if not copying:
        return []
    own_targets: dict[Key, list[list[int]]] = {}
    for change in reassignments_of(plan):
        own_targets.setdefault(change.key, []).append(change.replicas_after)
    others_running = [
        other
        for other in others.readable
        if list(other.goal) not in own_targets.get((other.topic, other.partition), [])
    ]
    topics = {change.topic for change in copying}
    brokers = {broker for change in copying for broker in (*(change.replicas_before or ()), *change.replicas_after)}
    running = [other for other in others_running if other.obstacle is None]
    in_the_way = [other for other in running if other.copies and (other.topic in topics or other.brokers & brokers)]
    if in_the_way:
        raise RefusedError(_refusal(settings, plan, in_the_way))
    unread_warnings = [f"not understood, and assumed not to move: {znode}" for znode in others.opaque]
    running_warnings = (
        [f"others move {abbreviate([other.in_words for other in running])}, not in the way of this plan"]
        if running
        else []
    )
    stalled = [
        f"{step.what}: `{command_line(settings, *shlex.split(step.command or ''))}`"
        for step in stalled_steps([other for other in others_running if other.obstacle is not None])
    ]
    return [*unread_warnings, *running_warnings, *stalled]


def stalled_steps(stalled: Sequence[Reassignment]) -> list[Suggestion]:
    """Name the reassignments that do not move and what helps: starting the brokers that are down, or cancelling."""
    empty = [item for item in stalled if item.is_void]
    waiting = [item for item in stalled if not item.is_void]
    missing = sorted({broker for item in waiting if item.obstacle is not None for broker in item.obstacle.waits_for})
    steps = []
    if empty:
        text = f"{pluralise(len(empty), 'request')} in {REASSIGN} that cannot be carried out"
        steps.append(Suggestion(f"{text}: {abbreviate([item.in_words for item in empty])}", _cancel_command(empty)))
    if waiting:
        text = f"{pluralise(len(waiting), 'reassignment', 'does not move', 'do not move')}"
        start = f"start {'broker' if len(missing) == 1 else 'brokers'} {abbreviate(missing)}, or cancel"
        steps.append(
            Suggestion(f"{text}: {abbreviate([item.in_words for item in waiting])}; {start}", _cancel_command(waiting))
        )
    return steps


def _cancel_command(reassignments: Sequence[Reassignment]) -> str:
    return shlex.join(
        [
            "cancel",
            "--partitions",
            ",".join(reassignment.name for reassignment in reassignments[:_MAX_PARTITIONS_PER_COMMAND]),
        ]
    )


def _refusal(settings: Settings, plan: Plan, in_the_way: Sequence[Reassignment]) -> str:
    return (
        f"a reassignment that is not part of plan {plan.title} runs: "
        f"{abbreviate([other.in_words for other in in_the_way])}; wait until it is complete (`surveyor "
        "verify` of its plan, or kafka-reassign-partitions --list, shows it) or "
        f"cancel it (`{command_line(settings, *shlex.split(_cancel_command(in_the_way)))}`), then commit again"
    )


def _classify(client: KazooClient, moving: Targets, requests: Targets) -> list[Reassignment]:
    """Read the partitions that move or are requested to, and classify each."""
    keys = sorted({*moving, *requests})
    if not keys:
        return []
    live, deleting = broker_epochs(client), set(topics_to_delete(client))
    ignored = ignored_request(client) if requests else None
    names = sorted({topic for topic, _ in keys})
    topics = dict(zip(names, read_permitted(client, [f"{TOPICS}/{name}" for name in names]), strict=True))
    states = read_permitted(client, [f"{TOPICS}/{topic}/partitions/{partition}/state" for topic, partition in keys])
    reassignments = []
    for key, state in zip(keys, states, strict=True):
        try:
            assignment = assigned(topics[key[0]], key[1])
        except MalformedZnodeError:  # Kafka's controller has the assignment in memory and may be moving it
            goal = tuple(requests.get(key, moving.get(key, ())))
            reassignments.append(Reassignment(*key, goal, frozenset(goal)))
            continue
        current = None if assignment is None else ReplicaAssignment(*assignment)
        reassignments.append(
            reassignment(
                key, current, requests.get(key), _isr(state), live, deleting=key[0] in deleting, ignored=ignored
            )
        )
    return reassignments


def _isr(state: Znode) -> list[int] | None:
    """The ISR; empty if there is no state, None if it is not understood."""
    state_content = understood(state)
    return state_content.isr if state_content is not None else [] if state.stat is None else None


def _status_of(
    change: Change, topic: Znode, state: State | None, requests: Targets, later_targets: Sequence[list[int]]
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
    now = ReplicaAssignment(*assignment)
    status = status_towards(goal, now)
    if status is ReassignmentStatus.DIVERGED:
        return (
            ReassignmentStatus.COMPLETE if now.target in later_targets else status,
            f"its replicas are now {now.replicas}",
        )
    missing = [broker for broker in goal if state is None or broker not in state.isr]
    if status is ReassignmentStatus.IN_PROGRESS or (moves_replicas(change) and missing):
        return ReassignmentStatus.IN_PROGRESS, f"not yet in sync: {missing}"
    return status, f"replicas {now.replicas}"


def _moving_in_topics(client: KazooClient) -> tuple[dict[Key, list[int]], list[str]]:
    """Targets of the partitions that move according to their topics, and the topics that are not understood."""
    targets: dict[Key, list[int]] = {}
    opaque = []
    for znode in read_permitted(client, [f"{TOPICS}/{name}" for name in children(client, TOPICS) or []]):
        if znode.stat is None:
            continue
        try:
            assignment = read_assignment(znode.data)
        except MalformedZnodeError as error:
            opaque.append(f"{znode.path} ({error})")
            continue
        targets |= _moving(znode.path.rsplit("/", 1)[1], assignment)
        if assignment.reason:
            opaque.append(f"{znode.path} ({assignment.reason})")
    return targets, opaque


def _moving(topic: str, assignment: Assignment) -> dict[Key, list[int]]:
    """Partitions of a topic that move, with their targets."""
    adding, removing = assignment.adding_replicas, assignment.removing_replicas
    return {
        (topic, number): target(assignment.partitions[number], removing.get(number, []))
        for number in sorted(adding.keys() | removing.keys())
        if is_reassigned(adding.get(number), removing.get(number))
    }
