"""Loads of replicas and brokers, and the bands in which the load of each broker should lie.

A resource is one column: disk, and bytes in, bytes out and CPU once for each window of the week. Loads are divided by
the target of a broker, which is its share of the total by capacity, or an equal share if no capacity is known. So 1 is
the mean, and a broker is even if each of its loads lies in its band. Loads come as whole numbers, so that sums do not
depend on the order of summands.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.columns.broker_weights import broker_weights
from planner.placement.model import PlacementModel
from planner.placement.types import Bools, Floats, Ints, PlacementLoads

SMALLEST: Final = 1e-9
"""Target of a broker that has none, so that loads can be divided by it."""

SLACK: Final = 1e-5
"""Part of its target that a broker may lose though it is given no replicas: solvers have a tolerance."""

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
    leader_before: Ints | None = None
    """The load as a leader before the replication factor changes; None if it is `leader`."""

    @property
    def before(self) -> "ReplicaLoads":
        """The loads before the change."""
        return self if self.leader_before is None else replace(self, leader=self.leader_before, leader_before=None)

    def of_broker(self, replicas: Ints, brokers: int) -> Ints:
        """Sum the loads of brokers, (broker, resource), of replica lists by (slot, row)."""
        total = np.zeros((brokers + 1, self.leader.shape[1]), dtype=np.int64)
        for slot, held in enumerate(replicas):
            np.add.at(total, held, self.follower if slot else self.leader)
        return total[:-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bands:
    """By (broker, resource) in units of `target`: the band, and the limits that no change may break.

    Brokers that may hold no replicas have no band. `evened`: resources that are evened, not only limited. `multiple`:
    by resource the target as a multiple of the mean of all brokers.
    """

    target: Floats
    low: Floats
    high: Floats
    least: Floats
    limit: Floats
    evened: Bools
    multiple: Floats


def bands_of(model: PlacementModel, load: Ints, loads: PlacementLoads, within: float) -> Bands:
    """Return the bands of `within` around the mean, inside the limits.

    `load` is by (broker, resource); that of brokers that may hold no replicas has no part in the mean. `loads` has
    capacities by broker of the model; see `broker_weights`. A broker that is given no replicas, and has less than its
    share, gives none away; the others are filled up to the mean of all. To relieve disks, the only bounds are their
    share and the limits of the other resources; one of unknown capacity takes no more bytes than it has.
    """
    targets, capacity = model.target[:, None], loads.capacity
    weight = broker_weights(capacity, model.target)
    counted = _counted(model, weight, load)
    mean = _mean(load, weight, counted)
    target = np.maximum(weight * mean, SMALLEST)
    evened, multiple = loads.evened, mean / np.maximum(_mean(load, weight, targets), SMALLEST)
    limit = np.where(np.isnan(loads.limit) | ~targets, np.inf, loads.limit / target)
    least = np.full_like(target, -np.inf)
    if loads.least is not None:
        least = np.where(np.isnan(loads.least) | ~targets, -np.inf, loads.least / target)
    is_carried = evened & (mean > 0)
    if loads.relieve is None:
        high = np.where(targets & is_carried, np.minimum(1 + within, limit), limit)
        to_mean = (1 - within) / np.where(multiple > 0, multiple, 1.0)
        fill = np.where(counted, to_mean, np.minimum(load / target - SLACK, 1 - within))
        low = np.where(targets & is_carried, np.maximum(np.minimum(fill, high), least), least)
    else:
        high, low = np.full_like(target, np.inf), np.full_like(target, -np.inf)
        most = np.where(np.isnan(capacity[:, 0]), load[:, 0], capacity[:, 0] * loads.relieve)
        high[:, 0] = np.where(targets[:, 0], most / target[:, 0], np.inf)
        limit = np.minimum(limit, high)
    return Bands(target=target, low=low, high=high, least=least, limit=limit, evened=evened, multiple=multiple)


def _mean(load: Ints, weight: Floats, counted: Bools) -> Floats:
    """Return the load of some brokers by their weight."""
    mean: Floats = (load * counted).sum(axis=0) / np.maximum((weight * counted).sum(axis=0), SMALLEST)
    return mean


def _counted(model: PlacementModel, weight: Floats, load: Ints) -> Bools:
    """Return by (broker, resource) the brokers that share the load.

    A broker that is given no replicas and has less than its share keeps what it has; the others share the rest.
    """
    counted = np.broadcast_to(model.target[:, None], load.shape)
    while True:
        share = weight * _mean(load, weight, counted) * (1 - TOLERANCE)
        fewer: Bools = counted & (model.may_receive[:, None] | (load >= share))
        if (fewer == counted).all():
            return counted
        counted = fewer
