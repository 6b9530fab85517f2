"""The spread of replicas over racks, for many partitions at once.

Corresponds to the rack rule of `AdminUtils`: replicas in as many racks as possible. With more replicas than racks, that
number is meaningless, and what matters is how many replicas the loss of one rack takes. Arrays are (slot, row) of rack
numbers; `NO_RACK` stands for a broker without a rack and for padding.

Both measures can be optimal at once. The numbers of replicas that allowed sets put into racks form an M-convex set,
whose most even member has the lowest maximum and the fewest zeros (Frank and Murota). Sets of one size that span at
least a number of racks and put at most a number of replicas into one are the bases of a matroid, a gammoid: each
replica takes the first place of its rack, or one of the places that the span leaves over, of which a rack may use all
but one of its own limit. So such sets can be built, and exchanged, one replica at a time.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.placement.types import Bools, Ints

NO_RACK: Final = -1


def given_up(racks: Ints, emptied: Bools, stays: Bools, count: int) -> Bools:
    """Return the racks, by number, that have brokers to be emptied and none that stays; all three arrays are by broker.

    >>> emptied, stays = np.array([True, False, True, False, True]), np.array([False, True, False, False, False])
    >>> given_up(np.array([0, 0, 1, 1, NO_RACK]), emptied, stays, 2)
    array([False,  True])
    """
    has, keeps = (np.bincount(racks[some & (racks != NO_RACK)], minlength=count) > 0 for some in (emptied, stays))
    marks: Bools = has & ~keeps
    return marks


def racks_spanned(racks: Ints) -> Ints:
    """Return the number of racks each row spans.

    >>> racks_spanned(np.array([[0, 0], [1, 0], [1, NO_RACK]]))
    array([2, 1])
    """
    total = np.zeros(racks.shape[1], dtype=np.int64)
    for slot in range(len(racks)):
        total += _in_other_racks(racks, slot, range(slot))
    return total


def max_per_rack(racks: Ints) -> Ints:
    """Return the largest number of a row's replicas in one rack; 0 if none has a rack.

    >>> max_per_rack(np.array([[0, 0, NO_RACK], [1, 0, NO_RACK], [1, NO_RACK, NO_RACK], [0, 0, NO_RACK]]))
    array([2, 3, 0])
    """
    if not len(racks):
        return np.zeros(racks.shape[1], dtype=np.int64)
    most: Ints = _place_in_rack(racks).max(axis=0).astype(np.int64) + 1
    return most


def max_independent(racks: Ints, held: Bools, factor: Ints, min_racks: Ints, capacity: Ints) -> Ints:
    """Return how many of a row's replicas a list of `factor` can keep.

    The list spans `min_racks` racks with at most `capacity` replicas in each. `held`: slots that hold a replica. The
    result is the rank of the row's set in the matroid above.

    >>> racks, four = np.array([[0, 0], [0, 0], [0, 1], [1, 2]]), np.array([4, 4])
    >>> max_independent(racks, np.full((4, 2), True), four, np.array([2, 4]), np.array([2, 4]))
    array([3, 3])
    """
    place = _place_in_rack(racks)
    first = (place == 0).sum(axis=0)
    rest = ((place > 0) & (place < capacity)).sum(axis=0) + (held & (place < 0)).sum(axis=0)
    kept: Ints = np.minimum(first + np.minimum(factor - min_racks, rest), factor)
    return kept


def lowest_crowding(held: Ints, room: Ints, elsewhere: Ints, more: Ints) -> Ints:
    """Return the lowest possible `max_per_rack`, at least 1, once each row has `more` replicas, as water fills levels.

    `held` and `room`, (rack, row): replicas, and brokers that could take one. `elsewhere`: such brokers without a rack.

    >>> held, room = np.array([[2, 2, 0], [1, 1, 0]]), np.array([[2, 2, 4], [2, 0, 1]])
    >>> lowest_crowding(held, room, np.array([0, 0, 0]), np.array([1, 1, 4]))
    array([2, 3, 3])
    """
    level: Ints = np.maximum(held.max(axis=0, initial=0), 1)
    while True:
        lacking = more - elsewhere - np.minimum(room, np.maximum(level - held, 0)).sum(axis=0)
        short = (lacking > 0) & (level < (held + room).max(axis=0, initial=0))
        if not short.any():
            return level
        level = level + short


def _place_in_rack(racks: Ints) -> npt.NDArray[np.int8]:
    """Return by (slot, row) how many slots before it are in the same rack, -1 without a rack."""
    has_rack = racks != NO_RACK
    place: npt.NDArray[np.int8] = has_rack.astype(np.int8) - np.int8(1)
    for slot in range(1, len(racks)):
        for other in range(slot):
            place[slot] += (racks[slot] == racks[other]) & has_rack[slot]
    return place


def exclusive_rack(racks: Ints) -> Bools:
    """Return (slot, row): whether no other replica of the row is in this slot's rack."""
    others = [[other for other in range(len(racks)) if other != slot] for slot in range(len(racks))]
    return np.array([_in_other_racks(racks, slot, rest) for slot, rest in enumerate(others)])


def _in_other_racks(racks: Ints, slot: int, others: Iterable[int]) -> Bools:
    apart: Bools = racks[slot] != NO_RACK
    for other in others:
        apart &= racks[slot] != racks[other]
    return apart


def replicas_by_rack(racks: Ints, count: int) -> Ints:
    """Return by (rack, row) the replicas of a row in each rack; the last rack stands for no rack and stays zero."""
    width = racks.shape[1]
    slots = np.where(racks == NO_RACK, count, racks) * width + np.arange(width)
    held: Ints = np.bincount(slots.ravel(), minlength=(count + 1) * width).reshape(count + 1, width)
    held[count] = 0
    return held
