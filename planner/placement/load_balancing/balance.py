"""The balance of load: forced replicas, elections, copies within a budget, and the bounds of what they achieve.

In: a PlacementModel with its forced changes made, the loads of its replicas, the capacity of its brokers and a
LoadGoal. Changes the model's `after`. Out: a LoadBalance.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.placement.load_balancing.bounds import least_bytes, most_even
from planner.placement.load_balancing.load_model import Floats, ReplicaLoads, bands_of
from planner.placement.load_balancing.load_state import LoadState, Step
from planner.placement.load_balancing.search import balance, place_forced, take_back
from planner.placement.model import PlacementModel
from planner.placement.types import NO_BROKER, Bools, PlacementGoal

PRICE_DIVISOR: Final = 2
"""A copy counts as half a replica of mean size in addition to its own bytes, which saves many small copies."""

INSIDE: Final = 1e-3
"""Share of a band that the search leaves free, so that rounding cannot put a broker outside."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadGoal:
    """How even loads should be, and within which limits.

    `capacity` is by (broker of the model, resource), NaN if unknown, `limit_share` by resource. `relieve`: only bring
    the first resource, the disk, below this share of its capacity. `max_bytes`: bytes copied at most. `copy`: false for
    elections alone. `steps`: changes that the search may make.
    """

    within: float
    capacity: Floats
    limit_share: Floats
    relieve: float | None = None
    max_bytes: int | None = None
    copy: bool = True
    steps: int = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadBalance:
    """Loads by (broker of the model, resource) as multiples of their targets, before and after, and the bounds."""

    before: Floats
    after: Floats
    by_elections: Floats
    target: Bools
    outside: Bools
    bytes: int
    bytes_bound: int
    leave: Floats
    arrive: Floats
    best: Floats
    """By resource the least possible load of the most loaded broker."""
    front: tuple[Step, ...]
    """Each step of the search that is better than all before, in ascending order of bytes."""


def balance_loads(
    model: PlacementModel, loads: ReplicaLoads, goal: PlacementGoal, load_goal: LoadGoal, redirected: Bools
) -> LoadBalance:
    """Place forced replicas by load, then bring loads into their bands if the goal requires it."""
    total = loads.of_broker(model.after, model.size).sum(axis=0)
    bands, inner = (
        bands_of(model, total, load_goal.capacity, load_goal.limit_share, within, relieve=load_goal.relieve)
        for within in (load_goal.within, load_goal.within * (1 - INSIDE))
    )
    before = loads.of_broker(model.before, model.size) / bands.target
    bound = least_bytes(model, loads, bands, drops=goal.replication_factor is not None)
    state = LoadState(
        model=model,
        loads=loads,
        bands=inner,
        may_copy=model.movable & (model.in_sync_quota == NO_BROKER).all(axis=0),
        may_elect=model.movable,
        price=float(loads.size.mean()) / PRICE_DIVISOR if len(loads.size) else 0.0,
        max_bytes=np.inf if load_goal.max_bytes is None else load_goal.max_bytes,
        max_copies=np.inf if goal.max_moves is None else goal.max_moves,
        steps=load_goal.steps,
    )
    place_forced(state, np.flatnonzero(redirected & model.movable))
    if goal.leaders:
        balance(state, copy=False)
    by_elections = state.level.copy()
    if goal.even and load_goal.copy:
        balance(state, copy=True)
    take_back(state)
    outside: Bools = (state.distance() > INSIDE).any(axis=1)
    return LoadBalance(
        before=before,
        after=state.level,
        by_elections=by_elections,
        target=model.target,
        outside=outside,
        bytes=state.bytes,
        bytes_bound=bound.total,
        leave=bound.leave,
        arrive=bound.arrive,
        best=most_even(model, loads, bands),
        front=tuple(state.front),
    )
