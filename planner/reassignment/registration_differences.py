"""Differences between two readings of a KRaft partition: changes since planning, and those no request causes.

Corresponds to `PartitionRegistration`. Brokers of a KRaft cluster do not report the partition epoch, by which its
controller distinguishes states (`ReplicationControlManager.alterPartition`). So a change depends on the whole state of
its partition. The state is compared with the planned one right before the request. What happened between that reading
and the request is found afterwards.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from schemas import reasons
from schemas.replica_assignment import ReplicaAssignment


class PartitionRegistration(NamedTuple):
    """The whole state of a partition, as far as brokers describe it."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]
    leader: int | None
    leader_epoch: int | None
    isr: Sequence[int]
    eligible: Sequence[int] | None = None
    """Eligible leader replicas; None if they are not known."""

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)


def differences(planned: PartitionRegistration, now: PartitionRegistration) -> str | None:
    """Return what is different from the state as planned.

    The order of replicas counts, as the first is preferred; in the other lists it does not. Eligible leader replicas
    that were not known then are not compared; those that were known then and are not known now are different.

    >>> before = PartitionRegistration([1, 2], [], [], 1, 5, [1, 2])
    >>> differences(before, before._replace(isr=[2, 1], eligible=[])) is None
    True
    >>> differences(before, before._replace(leader=2, leader_epoch=6))
    'leader 1→2, leader epoch 5→6'
    """
    return ", ".join(_differences(planned, now)) or None


def _differences(planned: PartitionRegistration, now: PartitionRegistration) -> Iterator[str]:
    if list(planned.replicas) != list(now.replicas):
        yield _difference("replicas", list(planned.replicas), list(now.replicas))
    yield from _set_difference("adding", planned.adding, now.adding)
    yield from _set_difference("removing", planned.removing, now.removing)
    if planned.leader != now.leader:
        yield _difference("leader", planned.leader, now.leader)
    if planned.leader_epoch != now.leader_epoch:
        yield _difference("leader epoch", planned.leader_epoch, now.leader_epoch)
    yield from _set_difference("ISR", planned.isr, now.isr)
    if planned.eligible is not None:
        yield from _set_difference("eligible leader replicas", planned.eligible, now.eligible)


def unexplained_by_move(before: PartitionRegistration, now: PartitionRegistration, goal: Sequence[int]) -> str | None:
    """Return what the request to move a partition to these replicas does not explain, once it was accepted.

    A move that runs adds replicas to the ISR and keeps the leader. A move that is complete keeps the leader if it stays
    in the list; its epoch grows as replicas are removed.

    >>> before = PartitionRegistration([1, 2], [], [], 1, 5, [1, 2])
    >>> unexplained_by_move(before, PartitionRegistration([3, 2, 1], [3], [1], 1, 5, [1, 2, 3]), [3, 2]) is None
    True
    >>> unexplained_by_move(before, PartitionRegistration([3, 2, 1], [3], [1], 2, 6, [2]), [3, 2])
    'leader 1→2, leader epoch 5→6, ISR [1, 2]→[2]'
    """
    status = status_towards(goal, now.assignment)
    if status is ReassignmentStatus.DIVERGED:
        return _difference("replicas", list(before.replicas), list(now.replicas))
    expected = before._replace(replicas=now.replicas, adding=now.adding, removing=now.removing, eligible=None)
    arrived = [broker for broker in now.isr if broker in goal and broker not in before.isr]
    if status is ReassignmentStatus.IN_PROGRESS:
        return differences(expected._replace(isr=[*before.isr, *arrived]), now)
    leader = before.leader if before.leader in goal else now.leader
    return differences(expected._replace(leader=leader, leader_epoch=now.leader_epoch, isr=now.isr), now)


def unclean_choice(now: PartitionRegistration, last_known: Sequence[int] | None, live: Collection[int]) -> int | None:
    """Return the replica that the controller elects if an unclean election is requested, None if none is live.

    Corresponds to `PartitionChangeBuilder.electAnyLeader`. The first in sync is chosen, or in an empty ISR the first
    that is eligible. If both lists are empty, it is the last known leader, if there is only one. Otherwise it is the
    first that is live.

    >>> offline = PartitionRegistration([1, 2, 3], [], [], -1, 5, [], [])
    >>> unclean_choice(offline, None, {2, 3}), unclean_choice(offline, [3], {2, 3}), unclean_choice(offline, [], set())
    (2, 3, None)
    """
    alive = [broker for broker in now.assignment.target if broker in live]
    valid = now.isr or now.eligible or ()
    safe = [broker for broker in alive if broker in valid]
    is_decisive = not valid and last_known is not None and len(last_known) == 1
    last = [broker for broker in last_known or () if is_decisive and broker in live]
    return next(iter([*safe, *last, *alive]), None)


def unexplained_by_election(
    before: PartitionRegistration, now: PartitionRegistration, leader: int, *, unclean: bool = False
) -> str | None:
    """Return what the election of this replica does not explain, once it was accepted: its epoch grows by one.

    An unclean election leaves only the new leader in the ISR, until others catch up.

    >>> before = PartitionRegistration([1, 2], [], [], 2, 5, [1, 2])
    >>> unexplained_by_election(before, before._replace(leader=1, leader_epoch=6), 1) is None
    True
    """
    epoch = before.leader_epoch
    if before.leader != leader and epoch is not None:
        epoch += 1
    isr = now.isr if unclean and leader in now.isr else before.isr
    return differences(before._replace(leader=leader, leader_epoch=epoch, isr=isr, eligible=None), now)


def _set_difference(name: str, planned: Sequence[int], now: Sequence[int] | None) -> Iterator[str]:
    if now is None or set(planned) != set(now):
        yield _difference(name, list(planned), None if now is None else list(now))


def _difference(name: str, before: object, after: object) -> str:
    known = ["unknown" if value is None else value for value in (before, after)]
    return reasons.DIFFERENCE.render(name=name, before=known[0], after=known[1])
