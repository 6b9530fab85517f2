"""A lower bound on the number of copies that holds for any racks, fixed partitions or limits.

A copy gives one broker one replica. So brokers that become as even as the plan makes them need at least as many copies
as the nearest equally even load is away from the current one, as if nothing restricted moves. If only the rules
restrict a plan, its loads are the most even possible, and all equally even loads are permutations of them. The reason
is that the possible loads form a base polyhedron, of which these are the decreasingly minimal points (Frank and
Murota). This gives a tighter bound. In: loads of brokers before and after. Out: a number of copies that no equally even
placement undercuts.
"""

import numpy as np

from planner.placement.balancing.augmenting_paths import fill_lowest
from planner.placement.problem import Bools, Ints


def fewest_copies(before: Ints, after: Ints, fresh: Bools) -> int:
    """Return the fewest copies with which loads `before` become as even as `after`; only `fresh` brokers may take any.

    >>> everyone = np.array([True, True, True])
    >>> fewest_copies(np.array([9, 3, 0]), np.array([4, 4, 4]), everyone)
    5
    >>> fewest_copies(np.array([9, 3, 0]), np.array([7, 3, 2]), everyone), "for 6, 4, 2 is as even, and takes 3"
    (2, 'for 6, 4, 2 is as even, and takes 3')
    >>> fewest_copies(np.array([9, 3, 0]), np.array([9, 3, 0]), everyone)
    0
    >>> fewest_copies(np.array([4, 0]), np.array([4, 2]), everyone[:2])
    2
    """
    added = int(after.sum() - before.sum())
    low, high = max(added, 0), int(np.maximum(after - before, 0).sum())
    squares = _squares(after)
    while low < high:
        copies = (low + high) // 2
        low, high = (low, copies) if _reaches(before, fresh, copies, copies - added, squares) else (copies + 1, high)
    return low


def fewest_in_any_order(before: Ints, after: Ints) -> int:
    """Return the fewest copies with which loads `before` become `after` in some order: the fullest stay the fullest.

    >>> fewest_in_any_order(np.array([30, 30, 0, 0]), np.array([10, 10, 30, 10]))
    20
    """
    return int(np.maximum(np.sort(after) - np.sort(before), 0).sum())


def _reaches(before: Ints, fresh: Bools, gained: int, given: int, squares: int) -> bool:
    """Whether the best loads with so many replicas gained and given up are as even as required."""
    taken, left = before.copy(), -fill_lowest(-before, given)
    taken[fresh] = fill_lowest(before[fresh], gained)
    crossed = gained and given and taken[taken > before].max() > left[left < before].min()
    return bool(crossed) or _squares(taken + left - before) <= squares


def _squares(load: Ints) -> int:
    return int((load * load).sum())
