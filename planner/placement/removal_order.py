"""Which replica leaves first where one has to: one on a drained broker, then one that lags; dead ones have left before.

Corresponds to nothing in Kafka, which asks for whole lists: a reassignment is complete once all of its target is in
sync, so a plan that keeps a lagging replica and drops one in sync makes the move wait and brings min.insync.replicas
nearer. The last replica in sync outranks where it lives. In: lists before, who is in sync and which brokers are live.
Out: a rank for each replica, and those that stay.
"""

from typing import Final

import numpy as np

from planner.placement.problem import NO_BROKER, Bools, Ints, Partitions
from planner.placement.replica_arrays import is_in_row

IN_SYNC: Final = 0
LAGGING: Final = 1
DRAINED: Final = 2
RANKS: Final = 3


def in_sync_of(partitions: Partitions, order: Ints, width: int) -> Bools:
    """(slot, row): in sync, by row as in `order`; all are where that is not known."""
    in_sync = np.ones((width, len(order)), dtype=bool)
    if partitions.in_sync is not None:
        listed = partitions.in_sync[order].T
        in_sync[: len(listed)] = listed
    return in_sync


def removal_ranks(before: Ints, in_sync: Bools, live: Bools, target: Bools) -> Ints:
    """(slot, row): IN_SYNC to DRAINED; the higher leaves first. `live` and `target` have an entry a broker.

    Where brokers that may keep replicas have none in sync, the first one in sync on a drained broker counts as theirs.

    >>> lists, in_sync = np.array([[0, 2], [1, 1], [2, 0]]), np.array([[True, True], [False, False], [True, False]])
    >>> live, target = np.array([True, True, True]), np.array([True, True, False])
    >>> ranks(lists, in_sync, live, target).T.tolist()  # drained broker 2 holds the last replica in sync of row 1
    [[0, 1, 2], [0, 1, 1]]
    """
    held = before != NO_BROKER
    rank = np.where(target[before], np.where(in_sync, IN_SYNC, LAGGING), DRAINED)
    rescue = held & in_sync & live[before] & (rank == DRAINED)
    lost = np.flatnonzero(rescue.any(axis=0) & ~(held & (rank == IN_SYNC)).any(axis=0))
    rank[rescue[:, lost].argmax(axis=0), lost] = IN_SYNC
    return rank


def in_sync_to_keep(before: Ints, in_sync: Bools) -> Ints:
    """(slot, row): replicas in sync of rows that have one out of sync, which leave only where the goal says so.

    >>> kept(np.array([[7, 7], [8, 8]]), np.array([[True, True], [False, True]]))
    array([[ 7, -1],
           [-1, -1]])
    """
    short = (~in_sync & (before != NO_BROKER)).any(axis=0)
    return np.where(in_sync & short, before, NO_BROKER)


def is_kept(after: Ints, stay: Ints) -> Bools:
    """(slot, row): replicas of `after` that are among those that stay."""
    if not (stay != NO_BROKER).any():
        return np.zeros(after.shape, dtype=bool)
    marks: Bools = (after != NO_BROKER) & is_in_row(after, stay)
    return marks
