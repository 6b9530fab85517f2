"""Lower bounds: the least bytes that bring all loads into their bands, and the most even balance that can exist.

A copy takes a replica from one broker and gives it to another. Therefore the bytes that must leave brokers, and the
bytes that must arrive at brokers, are each a lower bound, in each rack if copies cannot leave it. The least bytes of a
broker are a fractional knapsack: the replicas with the fewest bytes for the load that must leave or arrive. Elections
cost no bytes, so a replica that stays counts as a follower on a broker that must lose load, and as a leader on one that
must gain it. In: a PlacementModel, its loads and bands.
"""

from dataclasses import dataclass

import numpy as np

from planner.placement.load_balancing.load_model import Bands, ReplicaLoads
from planner.placement.model import PlacementModel
from planner.placement.racks import NO_RACK
from planner.placement.replica_arrays import rows_by_broker
from planner.placement.types import NO_BROKER, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByteBound:
    """The least bytes that must leave and must arrive, by broker; `group` numbers brokers that copies do not leave."""

    leave: Floats
    arrive: Floats
    group: Ints

    @property
    def total(self) -> int:
        """The greater sum of each group, added up and rounded down."""
        leave, arrive = (np.bincount(self.group, weights=sizes) for sizes in (self.leave, self.arrive))
        return int(np.maximum(leave, arrive).sum())


def least_bytes(
    model: PlacementModel, loads: ReplicaLoads, bands: Bands, *, drops: bool = False, empties: bool = True
) -> ByteBound:
    """Return the least bytes that the bands and, if it `empties` them, emptied brokers require.

    With `drops`, replicas may leave without a copy.
    """
    leave, arrive = np.zeros(model.size), np.zeros(model.size)
    most_loaded = [_knapsack(loads.leader[:, k], loads.size) for k in range(loads.leader.shape[1])]
    rows_of = rows_by_broker(model.before, model.size)
    for broker in np.flatnonzero(model.target).tolist():
        rows = rows_of[broker]
        target = bands.target[broker]
        surplus = loads.follower[rows].sum(axis=0) - bands.high[broker] * target
        deficit = bands.low[broker] * target - loads.leader[rows].sum(axis=0)
        for k in np.flatnonzero(surplus > 0).tolist() if not drops else ():
            knapsack = _knapsack(loads.follower[rows, k], loads.size[rows])
            leave[broker] = max(leave[broker], _cost(knapsack, surplus[k]))
        for k in np.flatnonzero(deficit > 0).tolist():
            arrive[broker] = max(arrive[broker], _cost(most_loaded[k], deficit[k]))
    if empties and not drops:
        held = (model.before != NO_BROKER) & model.emptied[model.before] & model.movable
        np.add.at(leave, model.before[held], np.broadcast_to(loads.size, held.shape)[held])
    return ByteBound(leave=leave, arrive=arrive, group=_groups(model))


def _groups(model: PlacementModel) -> Ints:
    """Return the number of the rack of each broker if each copy stays in its rack, else the same number for all.

    It stays if every partition that may change has, and keeps, one replica in each rack that may hold replicas.
    """
    racks, held = model.racks[:-1], model.racks[model.before]
    usable = np.unique(racks[model.target])
    is_bound = (model.factor == len(usable)) & (model.min_racks == len(usable))
    is_bound &= (model.before != NO_BROKER).sum(axis=0) == len(usable)
    for rack in usable.tolist():
        is_bound &= (held == rack).any(axis=0)
    return racks if is_bound[model.movable].all() and NO_RACK not in racks else np.zeros_like(racks)


def most_even(model: PlacementModel, loads: ReplicaLoads, bands: Bands, fixed: Floats) -> Floats:
    """Return by resource a lower bound of the most loaded broker, as a multiple of the target.

    The most loaded broker is not below the mean, the heaviest leader, the share of a rack in which every partition
    that spans all racks has a replica, or what is `fixed`: by (broker, resource) the least load of the replicas that
    stay there. Partitions that stay on dead brokers do not count for racks.
    """
    targets = np.flatnonzero(model.target)
    if not len(targets) or not len(loads.size):
        return np.ones(loads.leader.shape[1])
    led, held = model.after[0], model.after != NO_BROKER
    can_lead = (led != NO_BROKER) & model.target[led]
    heaviest = loads.leader[can_lead].max(axis=0, initial=0) / bands.target[targets].max(axis=0)
    is_copied = (loads.leader == loads.follower).all(axis=0)  # no election takes it to a broker that gets no replicas
    mean = np.where(is_copied | (bands.multiple == 0), 1.0, bands.multiple)
    even: Floats = np.maximum.reduce([heaviest, 1 / mean, (fixed[targets] / bands.target[targets]).max(axis=0)])
    racks = model.racks[targets]
    names = np.unique(racks[racks != NO_RACK])
    everywhere = (model.min_racks >= len(names)) & (~held | model.target[model.after]).all(axis=0)
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
