"""Lower bounds: the least bytes that bring all loads into their bands, and the most even balance that can exist.

A copy takes a replica from one broker and gives it to another. Therefore the bytes that must leave brokers, and the
bytes that must arrive at brokers, are each a lower bound. The least bytes of one broker are a fractional knapsack: the
replicas with the fewest bytes for the load that must leave or arrive. Elections cost no bytes, so a replica that stays
counts as a follower on a broker that must lose load, and as a leader on one that must gain it. In: a PlacementModel
before any change, its loads and bands.
"""

from dataclasses import dataclass

import numpy as np

from planner.placement.load_balancing.load_model import Bands, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.racks import NO_RACK
from planner.placement.types import NO_BROKER, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByteBound:
    """The least bytes that must leave and must arrive, by broker."""

    leave: Floats
    arrive: Floats

    @property
    def total(self) -> int:
        """The greater sum, rounded down."""
        return int(max(self.leave.sum(), self.arrive.sum()))


def least_bytes(model: PlacementModel, loads: ReplicaLoads, bands: Bands, *, drops: bool = False) -> ByteBound:
    """Return the least bytes that the bands require. With `drops`, replicas may leave without a copy."""
    leave, arrive = np.zeros(model.size), np.zeros(model.size)
    most_loaded = [_knapsack(loads.leader[:, k], loads.size) for k in range(loads.leader.shape[1])]
    for broker in np.flatnonzero(model.target).tolist():
        rows = np.flatnonzero((model.before == broker).any(axis=0))
        target = bands.target[broker]
        surplus = loads.follower[rows].sum(axis=0) - bands.high[broker] * target
        deficit = bands.low[broker] * target - loads.leader[rows].sum(axis=0)
        for k in np.flatnonzero(surplus > 0).tolist() if not drops else ():
            knapsack = _knapsack(loads.follower[rows, k], loads.size[rows])
            leave[broker] = max(leave[broker], _cost(knapsack, surplus[k]))
        for k in np.flatnonzero(deficit > 0).tolist():
            arrive[broker] = max(arrive[broker], _cost(most_loaded[k], deficit[k]))
    if not drops:
        held = (model.before != NO_BROKER) & model.emptied[model.before] & model.movable
        np.add.at(leave, model.before[held], np.broadcast_to(loads.size, held.shape)[held])
    return ByteBound(leave=leave, arrive=arrive)


def most_even(model: PlacementModel, loads: ReplicaLoads, bands: Bands) -> Floats:
    """Return by resource a lower bound of the most loaded broker, as a multiple of the target.

    No broker can be below the mean, below the heaviest leader, or below the share of a rack in which every partition
    that spans all racks has a replica.
    """
    targets = np.flatnonzero(model.target)
    if not len(targets) or not len(loads.size):
        return np.ones(loads.leader.shape[1])
    heaviest = loads.leader.max(axis=0) / bands.target[targets].max(axis=0)
    even: Floats = np.maximum(heaviest, 1.0)
    racks = model.racks[targets]
    names = np.unique(racks[racks != NO_RACK])
    everywhere = model.min_racks >= len(names)
    forced = loads.follower[everywhere].sum(axis=0)
    for rack in names.tolist() if everywhere.any() else ():
        even = np.maximum(even, forced / bands.target[targets[racks == rack]].sum(axis=0))
    return even


Knapsack = tuple[Floats, Floats]
"""Load and bytes of the first replicas, in ascending order of bytes per load, summed up."""


def _knapsack(load: Ints, size: Ints) -> Knapsack:
    useful = load > 0
    load, size = load[useful].astype(float), size[useful].astype(float)
    order = np.argsort(size / load, kind="stable")
    return np.cumsum(load[order]), np.cumsum(size[order])


def _cost(knapsack: Knapsack, load: float) -> float:
    """Return the bytes of the replicas that hold `load`, the last of them in part; of all of them if they hold less."""
    loads, sizes = (np.append(0.0, part) for part in knapsack)
    return float(np.interp(load, loads, sizes))
