"""The assignment of one partition while its replicas are moved.

Corresponds to `ReplicaAssignment` in ControllerContext.scala, in plain Python for callers that handle single partitions
without Spark. Replicas are lists of broker ids as in /brokers/topics/T.

A partition is being reassigned if replicas are being added or removed (`ReplicaAssignment.isBeingReassigned`). This
condition is here in plain Python and in Spark's SQL, and `StoredRows.is_being_reassigned` has it on Arrow. The DuckDB
view `partition_health` has it in its own SQL, which users can run, as `is_reassigned`. A test compares all four.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

IS_BEING_REASSIGNED: Final = "size(adding_replicas) + size(removing_replicas) > 0"
"""Condition on rows of PARTITIONS; null if the lists cannot be decoded."""


def is_being_reassigned(adding: Collection[int] | None, removing: Collection[int] | None) -> bool:
    """Return whether a partition with these adding and removing replicas is being reassigned."""
    return bool(adding or removing)


def target(replicas: Sequence[int], removing: Sequence[int]) -> list[int]:
    """Return the target of a reassignment: the replicas without those it removes (`ReplicaAssignment.targetReplicas`).

    >>> target([4, 5, 1, 2], removing=[1, 2])
    [4, 5]
    """
    return [replica for replica in replicas if replica not in removing]


def is_broker_list(replicas: Collection[int]) -> bool:
    """Return whether a partition may have these replicas: ids of brokers, each once.

    >>> [is_broker_list(replicas) for replicas in ([1, 2], [], [1, 1], [-1])]
    [True, False, False, False]
    """
    return 0 < len({*replicas}) == len(replicas) and min(replicas) >= 0


class ReplicaAssignment(NamedTuple):
    """All replicas during a move, and which of them are being added and removed."""

    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether it is being reassigned."""
        return is_being_reassigned(self.adding, self.removing)

    @property
    def target(self) -> list[int]:
        return target(self.replicas, self.removing)

    @property
    def origin(self) -> list[int]:
        """The replicas after a cancellation: those before the move, in the order that the target left."""
        return [replica for replica in self.replicas if replica not in self.adding]

    def towards(self, goal: Sequence[int]) -> "ReplicaAssignment":
        """Return the assignment after a request for `goal` (`ReplicaAssignment.reassignTo`).

        >>> moving = ReplicaAssignment([1, 2, 3, 4]).towards([4, 2, 5, 3])
        >>> moving.replicas, moving.adding, moving.removing, moving.origin
        ([4, 2, 5, 3, 1], [5], [1], [4, 2, 3, 1])
        """
        origin = self.origin
        replicas = list(dict.fromkeys([*goal, *origin]))
        return ReplicaAssignment(replicas, difference(replicas, origin), difference(replicas, goal))


class PartitionTarget(Struct, frozen=True):
    """The replicas that a partition should have."""

    topic: str
    partition: int
    replicas: list[int]


def difference(brokers: Iterable[int], others: Container[int]) -> list[int]:
    """Return the brokers that are not among the others, in order."""
    return [broker for broker in brokers if broker not in others]
