"""Reason why the reassignment of a partition makes no progress: nothing is left to do, or a broker is missing.

Corresponds to `KafkaController.processZkPartitionReassignment`, which drops requests it cannot carry out, and to
`isReassignmentComplete`. A reassignment waits until its whole target is in the ISR, for as long as one of its brokers
is down. In: the assignment, the request in /admin, the ISR, the live brokers. Out: an Obstacle, or None.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from schemas import reasons
from schemas.enums import RejectionCode
from schemas.replica_assignment import ReplicaAssignment, is_broker_list
from schemas.rows import Key
from schemas.text import abbreviate, partition_name


class Obstacle(NamedTuple):
    """Reason why a reassignment makes no progress; `waits_for` are the brokers that must start."""

    code: RejectionCode
    reason: str
    waits_for: tuple[int, ...] = ()


NEVER_EXECUTABLE: Final = frozenset(
    {
        RejectionCode.UNKNOWN_PARTITION,
        RejectionCode.INVALID_TARGET,
        RejectionCode.DELETION_REQUESTED,
        RejectionCode.ALREADY_ASSIGNED,
    },
)
"""Codes of requests that no controller will carry out."""


def obstacle(
    now: ReplicaAssignment | None,
    request: Sequence[int] | None,
    isr: Sequence[int] | None,
    live: Collection[int],
    *,
    deleting: bool = False,
) -> Obstacle | None:
    """Return why a partition makes no progress, None if it does or if that is unknown.

    `now` is None if there is no such partition, `request` if /admin requests nothing, `isr` if it could not be read. A
    partition without a state has an empty ISR.

    >>> obstacle(ReplicaAssignment([1, 2, 9], adding=[9]), None, isr=[1, 2], live=[1, 2]).waits_for
    (9,)
    >>> obstacle(ReplicaAssignment([1, 2, 3], adding=[3]), None, isr=[1, 2], live=[1, 2, 3]) is None
    True
    >>> obstacle(ReplicaAssignment([1, 2]), [1, 2], isr=[1, 2], live=[1, 2]).code.value
    'ALREADY_ASSIGNED'
    """
    if now is None:
        return Obstacle(RejectionCode.UNKNOWN_PARTITION, reasons.NO_SUCH_PARTITION.render())
    if request is not None:
        if reason := _request_fault(now, request, deleting=deleting):
            return reason
        now = now.towards(request)
    return None if isr is None else _stalled(now.target, isr, live)


def _request_fault(now: ReplicaAssignment, request: Sequence[int], *, deleting: bool) -> Obstacle | None:
    if not is_broker_list(request):
        return Obstacle(RejectionCode.INVALID_TARGET, reasons.NOT_A_BROKER_LIST.render(requested=request))
    if now.is_being_reassigned:
        return None
    if deleting:
        return Obstacle(RejectionCode.DELETION_REQUESTED, reasons.DELETION_REQUESTED.render())
    if list(request) == list(now.replicas):
        return Obstacle(RejectionCode.ALREADY_ASSIGNED, reasons.HAS_REPLICAS.render())
    return None


def _stalled(goal: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Obstacle | None:
    lagging = [broker for broker in goal if broker not in isr]
    dead = tuple(broker for broker in lagging if broker not in live)
    if dead and len(dead) == len(lagging):
        return Obstacle(RejectionCode.WAITS_FOR_BROKER, _not_alive(dead), dead)
    if lagging and not set(isr) & set(live):
        return Obstacle(RejectionCode.NO_LIVE_LEADER, reasons.ISR_NOT_ALIVE.render(isr=isr), tuple(isr))
    return None


def _not_alive(dead: Sequence[int]) -> str:
    return reasons.NOT_ALIVE.render(dead=abbreviate(dead))


@dataclass(frozen=True, slots=True)
class BlockedReassignment:
    """A partition that is moving, or that a request in /admin would move."""

    topic: str
    partition: int
    goal: tuple[int, ...]
    brokers: frozenset[int]
    """Brokers that hold the partition, or will hold it."""
    obstacle: Obstacle | None = None
    copies: bool = True
    """False if it only changes the order of replicas, or only removes some."""
    dead: tuple[int, ...] = ()
    """Brokers of the goal that are down; it cannot complete before they start."""

    @property
    def name(self) -> str:
        return partition_name(self.topic, self.partition)

    @property
    def is_empty(self) -> bool:
        """Whether no controller will carry it out."""
        return self.obstacle is not None and self.obstacle.code in NEVER_EXECUTABLE

    @property
    def describe(self) -> str:
        cause = _not_alive(self.dead) if self.obstacle is None and self.dead else None
        reason = cause if self.obstacle is None else self.obstacle.reason
        return f"{self.name} to {list(self.goal)}{f' ({reason})' if reason else ''}"


def describe_reassignment(  # noqa: PLR0913 - the values of a partition's znodes
    key: Key,
    now: ReplicaAssignment | None,
    request: Sequence[int] | None,
    isr: Sequence[int] | None,
    live: Collection[int],
    *,
    deleting: bool = False,
    ignored: str | None = None,
) -> BlockedReassignment:
    """Describe a partition that is moving or requested to move; the arguments are the same as for `obstacle`.

    `ignored` is the reason why the controller takes no entry of the request, as Kafka's does with an unknown field.
    """
    if request is not None and ignored:
        if now is not None and not now.is_being_reassigned:
            reason = Obstacle(RejectionCode.INVALID_TARGET, ignored)
            return BlockedReassignment(*key, tuple(request), frozenset([*now.replicas, *request]), reason)
        request = None if now is not None else request
    goal = tuple(request if request is not None else () if now is None else now.target)
    held = () if now is None else now.replicas
    return BlockedReassignment(
        *key,
        goal,
        frozenset([*held, *goal]),
        obstacle(now, request, isr, live, deleting=deleting),
        copies=now is None or bool((now if request is None else now.towards(request)).adding),
        dead=tuple(broker for broker in goal if broker not in live),
    )
