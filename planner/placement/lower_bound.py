"""How few copies could do: a lower bound that holds whatever racks, fixed partitions or limits are in the way.

A copy gives one broker one replica, so that brokers which are to be as even as the plan makes them need as many copies
as loads that even are away from those of now; the fullest give and the emptiest take, as if nothing were in the way.
Where nothing but the rules limits a plan, its loads are the most even there are, and all others as even have the same
loads in another order: what partitions can give brokers is a base polyhedron, and these are its decreasingly minimal
points (Frank and Murota), which says more.
In: what brokers hold before and after. Out: a number of copies that no placement as even as this undercuts.
"""

import numpy as np

from planner.placement.balancing.descent import fill_lowest
from planner.placement.problem import Bools, Ints


def fewest_copies(before: Ints, after: Ints, fresh: Bools) -> int:
    """Copies without which brokers that hold `before` are not as even as `after`; only `fresh` ones may take any.

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
    more = int(after.sum() - before.sum())
    low, high = max(more, 0), int(np.maximum(after - before, 0).sum())
    squares = _squares(after)
    while low < high:
        copies = (low + high) // 2
        low, high = (low, copies) if _reaches(before, fresh, copies, copies - more, squares) else (copies + 1, high)
    return low


def fewest_in_any_order(before: Ints, after: Ints) -> int:
    """Copies without which brokers that hold `before` do not hold `after` in some order: the fullest stay the fullest.

    >>> fewest_in_any_order(np.array([30, 30, 0, 0]), np.array([10, 10, 30, 10]))
    20
    """
    return int(np.maximum(np.sort(after) - np.sort(before), 0).sum())


def _reaches(before: Ints, fresh: Bools, gained: int, given: int, squares: int) -> bool:
    """Whether the best that so many replicas can do, gained and given up, is as even as wanted."""
    taken, left = before.copy(), -fill_lowest(-before, given)
    taken[fresh] = fill_lowest(before[fresh], gained)
    crossed = gained and given and taken[taken > before].max() > left[left < before].min()
    return bool(crossed) or _squares(taken + left - before) <= squares


def _squares(load: Ints) -> int:
    return int((load * load).sum())
