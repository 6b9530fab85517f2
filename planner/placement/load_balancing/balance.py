"""The balance of load: forced replicas, elections, copies within a budget, and the bounds of what they achieve.

In: a PlacementModel with its forced changes made, and its loads. Changes the model's `after`. Out: a LoadBalance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.columns.broker_weights import broker_weights
from planner.placement.load_balancing.bounds import least_bytes, most_even
from planner.placement.load_balancing.load_model import TOLERANCE, Bands, ReplicaLoads, bands_of
from planner.placement.load_balancing.load_state import LoadState
from planner.placement.load_balancing.search import balance, elect_from, improve, place_forced, solve, take_back
from planner.placement.model import PlacementModel
from planner.placement.types import NO_BROKER, Bools, Floats, Ints, LoadBalance, PlacementGoal, PlacementLoads

PRICE: Final = 0.5
"""Replicas of mean size that a copy counts as in addition to its own bytes, which saves many small copies.

In a cluster of fewer than SMALL replicas it is less, in proportion.
"""

ATTEMPTS: Final = 40
"""Searches for fewer bytes in a cluster of up to SMALL replicas; fewer in larger ones, in proportion."""

SMALL: Final = 5_000


def balance_loads(
    model: PlacementModel, replica_loads: ReplicaLoads, loads: PlacementLoads, goal: PlacementGoal, redirected: Bools
) -> LoadBalance:
    """Place forced replicas by load, then bring loads into their bands if the goal requires it.

    Rows of `replica_loads`, and brokers of `loads`, are in the order of the model.
    """
    listed, is_forced = model.before, (model.after != model.before).any(axis=0)
    _put_leaders_first(model, goal)
    bands = bands_of(model, replica_loads.of_broker(model.after, model.size), loads, goal.within)
    state = LoadState(
        model=model,
        loads=replica_loads,
        bands=bands,
        may_copy=model.movable,
        may_elect=model.movable & (goal.reorder | is_forced) & (model.pinned == NO_BROKER),
        price=_price(model, replica_loads),
        max_bytes=np.inf if loads.max_bytes is None else loads.max_bytes,
        max_copies=np.inf if goal.max_moves is None else goal.max_moves,
    )
    attempts = _attempts(model) if loads.attempts is None else loads.attempts
    place_forced(state, np.flatnonzero(redirected & model.movable))
    if goal.leaders:
        elect_from(state, ~model.target)
        state.require()
        balance(state, copy=False)
    by_elections = state.level.copy()
    if goal.even and loads.copy:
        balance(state, copy=True)
        take_back(state)
        improve(state, attempts)
    elif state.may_elect.any():
        _redirect(state, redirected, attempts)
    if goal.leaders and loads.preferred is not None and loads.relieve is None:
        state.preferred = loads.preferred
        elect_from(state, ~loads.preferred)
        balance(state, copy=False)
    _keep_order(model)
    remains = np.isin(np.arange(model.size), model.before[:, ~model.movable])  # with what the plan does not concern
    sharing = replace(model, target=model.target | (model.emptied & model.live & ~remains))
    counted, evened = np.flatnonzero(sharing.target), bands.evened
    shown = np.ix_(counted, evened)
    before = _multiples_before(sharing, replica_loads, loads)
    multiples = np.where(model.target[:, None], bands.multiple, 0.0)
    achieved = _achieved(bands, state.level, is_sought=goal.even and loads.copy)
    bound = least_bytes(
        model,
        replica_loads,
        achieved,
        drops=goal.replication_factor is not None,
        empties=goal.max_moves is None,  # else some replicas may stay
    )
    fixed = _fixed(state, goal, is_free=goal.even and loads.copy)
    is_outside = (state.distance() > TOLERANCE)[counted] & model.target[counted, None]
    outside: Bools = np.any(is_outside, axis=1)
    found = LoadBalance(
        names=tuple(name for name in loads.names if name not in loads.limited),
        brokers=model.ids[counted],
        before=before[shown],
        by_elections=(by_elections * multiples)[shown],
        after=(state.level * multiples)[shown],
        outside=outside,
        loads_outside=int(is_outside.sum()),
        by_capacity=bool(np.ptp(broker_weights(loads.capacity, model.target)[model.target][:, evened], axis=0).any()),
        bytes=state.bytes,
        bytes_bound=bound.total,
        leave=bound.leave[counted],
        arrive=bound.arrive[counted],
        best=(most_even(model, replica_loads, bands, fixed) * bands.multiple)[evened],
        front=tuple(state.front),
        oversized=tuple(_oversized(replica_loads, bands, loads.names, model)),
        exceeded=tuple(_exceeded(state, loads.names)),
    )
    is_kept = (model.before == model.after).all(axis=0)
    model.before, model.after = listed, np.where(is_kept, listed, model.after)
    return found


def _put_leaders_first(model: PlacementModel, goal: PlacementGoal) -> None:
    """Put the leader first in the rows whose first replica the plan does not elect."""
    first = model.before[0]
    is_elected = model.movable & model.target[first] & (model.lagging[0] != first) & goal.reorder
    leader = np.where(is_elected, first, model.leader)
    model.before, model.after = (_with_first(lists, leader) for lists in (model.before, model.after))


def _with_first(lists: Ints, broker: Ints) -> Ints:
    """Return replica lists with a broker of each exchanged for the first one, where the list has it."""
    is_there = lists == broker
    slot, row = is_there.argmax(axis=0), np.flatnonzero(is_there.any(axis=0))
    ordered = lists.copy()
    ordered[slot[row], row], ordered[0, row] = lists[0, row], broker[row]
    return ordered


def _keep_order(model: PlacementModel) -> None:
    """Give rows with the same leader and brokers as before their former lists: elections exchange followers, too."""
    before, after = model.before, model.after
    is_same = (np.sort(before, axis=0) == np.sort(after, axis=0)).all(axis=0) & (before[0] == after[0])
    after[:, is_same] = before[:, is_same]


def _redirect(state: LoadState, redirected: Bools, attempts: int) -> None:
    """Bring loads into their bands by other places for new replicas, other replicas that are dropped, and elections."""
    allowed = state.may_copy, state.max_bytes, state.max_copies
    state.may_copy, state.max_bytes, state.max_copies = state.may_copy & redirected, state.bytes, state.copies
    balance(state, copy=bool(state.may_copy.any()))
    solve(state, attempts)
    state.may_copy, state.max_bytes, state.max_copies = allowed


def _achieved(bands: Bands, level: Floats, *, is_sought: bool) -> Bands:
    """Return the bands widened to the loads of the plan, so that the bound is of plans that are as even."""
    if not is_sought:
        return replace(bands, low=np.full_like(bands.low, -np.inf), high=np.full_like(bands.high, np.inf))
    return replace(bands, low=np.minimum(bands.low, level), high=np.maximum(bands.high, level))


def _fixed(state: LoadState, goal: PlacementGoal, *, is_free: bool) -> Floats:
    """Return by (broker, resource) the least load of the replicas that stay, whichever plan has this goal.

    If only required copies are made, no others `is_free` to move, and replicas on brokers that keep theirs stay there;
    not if the goal leaves a choice of which replicas go.
    """
    model, loads = state.model, state.loads
    has_choice = is_free or goal.fix_racks or goal.replication_factor is not None or goal.max_moves is not None
    may_move = state.may_copy & has_choice
    total = np.zeros((model.size + 1, loads.leader.shape[1]))
    for slot, brokers in enumerate(model.after):
        leads = (~state.may_elect & (slot == 0))[:, None]
        stays = ~may_move & (model.before == brokers).any(axis=0)
        least = np.where(leads, loads.leader, np.minimum(loads.leader, loads.follower))
        np.add.at(total, brokers[stays], least[stays])
    return total[:-1]


def _multiples_before(sharing: PlacementModel, replica_loads: ReplicaLoads, loads: PlacementLoads) -> Floats:
    """Return the loads before as multiples of the shares of all brokers that hold replicas before."""
    load = replica_loads.before.of_broker(_with_first(sharing.before, sharing.leader), sharing.size)
    all_receive = replace(sharing, may_receive=np.ones_like(sharing.target))
    multiples: Floats = load / bands_of(all_receive, load, loads, 1.0).target
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


def _exceeded(state: LoadState, names: Sequence[str]) -> Iterator[tuple[int, str, float]]:
    """Yield the broker and resource of each load beyond a limit, with its multiple of the limit."""
    bands, level = state.bands, state.level
    for broker, resource in np.argwhere((state.excess() > TOLERANCE) & state.model.target[:, None]).tolist():
        at = broker, resource
        limit = bands.limit[at] if level[at] > bands.limit[at] else bands.least[at]
        yield int(state.model.ids[broker]), names[resource], float(level[at] / limit)


def _price(model: PlacementModel, loads: ReplicaLoads) -> float:
    return PRICE * min(1.0, model.after.size / SMALL) * float(loads.size.mean()) if len(loads.size) else 0.0


def _attempts(model: PlacementModel) -> int:
    replicas = model.after.size
    return ATTEMPTS if replicas <= SMALL else ATTEMPTS * SMALL // replicas
