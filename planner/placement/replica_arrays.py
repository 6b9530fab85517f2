"""Replica lists of many partitions as (slot, row): membership, and counts per broker."""

import numpy as np

from planner.placement.types import NO_BROKER, Bools, Ints


def is_in_row(some: Ints, others: Ints) -> Bools:
    """Return (slot, row): whether the broker is also in the other list of its row.

    >>> is_in_row(np.array([[1, 4], [2, 5]]), np.array([[2, 6], [3, 4]]))
    array([[False,  True],
           [ True, False]])
    """
    inside = np.zeros(some.shape, dtype=bool)
    for slot, brokers in enumerate(some):
        for other in others:
            inside[slot] |= brokers == other
    return inside


def arrivals(before: Ints, after: Ints) -> Bools:
    """Return by (slot of `after`, row) the new replicas; with the lists exchanged, replicas that are given up."""
    new: Bools = (after != NO_BROKER) & ~is_in_row(after, before)
    return new


def count_replicas(replicas: Ints, size: int) -> Ints:
    """Count the replicas of each broker."""
    counted: Ints = np.bincount((replicas + 1).ravel(), minlength=size + 1)[1:]
    return counted


def rows_by_broker(replicas: Ints, size: int) -> list[Ints]:
    """Return by broker the rows with a replica on it, ascending.

    >>> [rows.tolist() for rows in rows_by_broker(np.array([[0, 2, NO_BROKER], [2, 0, NO_BROKER]]), 3)]
    [[0, 1], [], [0, 1]]
    """
    rows = np.argsort(replicas.T, axis=None, kind="stable") // len(replicas)
    ends = np.cumsum(np.bincount((replicas + 1).ravel(), minlength=size + 1))
    return np.split(rows, ends[:-1])[1:]


def count_leaders(replicas: Ints, size: int) -> Ints:
    """Count the partitions whose list starts with each broker."""
    return count_replicas(replicas[0], size)


def count_bytes(replicas: Ints, weights: Ints, size: int) -> Ints:
    """Sum the bytes of each broker in integers, which stay exact beyond the precision of a double."""
    total = np.zeros(size + 1, dtype=np.int64)
    for slot in replicas:
        np.add.at(total, slot, np.where(slot == NO_BROKER, 0, weights))
    return total[:-1]


def pad_rows(offsets: Ints, values: Ints) -> Ints:
    """Convert Arrow lists (row n from offsets[n] to offsets[n + 1]) to one row each, padded with NO_BROKER.

    >>> pad_rows(np.array([0, 2, 3]), np.array([5, 6, 7]))
    array([[ 5,  6],
           [ 7, -1]])
    """
    lengths = np.diff(offsets)
    filled = np.arange(lengths.max(initial=1)) < lengths[:, None]
    rows = np.full(filled.shape, NO_BROKER, dtype=np.int64)
    rows[filled] = values[offsets[0] : offsets[-1]]
    return rows


def keep_places(before: Ints, after: Ints) -> None:
    """Let each remaining replica of `after` keep its position, and put new replicas into the free positions."""
    rows = np.flatnonzero((before != after).any(axis=0))
    old, replicas = before[:, rows], after[:, rows]
    gone, new = arrivals(replicas, old), arrivals(old, replicas)
    width = len(old)
    free = np.argsort(~gone, axis=0, kind="stable")
    nth = np.maximum(np.cumsum(new, axis=0) - 1, 0)
    of_new = np.where(nth < gone.sum(axis=0), np.take_along_axis(free, nth, axis=0), width + nth)
    stood = np.array([(slot == old).argmax(axis=0) for slot in replicas])
    place = np.where(new, of_new, np.where(replicas == NO_BROKER, 3 * width, stood))
    after[:, rows] = np.take_along_axis(replicas, np.argsort(place, axis=0, kind="stable"), axis=0)
