"""The status of a partition within the steps of a plan, and whether its running step may be cancelled.

Corresponds to a null target of AlterPartitionReassignments (`KafkaController.processApiPartitionReassignment`). Kafka
deletes the replicas being added at once and restores the original assignment, in the order that the target left. Kafka
does not check whether the original replicas are live and in sync, so the caller must. In: the steps of one partition,
its assignment, its ISR, the live brokers. Out: a ReassignmentStatus, and a CancellationRisk or None.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

from schemas import reasons
from schemas.enums import RejectionCode
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


class CancellationRisk(NamedTuple):
    """Reason why a reassignment must not be cancelled."""

    code: RejectionCode
    reason: str


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


def is_stranded(now: ReplicaAssignment, isr: Sequence[int] | None) -> bool:
    """Return whether no replica can lead a partition, because none is in the ISR; False if the ISR is not known.

    >>> is_stranded(ReplicaAssignment([1, 2]), isr=[3]), is_stranded(ReplicaAssignment([1, 2]), isr=None)
    (True, False)
    """
    return isr is not None and not set(isr) & set(now.replicas)


def cancelled_replicas(step: ReassignmentStep) -> list[int]:
    """Return the replicas after a step is cancelled, in Kafka's order.

    >>> cancelled_replicas(ReassignmentStep([1, 2, 3], [3, 4, 2]))
    [3, 2, 1]
    """
    return ReplicaAssignment(step.before).towards(step.after).origin


def left_in_sync(now: ReplicaAssignment, isr: Sequence[int]) -> list[int]:
    """Return the in-sync replicas that remain if a running reassignment is cancelled.

    >>> left_in_sync(ReplicaAssignment([3, 1, 2], adding=[3], removing=[1]), isr=[2, 3])
    [2]
    """
    return [broker for broker in isr if broker in now.origin]


def cancellation_risk(
    now: ReplicaAssignment, isr: Sequence[int] | None, live: Collection[int], *, fewer_copies: bool = False
) -> CancellationRisk | None:
    """Return what a cancellation would lose, None if it would lose no copy in sync.

    `fewer_copies`: the partition may be left on those original replicas that are live, if one of them is in sync.

    >>> cancellation_risk(ReplicaAssignment([1, 2, 3], adding=[3]), isr=[1, 3], live=[1, 3]).code.value
    'REPLICA_NOT_ALIVE'
    """
    if not set(now.adding) & set(now.adding if isr is None else isr):
        return None
    live_origin = [broker for broker in now.origin if broker in live]
    dead = [broker for broker in now.origin if broker not in live]
    lost = reasons.COPIES_LOST.render(adding=now.adding)
    if not set(live_origin) & set(isr or ()):
        known = reasons.ISR_UNKNOWN.render() if isr is None else reasons.ISR_KNOWN.render(isr=isr)
        reason = reasons.NO_ORIGIN_IN_SYNC.render(origin=now.origin, isr=known, lost=lost)
        return CancellationRisk(RejectionCode.NO_ELIGIBLE_LEADER, reason)
    if dead and not fewer_copies:
        reason = reasons.ORIGIN_NOT_ALIVE.render(dead=dead, lost=lost, live=live_origin)
        return CancellationRisk(RejectionCode.REPLICA_NOT_ALIVE, reason)
    return None
