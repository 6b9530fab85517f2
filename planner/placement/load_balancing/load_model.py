"""Loads of replicas and brokers, and the bands in which the load of each broker should lie.

A resource is one column: disk, and bytes in, bytes out and CPU once for each window of the week. Loads are divided by
the target of a broker, which is its share of the total by capacity, or an equal share if no capacity is known. So 1 is
the mean, and a broker is even if each of its loads lies in its band. Loads come as whole numbers, so that sums do not
depend on the order of summands.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.placement.model import PlacementModel
from planner.placement.types import Floats, Ints, PlacementLoads

SMALLEST: Final = 1e-9
"""Target of a broker that has none, so that loads can be divided by it."""

TOLERANCE: Final = 1e-9
"""Loads that exceed a band by less count as inside."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaLoads:
    """The load of one replica of each partition, (row, resource), if it leads and if it follows.

    `leader` is never below `follower`. `size` is what a copy costs: the bytes of one replica by row.
    """

    leader: Ints
    follower: Ints
    size: Ints

    def of_broker(self, replicas: Ints, brokers: int) -> Ints:
        """Sum the loads of brokers, (broker, resource), of replica lists by (slot, row)."""
        total = np.zeros((brokers + 1, self.leader.shape[1]), dtype=np.int64)
        for slot, held in enumerate(replicas):
            np.add.at(total, held, self.follower if slot else self.leader)
        return total[:-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bands:
    """By (broker, resource) in units of `target`: the band, and the limit that no change may exceed.

    Brokers that may hold no replicas have no band.
    """

    target: Floats
    low: Floats
    high: Floats
    limit: Floats


def bands_of(model: PlacementModel, load: Ints, loads: PlacementLoads, within: float) -> Bands:
    """Return the bands of `within` around the mean, below each limit.

    `load` is by (broker, resource); that of brokers that may hold no replicas has no part in the mean. `loads` has
    capacities by broker of the model. A resource counts by capacity only if that of every target is known. To relieve
    disks, the only bounds are their share and the limits of the other resources.
    """
    targets, capacity = model.target[:, None], loads.capacity
    known = (~np.isnan(capacity) | ~targets).all(axis=0)
    shares = np.where(targets, np.where(known, np.nan_to_num(capacity), 1.0), 0.0)
    shares /= np.maximum(shares.sum(axis=0), SMALLEST)
    target = np.maximum(shares * load[model.target].sum(axis=0), SMALLEST)
    limit = np.where(np.isnan(loads.limit), np.inf, loads.limit / target)
    if loads.relieve is None:
        high = np.where(targets, np.minimum(1 + within, limit), np.inf)
        low = np.where(targets, np.minimum(1 - within, high), -np.inf)
        return Bands(target=target, low=low, high=high, limit=limit)
    high, low = np.full_like(target, np.inf), np.full_like(target, -np.inf)
    high[:, 0] = np.where(targets[:, 0], capacity[:, 0] * loads.relieve / target[:, 0], np.inf)
    return Bands(target=target, low=low, high=high, limit=np.minimum(limit, high))
