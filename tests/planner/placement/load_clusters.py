"""Small clusters at random with skewed loads, for plans by load: windows, racks, empty brokers and limits of all kinds.

`compared` plans one and searches its optimum, for tests and `bench.load_plans`.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.placement.load_balancing.bounds import least_bytes
from planner.placement.load_balancing.load_model import TOLERANCE, Bands, ReplicaLoads, bands_of
from planner.placement.model import PlacementModel, model_of
from planner.placement.solve import place
from planner.placement.types import (
    NO_BROKER,
    Bools,
    Floats,
    Ints,
    Placement,
    PlacementBrokers,
    PlacementGoal,
    PlacementLoads,
    PlacementPartitions,
)
from tests.planner.placement.load_optimum import Optimum, fewest_bytes, fewest_within_limits

PER_TOPIC: Final = 4
"""Partitions of a topic."""


FORCING: Final = ("emptied", "replaced", "factor", "racks")
"""What forces changes, by the seed of a case."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadCase:
    """A cluster and a goal."""

    brokers: PlacementBrokers
    partitions: PlacementPartitions
    goal: PlacementGoal

    @property
    def loads(self) -> PlacementLoads:
        assert self.partitions.loads is not None
        return self.partitions.loads

    def parts(self) -> tuple[PlacementModel, ReplicaLoads, Bands]:
        """Return the model, the loads of its rows and the bands."""
        model, size = model_of(self.brokers, self.partitions, self.goal), self.partitions.weights
        assert size is not None
        order = model.order
        loads = ReplicaLoads(leader=self.loads.leader[order], follower=self.loads.follower[order], size=size[order])
        return model, loads, bands_of(model, loads.of_broker(model.after, model.size), self.loads, self.goal.within)

    def beyond_limits(self, replicas: Ints) -> Floats:
        """Return by (broker, resource) how far these lists are beyond limits, in units of the load."""
        held = summed(self.loads, replicas, len(self.brokers.ids))
        target, least = self.brokers.target[:, None], self.loads.least
        above = np.where(target, np.nan_to_num(held - self.loads.limit), 0)
        below = np.zeros_like(above) if least is None else np.where(target, np.nan_to_num(least - held), 0)
        beyond: Floats = np.maximum(np.maximum(above, below), 0)
        return beyond


def summed(loads: PlacementLoads, replicas: Ints, brokers: int) -> Floats:
    """Return the loads of brokers 0, 1, …, added up replica by replica."""
    total = np.zeros((brokers, len(loads.names)))
    for row, held in enumerate(replicas.tolist()):
        for slot, broker in enumerate(held):
            if broker != NO_BROKER:
                total[broker] += (loads.follower if slot else loads.leader)[row]
    return total


def load_case(seed: int, attempts: int | None = None) -> LoadCase:
    """Return a cluster of three to five brokers."""
    rng = np.random.default_rng(seed)
    brokers, count, windows = int(rng.integers(3, 6)), int(rng.integers(8, 17)), int(rng.integers(1, 3))
    full = brokers - int(rng.random() < 0.2)  # the last one may be empty
    factor = rng.integers(1, min(full, 3) + 1, count) if rng.random() < 0.3 else np.full(count, rng.integers(1, 4))
    factor = np.minimum(factor, full)
    replicas = np.full((count, int(factor.max())), NO_BROKER, dtype=np.int64)
    for row in range(count):
        replicas[row, : factor[row]] = rng.permutation(full)[: factor[row]]
    racks = int(rng.integers(0, 4))
    every = np.ones(brokers, dtype=bool)
    size, names, leader, follower = _rates(rng, factor, windows)
    total = summed(_of(names, leader, follower, brokers), replicas, brokers)
    limit, least = np.full((2, brokers, len(names)), np.nan)
    if rng.random() < 0.3:  # tight limits of all brokers, or of one
        tight = total.mean(axis=0) * rng.uniform(1.02, 1.3, len(names))
        limit[:] = np.where(rng.random(len(names)) < 0.5, tight, np.nan)
        if rng.random() < 0.5:
            limit[rng.random(brokers) < 0.5] = np.nan
    topic = np.arange(count) // PER_TOPIC
    extra = _counted_resources(rng, topic, factor, brokers)
    names += tuple(extra)
    columns = [
        (np.where(topic == number, 1, 0), 0, low, high) if number is not None else (1, 1, low, high)
        for number, low, high in extra.values()
    ]
    for of_leader, of_follower, low, high in columns:
        leader = np.column_stack([leader, np.broadcast_to(of_leader, count)])
        follower = np.column_stack([follower, np.broadcast_to(of_follower, count)])
        limit, least = np.column_stack([limit, np.full(brokers, high)]), np.column_stack([least, np.full(brokers, low)])
    cordoned = rng.random(brokers) < 0.5 if rng.random() < 0.15 else ~every
    loads = replace(
        _of(names, leader, follower, brokers),
        limit=limit,
        least=least,
        limited=frozenset(extra),
        attempts=attempts,
    )
    return LoadCase(
        brokers=PlacementBrokers(
            ids=np.arange(brokers),
            racks=tuple(f"r{broker % racks}" if racks else None for broker in range(brokers)),
            live=every,
            target=every,
            emptied=~every,
            cordoned=cordoned & ~cordoned.all(),
        ),
        partitions=PlacementPartitions(
            topic=topic,
            partition=np.arange(count) % PER_TOPIC,
            replicas=replicas,
            movable=np.ones(count, dtype=bool),
            weights=size,
            loads=loads,
        ),
        goal=PlacementGoal(even=True, reorder=True, within=float(rng.choice([0.15, 0.2, 0.3]))),
    )


def forced_case(seed: int) -> LoadCase:
    """Return a cluster with tight limits and a goal that moves only what it must."""
    case, rng = load_case(seed), np.random.default_rng(seed + 777)
    brokers, loads, count = case.brokers, case.loads, len(case.brokers.ids)
    gone = int(rng.integers(count))
    goal = PlacementGoal(reorder=bool(rng.random() < 0.3), within=0.15)
    emptied, factor = np.zeros(count, dtype=bool), None
    match FORCING[seed % len(FORCING)]:
        case "emptied":
            emptied = brokers.ids == gone
        case "replaced":
            emptied, goal = brokers.ids == gone, replace(goal, replacements=((gone, (gone + 1) % count),))
        case "factor":
            factor = int(rng.integers(1, min(count, 4)))
            goal = replace(goal, replication_factor=factor)
        case _:
            goal = replace(goal, fix_racks=True)
    total = summed(loads, case.partitions.replicas, count).sum(axis=0)
    if factor is not None:
        total = (loads.leader + (factor - 1) * loads.follower).sum(axis=0)
    tight = total / int((~emptied).sum()) * rng.uniform(1.05, 1.5, len(loads.names))
    limit = np.where(rng.random(len(loads.names)) < 0.5, tight, np.nan)
    loads = replace(loads, limit=np.where(loads.evened, limit, loads.limit))
    return LoadCase(
        brokers=replace(brokers, emptied=emptied, target=~emptied, cordoned=None),
        partitions=replace(case.partitions, loads=loads),
        goal=goal,
    )


def _rates(rng: np.random.Generator, factor: Ints, windows: int) -> tuple[Ints, tuple[str, ...], Ints, Ints]:
    """Return the size of each partition, and the names and loads of disk, and of in and out by window."""
    count = len(factor)
    received = np.rint(rng.lognormal(0, 0.7, (windows, count)) * 1000).astype(np.int64)
    size = np.rint(received[0] * rng.lognormal(0, 0.5, count)).astype(np.int64)
    read = np.rint(received * rng.lognormal(0.3, 0.5, count)).astype(np.int64)
    names, leader, follower = ["disk"], [size], [size]
    for window in range(windows):
        names += [f"in {window}", f"out {window}"]
        leader += [received[window], read[window] + received[window] * (factor - 1)]
        follower += [received[window], np.zeros_like(size)]
    return size, tuple(names), np.stack(leader, axis=1), np.stack(follower, axis=1)


def _of(names: tuple[str, ...], leader: Ints, follower: Ints, brokers: int) -> PlacementLoads:
    unknown = np.full((brokers, len(names)), np.nan)
    return PlacementLoads(names=names, leader=leader, follower=follower, capacity=unknown, limit=unknown)


def _counted_resources(
    rng: np.random.Generator, topic: Ints, factor: Ints, brokers: int
) -> dict[str, tuple[int | None, float, float]]:
    """Return the limited resources by name, each with its topic, least and limit: replicas, and leaders of topics."""
    found = dict[str, tuple[int | None, float, float]]()
    if rng.random() < 0.2:
        found["replicas"] = (None, np.nan, float(np.ceil(factor.sum() / brokers * rng.uniform(1, 1.2))))
    for number in np.unique(topic).tolist():
        held = int((topic == number).sum())
        if rng.random() < 0.1:
            found[f"leaders of t{number}"] = (number, float(held // brokers), float(-(-held // brokers)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """A plan against the optimum: of all bands, and if no plan reaches these, of the limits alone."""

    placement: Placement
    optimum: Optimum
    meets_limits: bool
    """Whether the plan is within all limits."""
    limits_can_be_met: bool
    bound: int
    worsened: Bools
    """By (broker, resource), limits that the plan breaks by more than before."""

    @property
    def ratio(self) -> float | None:
        """The bytes over the fewest, None if no plan reaches all bands."""
        balance = self.placement.loads
        assert balance is not None
        if self.optimum.bytes is None:
            return None
        if balance.outside.any():
            return np.inf
        return 1.0 if balance.bytes == self.optimum.bytes else balance.bytes / max(self.optimum.bytes, 1)


def compared(case: LoadCase, seconds: float = 20.0) -> Comparison:
    """Plan, and search the optimum."""
    model, loads, bands = case.parts()
    placement = place(case.brokers, case.partitions, case.goal)
    optimum = fewest_bytes(model, loads, bands, seconds)
    before, after = case.beyond_limits(case.partitions.replicas), case.beyond_limits(placement.replicas)
    can_meet = optimum.bytes is not None
    if not can_meet:
        can_meet = fewest_within_limits(model, loads, bands, seconds).bytes is not None
    return Comparison(
        placement=placement,
        optimum=optimum,
        meets_limits=not (after > TOLERANCE).any(),
        limits_can_be_met=can_meet,
        bound=least_bytes(model, loads, bands).total,
        worsened=after > before + TOLERANCE,
    )
