"""The order in which replicas leave a partition: those on drained brokers first, then lagging ones.

Dead replicas have been removed before. Kafka has no such rule, as it takes whole lists: a reassignment is complete once
its whole target is in sync. A plan that keeps a lagging replica and drops one in sync makes the move wait and brings
the partition closer to min.insync.replicas. The last replica in sync is kept whichever broker it is on. In: lists
before, replicas in sync, live brokers. Out: a rank per replica, and the replicas that stay.
"""

from typing import Final

import numpy as np

from planner.placement.replica_arrays import is_in_row
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementPartitions

IN_SYNC: Final = 0
LAGGING: Final = 1
DRAINED: Final = 2


def in_sync_mask(partitions: PlacementPartitions, order: Ints, width: int) -> Bools:
    """Return the replicas in sync by (slot, row), rows as in `order`; all of them if the ISR is unknown."""
    in_sync = np.ones((width, len(order)), dtype=bool)
    if partitions.in_sync is not None:
        listed = partitions.in_sync[order].T
        in_sync[: len(listed)] = listed
    return in_sync


def removal_ranks(before: Ints, in_sync: Bools, live: Bools, target: Bools) -> Ints:
    """Return by (slot, row) ranks from IN_SYNC to DRAINED; the highest rank leaves first. `live` and `target` are
    by broker.

    If brokers that may keep replicas have none in sync, the first one in sync on a drained broker counts as one of
    theirs.

    >>> lists, in_sync = np.array([[0, 2], [1, 1], [2, 0]]), np.array([[True, True], [False, False], [True, False]])
    >>> live, target = np.array([True, True, True]), np.array([True, True, False])
    >>> removal_ranks(lists, in_sync, live, target).T.tolist()  # drained broker 2: last in sync of row 1
    [[0, 1, 2], [0, 1, 1]]
    """
    held = before != NO_BROKER
    rank = np.where(target[before], np.where(in_sync, IN_SYNC, LAGGING), DRAINED)
    rescue = held & in_sync & live[before] & (rank == DRAINED)
    lost = np.flatnonzero(rescue.any(axis=0) & ~(held & (rank == IN_SYNC)).any(axis=0))
    rank[rescue[:, lost].argmax(axis=0), lost] = IN_SYNC
    return rank


def in_sync_to_keep(before: Ints, in_sync: Bools) -> Ints:
    """Return by (slot, row) the replicas in sync of rows with a lagging one; they leave only if the goal requires it.

    >>> in_sync_to_keep(np.array([[7, 7], [8, 8]]), np.array([[True, True], [False, True]]))
    array([[ 7, -1],
           [-1, -1]])
    """
    short = (~in_sync & (before != NO_BROKER)).any(axis=0)
    return np.where(in_sync & short, before, NO_BROKER)


def kept_mask(after: Ints, stay: Ints) -> Bools:
    """Return (slot, row): replicas of `after` that are among those that stay."""
    if not (stay != NO_BROKER).any():
        return np.zeros(after.shape, dtype=bool)
    marks: Bools = (after != NO_BROKER) & is_in_row(after, stay)
    return marks
