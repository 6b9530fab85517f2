"""How many of a partition's replicas are in one rack, and how few can be, by names of racks.

`planner.placement.racks` has the same on numbers of racks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from planner.columns.partition_masks import Bools, Ints, has_broker
from planner.placement.racks import NO_RACK
from planner.placement.racks import max_per_rack as crowding_of_rows
from schemas.enums import NO_LEADER


def max_per_rack(replicas: Sequence[int], racks: Mapping[int, str]) -> int:
    """Return the largest number of these replicas in one rack; a broker without a rack counts as its own rack.

    >>> max_per_rack([1, 2, 9], {1: "a", 2: "a"}), max_per_rack([8, 9], {})
    (2, 1)
    """
    return max(Counter(racks.get(broker, broker) for broker in replicas).values(), default=0)


def least_crowding(replicas: int, racks: Mapping[int, str], brokers: Iterable[int]) -> int:
    """Return the smallest possible number for a list of `replicas` replicas on these brokers.

    >>> racks = {1: "a", 2: "a", 3: "b", 4: "a"}
    >>> [least_crowding(count, racks, racks) for count in (1, 2, 3, 4)]
    [1, 1, 2, 3]
    """
    sizes = Counter(racks.get(broker, broker) for broker in brokers).values()
    levels = (level for level in range(1, replicas) if sum(min(size, level) for size in sizes) >= replicas)
    return next(levels, replicas)


def crowded_rows(replicas: Ints, racks: Mapping[int, str], brokers: Collection[int]) -> Bools:
    """Mark the partitions with more replicas in one rack than necessary on these brokers.

    `replicas` has a row for each partition, padded with NO_LEADER.

    >>> crowded_rows(np.array([[1, 2], [1, 3], [9, -1]]), {1: "a", 2: "a", 3: "b"}, [1, 2, 3]).tolist()
    [True, False, False]
    """
    ids, places = np.unique(replicas, return_inverse=True)
    numbers: dict[int | str, int] = {NO_LEADER: NO_RACK}
    rack_of = np.array(
        [numbers.setdefault(racks.get(broker, broker), len(numbers)) for broker in ids.tolist()], dtype=np.int64
    )
    least = np.array([least_crowding(count, racks, brokers) for count in range(replicas.shape[1] + 1)])
    crowded: Bools = (
        crowding_of_rows(rack_of[places.reshape(replicas.shape)].T) > least[has_broker(replicas).sum(axis=1)]
    )
    return crowded
