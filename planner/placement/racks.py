"""How many racks a partition spans, for many partitions at once.

Corresponds to the rack rule of `AdminUtils`: replicas in as many racks as can be. Arrays are (slot, row): racks by
number, `NO_RACK` for a broker without one and for padding. What has no rack counts as no rack.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from planner.placement.problem import Bools, Ints

NO_RACK: Final = -1


def given_up(racks: Ints, emptied: Bools, count: int) -> Bools:
    """Racks, by number, that have brokers and every one of them is emptied; `racks` and `emptied` are by broker.

    >>> given_up(np.array([0, 0, 1, 1, NO_RACK]), np.array([True, False, True, True, True]), 2)
    array([False,  True])
    """
    has, stays = (np.bincount(racks[some & (racks != NO_RACK)], minlength=count) > 0 for some in (emptied, ~emptied))
    marks: Bools = has & ~stays
    return marks


def spanned(racks: Ints) -> Ints:
    """Racks a row spans.

    >>> spanned(np.array([[0, 0], [1, 0], [1, NO_RACK]]))
    array([2, 1])
    """
    total = np.zeros(racks.shape[1], dtype=np.int64)
    for slot in range(len(racks)):
        total += _apart_from(racks, slot, range(slot))
    return total


def alone(racks: Ints) -> Bools:
    """(slot, row): nobody else of the row is in this slot's rack."""
    others = [[other for other in range(len(racks)) if other != slot] for slot in range(len(racks))]
    return np.array([_apart_from(racks, slot, rest) for slot, rest in enumerate(others)])


def _apart_from(racks: Ints, slot: int, others: Iterable[int]) -> Bools:
    apart: Bools = racks[slot] != NO_RACK
    for other in others:
        apart &= racks[slot] != racks[other]
    return apart


def by_rack(racks: Ints, count: int) -> Ints:
    """(rack, row): replicas of a row in each rack; the last rack stands for none and stays zero."""
    width = racks.shape[1]
    slots = np.where(racks == NO_RACK, count, racks) * width + np.arange(width)
    held: Ints = np.bincount(slots.ravel(), minlength=(count + 1) * width).reshape(count + 1, width)
    held[count] = 0
    return held
