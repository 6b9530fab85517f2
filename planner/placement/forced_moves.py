"""Required changes of a goal: the replicas that must leave, and a first, nearly even choice of their replacements.

Corresponds to the moves that `--remove-brokers`, `--replace`, `--replication-factor` and `--fix-racks` require. Each
partition gets as few moves as possible; with these it spans as many racks as possible, with as few replicas in one rack
as possible. A rack may be lost only if all of its brokers are emptied or dead. A rack gets more replicas of a partition
than any rack holds now only if the others have no room. In: a PlacementModel whose `after` equals `before`. Out:
`after` with the required changes, and `min_racks` raised and `capacity` lowered if a replica must move anyway.
`descent` makes the choice exact. `removal_order` decides which replica leaves if there is a choice; no later step
brings it back in place of one in sync.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from planner.placement.model import PlacementModel, refuse_rows
from planner.placement.racks import (
    NO_RACK,
    lowest_crowding,
    max_independent,
    max_per_rack,
    racks_spanned,
    replicas_by_rack,
)
from planner.placement.replica_arrays import count_replicas, is_in_row
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementGoal
from schemas import reasons
from schemas.enums import LintCode

ROWS_PER_PLACEMENT: Final = 128
"""Rows placed before the loads of brokers are updated."""

ROWS_PER_MEASUREMENT: Final = 1 << 15
"""Rows whose racks are counted at once, to limit memory."""


def apply(model: PlacementModel, goal: PlacementGoal) -> Bools:
    """Make the required changes; return the rows whose new replicas `descent` may still redirect."""
    fixed = np.zeros(len(model.factor), dtype=bool)
    reached = _remove_required(model, fix_racks=goal.fix_racks)
    fewest = model.min_racks - _lost(model)
    refuse_rows(
        model,
        model.movable & (reached < fewest),
        reasons.FEWER_RACKS_THAN_NOW.render(),
        "allow a broker in another rack, leave these partitions out, or empty all brokers of a rack to give it up",
        LintCode.RACKS_LOST,
    )
    model.min_racks = np.minimum(model.min_racks, reached)
    touched = model.movable & ((model.after != model.before).any(axis=0) | (model.factor > _held(model)))
    lowest = _lowest(model, touched, reached)
    model.capacity = np.maximum(model.capacity, lowest)
    load = count_replicas(model.after, model.size)
    for gone, successor in goal.replacements:
        fixed |= _replace_broker(model, load, gone, successor)
    redirected: Bools = touched & ~fixed
    model.min_racks = np.where(redirected, reached, model.min_racks)
    model.capacity = np.where(redirected, lowest, model.capacity)
    _fill(model, load)
    return redirected


def _held(model: PlacementModel) -> Ints:
    held: Ints = (model.after != NO_BROKER).sum(axis=0)
    return held


def _remove_required(model: PlacementModel, *, fix_racks: bool) -> Ints:
    """Remove replicas that have to leave; return the number of racks each row can then reach."""
    leaves = model.movable & (model.emptied | ~model.live)[model.before] & (model.before != NO_BROKER)
    model.after = np.where(leaves, NO_BROKER, model.after)
    load = count_replicas(model.after, model.size)
    reach = _reach(model)
    min_racks = np.minimum(reach, model.factor if fix_racks else model.min_racks)
    capacity = _capacity(model, min_racks, fix_racks=fix_racks)
    rows = np.flatnonzero(model.movable)
    while (rows := rows[_superfluous(model, rows, min_racks, capacity)]).size:
        _take_out(model, rows, load, _dispensable(model, rows, min_racks, capacity))
    reach = np.minimum(reach, _reach(model))
    distinct = racks_spanned(model.racks[model.after])
    reached: Ints = np.minimum(distinct + model.factor - _held(model), reach)
    return reached


def _capacity(model: PlacementModel, min_racks: Ints, *, fix_racks: bool) -> Ints:
    """Return a rack's capacity for each row: as now, or the lowest possible if replicas leave or racks are fixed."""
    over = model.movable & (_held(model) > model.factor)
    capacity = model.capacity.copy()
    for rows in _batches(np.flatnonzero(over & (min_racks < model.factor))):
        room, without = _by_rack_and_without(model, model.after[:, rows])
        capacity[rows] = np.minimum(
            capacity[rows], lowest_crowding(np.zeros_like(room), room, without, model.factor[rows])
        )
    if fix_racks:
        for rows in _batches(np.flatnonzero(model.movable)):
            capacity[rows] = np.where(min_racks[rows] < model.factor[rows], _fewest_in_one(model, rows), 1)
    return capacity


def _fewest_in_one(model: PlacementModel, rows: Ints) -> Ints:
    """Return the lowest possible number of replicas in one rack for each row, whatever it holds now."""
    kept = model.after[:, rows]
    staying = np.where(model.target[kept], NO_BROKER, kept)
    room, without = _by_rack_and_without(model, staying)
    offered, elsewhere = _offered(model)
    room += offered[:, None]
    return lowest_crowding(np.zeros_like(room), room, without + elsewhere, model.factor[rows])


def _lowest(model: PlacementModel, touched: Bools, reached: Ints) -> Ints:
    """Return the lowest number of replicas in one rack that each row can have once its vacancies are filled."""
    lowest = np.where(touched, 1, model.capacity)
    for rows in _batches(np.flatnonzero(touched & (reached < model.factor))):
        lowest[rows] = _lowest_of(model, rows, model.after[:, rows])
    return lowest


def _lowest_of(model: PlacementModel, rows: Ints, after: Ints) -> Ints:
    """Return the lowest number of replicas in one rack for some rows that hold `after`."""
    held, _ = _by_rack_and_without(model, after)
    before = model.before[:, rows]
    kept_or_returning = np.concatenate([after, np.where(is_in_row(before, after), NO_BROKER, before)])
    taken, taken_elsewhere = _by_rack_and_without(
        model, np.where(model.may_receive[kept_or_returning], kept_or_returning, NO_BROKER)
    )
    offered, elsewhere = _offered(model)
    vacant = model.factor[rows] - (after != NO_BROKER).sum(axis=0)
    return lowest_crowding(held, offered[:, None] - taken, elsewhere - taken_elsewhere, vacant)


def _offered(model: PlacementModel) -> tuple[Ints, int]:
    """Return, per rack, the brokers that may get replicas they did not have; and the number of those without a rack."""
    racks = model.racks[:-1][model.may_receive]
    return np.bincount(racks[racks != NO_RACK], minlength=len(model.rack_names)), int((racks == NO_RACK).sum())


def _by_rack_and_without(model: PlacementModel, replicas: Ints) -> tuple[Ints, Ints]:
    """Return the replicas in each rack by (rack, row), and the replicas of each row without a rack."""
    racks = model.racks[replicas]
    return replicas_by_rack(racks, len(model.rack_names))[:-1], ((racks == NO_RACK) & (replicas != NO_BROKER)).sum(
        axis=0
    )


def _batches(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + ROWS_PER_MEASUREMENT] for start in range(0, len(rows), ROWS_PER_MEASUREMENT))


def _lost(model: PlacementModel) -> Ints:
    """Return how many of its racks each row may lose because they are given up, if no other rack replaces them."""
    if not model.given_up.any():
        return np.zeros_like(model.factor)
    held = replicas_by_rack(model.racks[model.before], len(model.rack_names))[:-1] > 0
    lost: Ints = held[model.given_up].sum(axis=0)
    return lost


def _reach(model: PlacementModel) -> Ints:
    """Return the racks a row can span: its own racks, and the racks of brokers that may be given replicas."""
    count = len(model.rack_names)
    offered = np.zeros(count + 1, dtype=bool)
    offered[model.racks[:-1][model.may_receive]] = True
    offered[count] = False
    spans: Ints = ((replicas_by_rack(model.racks[model.after], count) > 0) | offered[:, None])[:count].sum(axis=0)
    return spans


def _superfluous(model: PlacementModel, rows: Ints, min_racks: Ints, capacity: Ints) -> Bools:
    """Return the rows with a replica that must leave: too many replicas, too few racks, or too many in one rack."""
    after = model.after[:, rows]
    held = after != NO_BROKER
    keeps = max_independent(model.racks[after], held, model.factor[rows], min_racks[rows], capacity[rows])
    superfluous: Bools = held.sum(axis=0) > keeps
    return superfluous


def _dispensable(model: PlacementModel, rows: Ints, min_racks: Ints, capacity: Ints) -> Bools:
    """Return (slot, row): replicas that can be removed without moving the row further from its rack rules."""
    after = model.after[:, rows]
    racks, held = model.racks[after], after != NO_BROKER
    bounds = model.factor[rows], min_racks[rows], capacity[rows]
    keeps = max_independent(racks, held, *bounds)
    marks = np.zeros(after.shape, dtype=bool)
    for slot in range(len(after)):
        others = np.arange(len(after)) != slot
        marks[slot] = held[slot] & (max_independent(racks[others], held[others], *bounds) == keeps)
    return marks


def _take_out(model: PlacementModel, rows: Ints, load: Ints, dispensable: Bools) -> None:
    """Remove a dispensable replica from each row: by removal rank, then a follower, then one of the fullest broker.

    Sets that fit the racks are the bases of a matroid, so removing them one at a time is optimal.
    """
    most = int(load.max()) + 1
    for start in range(0, len(rows), ROWS_PER_PLACEMENT):
        batch = rows[start : start + ROWS_PER_PLACEMENT]
        after = model.after[:, batch]
        rank = load[after] + 2 * most * model.removal_rank[:, batch]
        rank[0] -= most
        slots = np.where(dispensable[:, start : start + ROWS_PER_PLACEMENT], rank, -2 * most).argmax(axis=0)
        np.subtract.at(load, after[slots, np.arange(len(batch))], 1)
        model.after[slots, batch] = NO_BROKER


def _replace_broker(model: PlacementModel, load: Ints, gone: int, successor: int) -> Bools:
    """Put the successor in place of `gone`, unless the row has it already or its racks would suffer."""
    old, new = (int(np.flatnonzero(model.ids == broker)[0]) for broker in (gone, successor))
    held_by_old = (model.before == old) & model.movable
    rows = np.flatnonzero(held_by_old.any(axis=0) & (model.after != new).all(axis=0) & model.may_receive[new])
    slots = held_by_old[:, rows].argmax(axis=0)
    trial = model.after[:, rows]
    trial[slots, np.arange(len(rows))] = new
    racks = model.racks[trial]
    vacancies = model.factor[rows] - (trial != NO_BROKER).sum(axis=0)
    good = np.minimum(racks_spanned(racks) + vacancies, _reach(model)[rows]) >= model.min_racks[rows]
    good &= max_per_rack(racks) <= model.capacity[rows]
    unsure = good & (vacancies > 0)
    good[unsure] &= _lowest_of(model, rows[unsure], trial[:, unsure]) <= model.capacity[rows[unsure]]
    model.after[slots[good], rows[good]] = new
    load[new] += int(good.sum())
    done = np.zeros(len(model.factor), dtype=bool)
    done[rows[good]] = True
    return done


def _fill(model: PlacementModel, load: Ints) -> None:
    """Fill every row up to its replication factor."""
    while (short := np.flatnonzero(model.movable & (_held(model) < model.factor))).size:
        for start in range(0, len(short), ROWS_PER_PLACEMENT):
            rows = short[start : start + ROWS_PER_PLACEMENT]
            chosen = _choose(allowed_brokers(model, rows), load, model.target)
            model.after[_vacancies(model, rows), rows] = chosen
            load += np.bincount(chosen, minlength=model.size)


def _vacancies(model: PlacementModel, rows: Ints) -> Ints:
    vacancies: Ints = (model.after[:, rows] == NO_BROKER).argmax(axis=0)
    return vacancies


def allowed_brokers(model: PlacementModel, rows: Ints) -> Bools:
    """Return (broker, row): brokers that may be given to the row without breaking its rack rules."""
    after, before = model.after[:, rows], model.before[:, rows]
    racks = model.racks[after]
    columns = np.arange(len(rows))
    free = np.repeat(model.may_receive[:, None], len(rows), axis=1)
    for replicas in (*after, *before):
        free[replicas[replicas != NO_BROKER], columns[replicas != NO_BROKER]] = False
    vacant = model.factor[rows] - (after != NO_BROKER).sum(axis=0)
    hurried = model.min_racks[rows] - racks_spanned(racks) >= vacant
    held = replicas_by_rack(racks, len(model.rack_names))
    fresh, room = held == 0, held < model.capacity[rows]
    fresh[-1], room[-1] = False, True  # brokers without a rack
    welcome: Bools = free & (room & (fresh | ~hurried))[model.racks[:-1]]
    return welcome


def _choose(welcome: Bools, load: Ints, target: Bools) -> Ints:
    """Choose one broker per row: rows take the brokers in turn, in the order of even filling."""
    count = welcome.shape[1]
    if not welcome.any(axis=0).all():
        raise AssertionError("no allowed broker for a partition although enough brokers are allowed")
    turns = _turns(np.where(target, load, np.iinfo(np.int64).max // 2), count)
    places = (np.arange(count)[:, None] + np.arange(count)) % count
    offered = welcome[turns[places], np.arange(count)[:, None]]
    chosen = turns[places[np.arange(count), offered.argmax(axis=1)]]
    lacking = np.flatnonzero(~offered.any(axis=1))
    filled = load + np.bincount(np.delete(chosen, lacking), minlength=len(load))
    for row in lacking:
        chosen[row] = np.where(welcome[:, row], filled, np.iinfo(np.int64).max).argmin()
        filled[chosen[row]] += 1
    brokers: Ints = chosen
    return brokers


def _turns(load: Ints, count: int) -> Ints:
    """Return brokers in the order in which `count` replicas would be given, each to the emptiest.

    >>> _turns(np.array([5, 2, 3]), 4)
    array([1, 1, 2, 1])
    """
    few = np.argsort(load, kind="stable")[:count]
    levels = load[few][:, None] + np.arange(count)
    brokers = np.repeat(few, count)
    turns: Ints = brokers[np.lexsort((brokers, levels.ravel()))[:count]]
    return turns
