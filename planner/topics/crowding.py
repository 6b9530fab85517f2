"""How many of a partition's replicas are in one rack, and how few can be: for few lists, in plain Python.

`planner.placement.racks` has the same for many partitions at once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def crowding(replicas: Sequence[int], racks: Mapping[int, str]) -> int:
    """The largest number of these replicas in one rack; brokers without one count alone.

    >>> crowding([1, 2, 9], {1: "a", 2: "a"}), crowding([8, 9], {})
    (2, 1)
    """
    return max(Counter(racks.get(broker, broker) for broker in replicas).values(), default=0)


def least_crowding(replicas: int, racks: Mapping[int, str], brokers: Iterable[int]) -> int:
    """The least that can be for so many replicas on these brokers.

    >>> racks = {1: "a", 2: "a", 3: "b", 4: "a"}
    >>> [least_crowding(count, racks, racks) for count in (1, 2, 3, 4)]
    [1, 1, 2, 3]
    """
    sizes = Counter(racks.get(broker, broker) for broker in brokers).values()
    levels = (level for level in range(1, replicas) if sum(min(size, level) for size in sizes) >= replicas)
    return next(levels, replicas)
