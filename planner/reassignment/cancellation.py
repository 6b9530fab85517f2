"""Where a partition stands on the way a plan leads it, and whether what runs of it may be cancelled.

Corresponds to a null target of AlterPartitionReassignments (`KafkaController.processApiPartitionReassignment`): the
replicas being added are deleted at once, the assignment is the origin, in the order that is left of the target. Kafka
does not check which original replicas are alive and in sync; the canceller must. In: the steps of one partition, its
assignment, its ISR, the live brokers. Out: a Standing; a Danger or None.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

from planner.reassignment.replica_assignment import ReplicaAssignment
from schemas.enums import RejectionCode


class ReassignmentStatus(StrEnum):
    """How far a plan has led a partition."""

    NOT_STARTED = "not_started"
    """The next step of it has not been asked for."""
    IN_PROGRESS = "in_progress"
    OUT_OF_ORDER = "out_of_order"
    """A step was cancelled: the replicas are those before it, their order is not yet."""
    COMPLETE = "complete"
    IRREVERSIBLE = "beyond_recall"
    """It goes on by itself and nothing calls it back, as a deletion."""
    DIVERGED = "diverged"
    """It is nowhere on that way: somebody else changed or changes it."""


class ReassignmentStep(NamedTuple):
    """One step of the way of a partition: the target of each is where the next one begins."""

    before: Sequence[int]
    after: Sequence[int]


class CancellationRisk(NamedTuple):
    """Why a reassignment must not be cancelled."""

    code: RejectionCode
    reason: str


def status_of(steps: Sequence[ReassignmentStep], now: ReplicaAssignment) -> tuple[ReassignmentStatus, int]:
    """Tell where a partition stands and at which of its steps: the next one to do, or the one that runs.

    >>> way = [ReassignmentStep([1, 2], [1, 2, 3])]
    >>> status_of(way, ReplicaAssignment([1, 2, 3], adding=[3]))[0].value
    'in_progress'
    """
    if now.is_moving:
        for number, (before, after) in enumerate(steps):
            if now.target == list(after) and sorted(now.origin) == sorted(before):
                return ReassignmentStatus.IN_PROGRESS, number
        return ReassignmentStatus.DIVERGED, 0
    if list(now.replicas) == list(steps[-1].after):
        return ReassignmentStatus.COMPLETE, len(steps) - 1
    for number, step in enumerate(steps):
        if list(now.replicas) == list(step.before):
            return ReassignmentStatus.NOT_STARTED, number
    for number, step in enumerate(steps):
        if list(now.replicas) == cancelled_replicas(step):
            return ReassignmentStatus.OUT_OF_ORDER, number
    return ReassignmentStatus.DIVERGED, 0


def cancelled_replicas(step: ReassignmentStep) -> list[int]:
    """Return the replicas that a cancelled step leaves, in Kafka's order.

    >>> cancelled_replicas(ReassignmentStep([1, 2, 3], [3, 4, 2]))
    [3, 2, 1]
    """
    return ReplicaAssignment(step.before).towards(step.after).origin


def cancellation_risk(
    now: ReplicaAssignment, isr: Sequence[int] | None, live: Collection[int], *, fewer_copies: bool = False
) -> CancellationRisk | None:
    """Say what would be lost if a reassignment were cancelled, None if no copy in sync would be.

    `fewer_copies`: a partition may be left on those original replicas that are alive, if one of them is in sync.

    >>> cancellation_risk(ReplicaAssignment([1, 2, 3], adding=[3]), isr=[1, 3], live=[1, 3]).code.value
    'REPLICA_NOT_ALIVE'
    """
    if not set(now.adding) & set(now.adding if isr is None else isr):
        return None
    alive = [broker for broker in now.origin if broker in live]
    dead = [broker for broker in now.origin if broker not in live]
    lost = f"the copies on {list(now.adding)} would be deleted"
    if not set(alive) & set(isr or ()):
        known = "its ISR is not known" if isr is None else f"its ISR is {list(isr)}"
        reason = f"no original replica of {now.origin} is alive and in sync ({known}): {lost}, and nobody could lead it"
        return CancellationRisk(RejectionCode.NO_ELIGIBLE_LEADER, reason)
    if dead and not fewer_copies:
        reason = f"original replicas {dead} are not alive: {lost}, and it would live on {alive} alone"
        return CancellationRisk(RejectionCode.REPLICA_NOT_ALIVE, reason)
    return None
