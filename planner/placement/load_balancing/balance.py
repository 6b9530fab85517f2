"""The balance of load: forced replicas, elections, copies within a budget, and the bounds of what they achieve.

In: a PlacementModel with its forced changes made, and its loads. Changes the model's `after`. Out: a LoadBalance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.placement.load_balancing.bounds import least_bytes, most_even
from planner.placement.load_balancing.load_model import TOLERANCE, Bands, ReplicaLoads, bands_of
from planner.placement.load_balancing.load_state import LoadState
from planner.placement.load_balancing.search import balance, place_forced, refine, take_back
from planner.placement.model import PlacementModel
from planner.placement.types import NO_BROKER, Bools, Floats, LoadBalance, PlacementGoal, PlacementLoads

PRICE_DIVISOR: Final = 2
"""A copy counts as half a replica of mean size in addition to its own bytes, which saves many small copies."""

ATTEMPTS: Final = 40
"""Searches for fewer bytes in a cluster of up to SMALL replicas; fewer in larger ones, in proportion."""

SMALL: Final = 5_000


def balance_loads(
    model: PlacementModel, replica_loads: ReplicaLoads, loads: PlacementLoads, goal: PlacementGoal, redirected: Bools
) -> LoadBalance:
    """Place forced replicas by load, then bring loads into their bands if the goal requires it.

    Rows of `replica_loads`, and brokers of `loads`, are in the order of the model.
    """
    bands = bands_of(model, replica_loads.of_broker(model.after, model.size), loads, goal.within)
    state = LoadState(
        model=model,
        loads=replica_loads,
        bands=bands,
        may_copy=model.movable,
        may_elect=model.movable & (goal.reorder | redirected) & (model.pinned == NO_BROKER),
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
    counted = np.flatnonzero(model.target)
    before = _multiples_before(model, replica_loads, loads)
    achieved = _achieved(bands, state.level, is_sought=goal.even and loads.copy)
    bound = least_bytes(model, replica_loads, achieved, drops=goal.replication_factor is not None)
    outside: Bools = np.any(state.distance()[counted] > TOLERANCE, axis=1)
    return LoadBalance(
        names=loads.names,
        brokers=model.ids[counted],
        before=before[counted],
        by_elections=by_elections[counted],
        after=state.level[counted],
        outside=outside,
        elections=len(state.former_leaders().row),
        bytes=state.bytes,
        bytes_bound=bound.total,
        leave=bound.leave[counted],
        arrive=bound.arrive[counted],
        best=most_even(model, replica_loads, bands),
        front=tuple(state.front),
        oversized=tuple(_oversized(replica_loads, bands, loads.names, model)),
    )


def _achieved(bands: Bands, level: Floats, *, is_sought: bool) -> Bands:
    """Return the bands widened to the loads of the plan, so that the bound is of plans that are as even."""
    if not is_sought:
        return replace(bands, low=np.full_like(bands.low, -np.inf), high=np.full_like(bands.high, np.inf))
    return replace(bands, low=np.minimum(bands.low, level), high=np.maximum(bands.high, level))


def _multiples_before(model: PlacementModel, replica_loads: ReplicaLoads, loads: PlacementLoads) -> Floats:
    """Return the loads before as multiples of the shares of all brokers that hold replicas before."""
    load = replica_loads.of_broker(model.before, model.size)
    sharing = replace(model, target=model.target | (model.emptied & model.live))
    multiples: Floats = load / bands_of(sharing, load, loads, 1.0).target
    return multiples


def _oversized(
    replica_loads: ReplicaLoads, bands: Bands, names: Sequence[str], model: PlacementModel
) -> Iterator[tuple[int, str]]:
    """Yield the rows of the input that alone exceed the band of every broker that may hold them."""
    if not model.target.any():
        return
    most = (bands.high * bands.target)[model.target].max(axis=0)
    for resource, name in enumerate(names):
        yield from ((row, name) for row in model.order[replica_loads.leader[:, resource] > most[resource]].tolist())


def _attempts(model: PlacementModel) -> int:
    replicas = model.after.size
    return ATTEMPTS if replicas <= SMALL else ATTEMPTS * SMALL // replicas
