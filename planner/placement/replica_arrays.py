"""Lists of replicas of many partitions at once, as (slot, row): who is in them, and how many they give each broker."""

import numpy as np

from planner.placement.problem import NO_BROKER, Bools, Ints


def is_in_row(some: Ints, others: Ints) -> Bools:
    """(slot, row): the broker is in the other list of its row, too.

    >>> within(np.array([[1, 4], [2, 5]]), np.array([[2, 6], [3, 4]]))
    array([[False,  True],
           [ True, False]])
    """
    inside = np.zeros(some.shape, dtype=bool)
    for slot, brokers in enumerate(some):
        for other in others:
            inside[slot] |= brokers == other
    return inside


def arrivals(before: Ints, after: Ints) -> Bools:
    """(slot of `after`, row): a replica that was not there before; with the lists exchanged, one that is given up."""
    new: Bools = (after != NO_BROKER) & ~is_in_row(after, before)
    return new


def count_replicas(replicas: Ints, size: int) -> Ints:
    """Replicas of each broker."""
    counted: Ints = np.bincount((replicas + 1).ravel(), minlength=size + 1)[1:]
    return counted


def count_leaders(replicas: Ints, size: int) -> Ints:
    """Partitions that name each broker first."""
    return count_replicas(replicas[0], size)


def count_bytes(replicas: Ints, weights: Ints, size: int) -> Ints:
    """Bytes of each broker, exact also beyond what a double holds."""
    total = np.zeros(size + 1, dtype=np.int64)
    for slot in replicas:
        np.add.at(total, slot, np.where(slot == NO_BROKER, 0, weights))
    return total[:-1]


def padded(offsets: Ints, values: Ints) -> Ints:
    """Lists as Arrow has them (row n from offsets[n] to offsets[n + 1]) as one row each, padded with NOBODY.

    >>> padded(np.array([0, 2, 3]), np.array([5, 6, 7]))
    array([[ 5,  6],
           [ 7, -1]])
    """
    lengths = np.diff(offsets)
    filled = np.arange(lengths.max(initial=1)) < lengths[:, None]
    rows = np.full(filled.shape, NO_BROKER, dtype=np.int64)
    rows[filled] = values[offsets[0] : offsets[-1]]
    return rows
