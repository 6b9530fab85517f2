"""The status of a partition within the steps of a plan.

In: the steps of one partition and its assignment. Out: a ReassignmentStatus.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from schemas.replica_assignment import ReplicaAssignment


class ReassignmentStatus(StrEnum):
    """How far a plan has moved a partition."""

    NOT_STARTED = "not_started"
    """The next step has not been requested."""
    IN_PROGRESS = "in_progress"
    OUT_OF_ORDER = "out_of_order"
    """A step was cancelled: the replicas are those before it, but their order is not restored."""
    COMPLETE = "complete"
    IRREVERSIBLE = "irreversible"
    """The plan continues by itself and cannot be stopped, as a deletion."""
    DIVERGED = "diverged"
    """The partition is at no step of the plan: another client changed or changes it."""


class ReassignmentStep(NamedTuple):
    """One step of a partition; each step starts at the target of the one before."""

    before: Sequence[int]
    after: Sequence[int]


def status_towards(goal: Sequence[int], now: ReplicaAssignment) -> ReassignmentStatus:
    """Return how far a partition is on its way to these replicas; DIVERGED if it is not on its way there.

    >>> status_towards([3, 1], ReplicaAssignment([3, 1, 2], adding=[3], removing=[2])).value
    'in_progress'
    """
    if now.target != list(goal):
        return ReassignmentStatus.DIVERGED
    return ReassignmentStatus.IN_PROGRESS if now.is_being_reassigned else ReassignmentStatus.COMPLETE


def status_of(steps: Sequence[ReassignmentStep], now: ReplicaAssignment) -> tuple[ReassignmentStatus, int]:
    """Return the status of a partition and the number of a step: the running one, else the next one.

    >>> steps = [ReassignmentStep([1, 2], [1, 2, 3])]
    >>> status_of(steps, ReplicaAssignment([1, 2, 3], adding=[3]))[0].value
    'in_progress'
    """
    if now.is_being_reassigned:
        for number, (before, after) in enumerate(steps):
            is_towards = status_towards(after, now) is ReassignmentStatus.IN_PROGRESS
            if is_towards and sorted(now.origin) == sorted(before):
                return ReassignmentStatus.IN_PROGRESS, number
        return ReassignmentStatus.DIVERGED, 0
    if status_towards(steps[-1].after, now) is ReassignmentStatus.COMPLETE:
        return ReassignmentStatus.COMPLETE, len(steps) - 1
    for number, step in enumerate(steps):
        if list(now.replicas) == list(step.before):
            return ReassignmentStatus.NOT_STARTED, number
    for number, step in enumerate(steps):
        if list(now.replicas) == cancelled_replicas(step):
            return ReassignmentStatus.OUT_OF_ORDER, number
    return ReassignmentStatus.DIVERGED, 0


def cancelled_replicas(step: ReassignmentStep) -> list[int]:
    """Return the replicas after a step is cancelled, in Kafka's order.

    >>> cancelled_replicas(ReassignmentStep([1, 2, 3], [3, 4, 2]))
    [3, 2, 1]
    """
    return ReplicaAssignment(step.before).towards(step.after).origin
