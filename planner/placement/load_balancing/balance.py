"""The balance of load: forced replicas, elections, copies within a budget, and the bounds of what they achieve.

In: a PlacementModel with its forced changes made, and its loads. Changes the model's `after`. Out: a LoadBalance.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.placement.load_balancing.bounds import least_bytes, most_even
from planner.placement.load_balancing.load_model import TOLERANCE, Bands, ReplicaLoads, bands_of
from planner.placement.load_balancing.load_state import LoadState, Step
from planner.placement.load_balancing.search import balance, place_forced, refine, take_back
from planner.placement.model import PlacementModel
from planner.placement.types import NO_BROKER, Bools, Floats, PlacementGoal, PlacementLoads

PRICE_DIVISOR: Final = 2
"""A copy counts as half a replica of mean size in addition to its own bytes, which saves many small copies."""

ATTEMPTS: Final = 40
"""Searches for fewer bytes in a cluster of up to SMALL replicas; fewer in larger ones, in proportion."""

SMALL: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadBalance:
    """Loads by (broker of the model, resource) as multiples of their targets, before and after, and the bounds."""

    before: Floats
    after: Floats
    by_elections: Floats
    """After the elections that come before any copy."""
    bands: Bands
    outside: Bools
    """Brokers with a load outside its band."""
    bytes: int
    bytes_bound: int
    leave: Floats
    """Bytes that must leave each broker."""
    arrive: Floats
    """Bytes that must arrive at each broker."""
    best: Floats
    """By resource a lower bound of the most loaded broker."""
    front: tuple[Step, ...]
    """Each step of the search with a lower greatest load than all before."""


def balance_loads(
    model: PlacementModel, replica_loads: ReplicaLoads, loads: PlacementLoads, goal: PlacementGoal, redirected: Bools
) -> LoadBalance:
    """Place forced replicas by load, then bring loads into their bands if the goal requires it.

    Rows of `replica_loads`, and brokers of `loads`, are in the order of the model.
    """
    bands = bands_of(model, replica_loads.of_broker(model.after, model.size), loads, goal.within)
    bound = least_bytes(model, replica_loads, bands, drops=goal.replication_factor is not None)
    state = LoadState(
        model=model,
        loads=replica_loads,
        bands=bands,
        may_copy=model.movable & (model.in_sync_quota == NO_BROKER).all(axis=0),
        may_elect=model.movable & (goal.reorder | redirected),
        price=float(replica_loads.size.mean()) / PRICE_DIVISOR if len(replica_loads.size) else 0.0,
        max_bytes=np.inf if loads.max_bytes is None else loads.max_bytes,
        max_copies=np.inf if goal.max_moves is None else goal.max_moves,
    )
    place_forced(state, np.flatnonzero(redirected & model.movable))
    if goal.leaders:
        balance(state, copy=False)
    by_elections = state.level.copy()
    if goal.even and loads.copy:
        balance(state, copy=True)
        take_back(state)
        refine(state, _attempts(model) if loads.attempts is None else loads.attempts)
    outside: Bools = np.any(state.distance() > TOLERANCE, axis=1)
    return LoadBalance(
        before=replica_loads.of_broker(model.before, model.size) * state.inverse,
        after=state.level,
        by_elections=by_elections,
        bands=bands,
        outside=outside,
        bytes=state.bytes,
        bytes_bound=bound.total,
        leave=bound.leave,
        arrive=bound.arrive,
        best=most_even(model, replica_loads, bands),
        front=tuple(state.front),
    )


def _attempts(model: PlacementModel) -> int:
    replicas = model.after.size
    return ATTEMPTS if replicas <= SMALL else ATTEMPTS * SMALL // replicas
