"""The risk of a cancelled reassignment: whether the replicas that stay are live and in sync.

Corresponds to a null target of AlterPartitionReassignments (`KafkaController.processApiPartitionReassignment`). Kafka
deletes the replicas being added at once and restores the original assignment, in the order that the target left. Kafka
does not check whether the original replicas are live and in sync, so the caller must. In: the steps of one partition,
its assignment, its ISR, the live brokers. Out: a CancellationRisk or None.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from schemas import reasons
from schemas.enums import RejectionCode
from schemas.replica_assignment import ReplicaAssignment


class CancellationRisk(NamedTuple):
    """Reason why a reassignment must not be cancelled."""

    code: RejectionCode
    reason: str


def is_stranded(now: ReplicaAssignment, isr: Sequence[int] | None) -> bool:
    """Return whether no replica can lead a partition, because none is in the ISR; False if the ISR is not known.

    >>> is_stranded(ReplicaAssignment([1, 2]), isr=[3]), is_stranded(ReplicaAssignment([1, 2]), isr=None)
    (True, False)
    """
    return isr is not None and not set(isr) & set(now.replicas)


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
