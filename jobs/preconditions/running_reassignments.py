"""Running reassignments: how far those of a plan have come, and which others run, wait or cannot be carried out.

Since 2.4 Kafka's controller stores adding and removing replicas before it begins
(`KafkaController.onPartitionReassignment`); of older ones only the requests are known.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.adapters.zookeeper.cluster import REASSIGN
from jobs.core.errors import RefusedError
from jobs.repositories.plans.repository import Plan, moves_replicas
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line
from planner.reassignment.obstacles import Reassignment, reassignment
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from schemas import reasons
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState
from schemas.enums import Action
from schemas.rows import Change, Key
from schemas.text import abbreviate, pluralise
from schemas.znodes import MalformedZnodeError

_MAX_PARTITIONS_PER_COMMAND: Final = 100
"""Maximum number of partitions in a suggested command; run again, it is suggested for the others."""


def reassignments_of(plan: Plan) -> list[Change]:
    """Return the reassignments of a plan, wave by wave."""
    return [change for change in plan.changes if change.action == Action.REASSIGN]


def reassignment_statuses(
    changes: Sequence[Change], plan: Plan, current: CurrentState
) -> Iterator[tuple[Change, ReassignmentStatus, str]]:
    """Yield the status of each requested reassignment of a plan, and the detail that shows it.

    A reassignment has diverged if another client has cancelled it or moves its partition elsewhere.
    """
    changes_by_key: dict[Key, list[Change]] = {}
    for change in reassignments_of(plan):
        changes_by_key.setdefault(change.key, []).append(change)
    for change in changes:
        later_targets = [row.replicas_after for row in changes_by_key.get(change.key, ()) if row.wave > change.wave]
        yield change, *_status_of(change, current, later_targets)


@dataclass(frozen=True, slots=True)
class Reassignments:
    """All reassignments of a cluster that run or are requested, and the znodes that could not be read."""

    understood: list[Reassignment]
    not_understood: list[str]
    """Znodes that are not understood, each with the reason."""


def classify(current: CurrentReassignments) -> Reassignments:
    """Find what keeps each reassignment from moving."""
    empty_request = f"{REASSIGN} (Kafka treats it as empty; `delete {REASSIGN}` in zookeeper-shell clears it)"
    not_understood = [empty_request] if current.requests is None else []
    understood = [_classify(key, partition, current) for key, partition in current.partitions.items()]
    return Reassignments(understood, [*not_understood, *current.not_understood])


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
        for other in others.understood
        if list(other.goal) not in own_targets.get((other.topic, other.partition), [])
    ]
    topics = {change.topic for change in copying}
    brokers = {broker for change in copying for broker in (*(change.replicas_before or ()), *change.replicas_after)}
    running = [other for other in others_running if other.obstacle is None]
    in_the_way = [other for other in running if other.copies and (other.topic in topics or other.brokers & brokers)]
    if in_the_way:
        raise RefusedError(_refusal(settings, plan, in_the_way))
    unread_warnings = [f"not understood, and assumed not to move: {znode}" for znode in others.not_understood]
    running_warnings = (
        [f"other reassignments run, not in the way of this plan: {abbreviate([other.in_words for other in running])}"]
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
        text = f"{pluralise(len(empty), 'requested reassignment')} that cannot be carried out"
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


def _classify(key: Key, partition: CurrentPartition, current: CurrentReassignments) -> Reassignment:
    requests = current.requests or {}
    try:
        assignment = partition.assignment
    except MalformedZnodeError:  # Kafka's controller has the assignment in memory and may be moving it
        goal = tuple(requests.get(key, current.moving.get(key, ())))
        return Reassignment(*key, goal, frozenset(goal))
    deleting = key[0] in current.deleting
    request = requests.get(key)
    return reassignment(
        key, assignment, request, partition.isr, current.live, deleting=deleting, ignored=current.ignored
    )


def _status_of(
    change: Change, current: CurrentState, later_targets: Sequence[list[int]]
) -> tuple[ReassignmentStatus, str]:
    goal, partition = change.replicas_after, current.partitions[change.key]
    try:
        assignment = partition.assignment
    except MalformedZnodeError as error:
        return ReassignmentStatus.DIVERGED, str(error)
    if assignment is None:
        return ReassignmentStatus.DIVERGED, reasons.PARTITION_GONE.say()
    if current.requests.get(change.key) == goal:
        return ReassignmentStatus.IN_PROGRESS, reasons.REQUESTED.say()
    status = status_towards(goal, assignment)
    if status is ReassignmentStatus.DIVERGED:
        return (
            ReassignmentStatus.COMPLETE if assignment.target in later_targets else status,
            reasons.REPLICAS_NOW.say(replicas=assignment.replicas),
        )
    missing = partition.lagging(goal)
    if status is ReassignmentStatus.IN_PROGRESS or (moves_replicas(change) and missing):
        return ReassignmentStatus.IN_PROGRESS, reasons.LAGGING.say(lagging=missing)
    return status, reasons.REPLICAS.say(replicas=assignment.replicas)
