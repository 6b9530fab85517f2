"""The changes a question forces: what has to leave, and a first, nearly even, choice of where the new replicas go.

Corresponds to the moves that `--remove-brokers`, `--replace`, `--replication-factor` and `--fix-racks` cannot do
without: for each partition as few as can be, to as many racks as these few can reach, with as few replicas in one rack
as these few allow. A rack may be lost only where all of its brokers are emptied or dead; a rack gets more of a
partition's replicas than any holds now only where the others have no room. In: a World whose `after` is `before`. Out:
`after` with the forced changes, `need` raised and `limit` lowered where a replica has to move anyway; `descend` makes
the choice exact. What leaves by choice is as `leaving` says; no later step brings it back for one in sync.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from planner.placement.model import PlacementModel, refuse
from planner.placement.problem import NO_BROKER, Bools, Ints, Question
from planner.placement.racks import NO_RACK, by_rack, crowding, independent, lowest_crowding, spanned
from planner.placement.replica_arrays import count_replicas, within
from schemas.enums import LintCode

AT_ONCE: Final = 128
"""Rows placed between two looks at the load."""

MEASURED_AT_ONCE: Final = 1 << 15
"""Rows whose racks are counted at once, for the sake of memory."""


def apply(world: PlacementModel, question: Question) -> Bools:
    """Make the forced changes; returns the rows that `descend` may still redirect."""
    fixed = np.zeros(len(world.factor), dtype=bool)
    reached = _remove_required(world, fix_racks=question.fix_racks)
    fewest = world.min_racks - _lost(world)
    if question.replication_factor is not None:
        world.pinned = np.where(world.after[0] == world.before[0], world.before[0], NO_BROKER)
    refuse(
        world,
        world.movable & (reached < fewest),
        "fewer racks than now",
        "allow a broker in another rack, leave these partitions out, or empty all brokers of a rack to give it up",
        LintCode.RACKS_LOST,
    )
    world.min_racks = np.minimum(world.min_racks, reached)
    touched = world.movable & ((world.after != world.before).any(axis=0) | (world.factor > _held(world)))
    lowest = _lowest(world, touched, reached)
    world.limit = np.maximum(world.limit, lowest)
    load = count_replicas(world.after, world.size)
    for gone, successor in question.replacements:
        fixed |= _replace_broker(world, load, gone, successor)
    redirected: Bools = touched & ~fixed
    world.min_racks = np.where(redirected, reached, world.min_racks)
    world.limit = np.where(redirected, lowest, world.limit)
    _fill(world, load)
    return redirected


def _held(world: PlacementModel) -> Ints:
    held: Ints = (world.after != NO_BROKER).sum(axis=0)
    return held


def _remove_required(world: PlacementModel, *, fix_racks: bool) -> Ints:
    """Take out what has to leave; returns the racks each row can then reach."""
    leaves = world.movable & (world.emptied | ~world.live)[world.before] & (world.before != NO_BROKER)
    world.after = np.where(leaves, NO_BROKER, world.after)
    load = count_replicas(world.after, world.size)
    reach = _reach(world)
    need = np.minimum(reach, world.factor if fix_racks else world.min_racks)
    limit = _limit(world, need, fix_racks=fix_racks)
    rows = np.flatnonzero(world.movable)
    while (rows := rows[_superfluous(world, rows, need, limit)]).size:
        _take_out(world, rows, load, _dispensable(world, rows, need, limit))
    reach = np.minimum(reach, _reach(world))
    distinct = spanned(world.racks[world.after])
    reached: Ints = np.minimum(distinct + world.factor - _held(world), reach)
    return reached


def _limit(world: PlacementModel, need: Ints, *, fix_racks: bool) -> Ints:
    """Replicas in one rack that each row may keep: as now, or as few as can be where some leave or racks are fixed."""
    over = world.movable & (_held(world) > world.factor)
    limit = world.limit.copy()
    for rows in _parts(np.flatnonzero(over & (need < world.factor))):
        room, without = _by_rack_and_without(world, world.after[:, rows])
        limit[rows] = np.minimum(limit[rows], lowest_crowding(np.zeros_like(room), room, without, world.factor[rows]))
    if fix_racks:
        for rows in _parts(np.flatnonzero(world.movable)):
            limit[rows] = np.where(need[rows] < world.factor[rows], _fewest_in_one(world, rows), 1)
    return limit


def _fewest_in_one(world: PlacementModel, rows: Ints) -> Ints:
    """The least of its replicas in one rack that a row can have, whatever it holds now."""
    kept = world.after[:, rows]
    staying = np.where(world.target[kept], NO_BROKER, kept)
    room, without = _by_rack_and_without(world, staying)
    offered, elsewhere = _offered(world)
    room += offered[:, None]
    return lowest_crowding(np.zeros_like(room), room, without + elsewhere, world.factor[rows])


def _lowest(world: PlacementModel, touched: Bools, reached: Ints) -> Ints:
    """The least of its replicas in one rack that each row can end with, once all its vacancies are filled."""
    lowest = np.where(touched, 1, world.limit)
    for rows in _parts(np.flatnonzero(touched & (reached < world.factor))):
        lowest[rows] = _lowest_of(world, rows, world.after[:, rows])
    return lowest


def _lowest_of(world: PlacementModel, rows: Ints, after: Ints) -> Ints:
    """The same for some rows that hold `after`."""
    held, _ = _by_rack_and_without(world, after)
    before = world.before[:, rows]
    mine = np.concatenate([after, np.where(within(before, after), NO_BROKER, before)])
    taken, taken_elsewhere = _by_rack_and_without(world, np.where(world.may_receive[mine], mine, NO_BROKER))
    offered, elsewhere = _offered(world)
    vacant = world.factor[rows] - (after != NO_BROKER).sum(axis=0)
    return lowest_crowding(held, offered[:, None] - taken, elsewhere - taken_elsewhere, vacant)


def _offered(world: PlacementModel) -> tuple[Ints, int]:
    """Brokers of each rack that may get replicas they did not have, and those without a rack."""
    racks = world.racks[:-1][world.may_receive]
    return np.bincount(racks[racks != NO_RACK], minlength=len(world.rack_names)), int((racks == NO_RACK).sum())


def _by_rack_and_without(world: PlacementModel, replicas: Ints) -> tuple[Ints, Ints]:
    """(rack, row): replicas in each rack; and those of each row without one."""
    racks = world.racks[replicas]
    return by_rack(racks, len(world.rack_names))[:-1], ((racks == NO_RACK) & (replicas != NO_BROKER)).sum(axis=0)


def _parts(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + MEASURED_AT_ONCE] for start in range(0, len(rows), MEASURED_AT_ONCE))


def _lost(world: PlacementModel) -> Ints:
    """Racks given up that each row spans: so many fewer it may have, if no other rack takes their place."""
    if not world.given_up.any():
        return np.zeros_like(world.factor)
    held = by_rack(world.racks[world.before], len(world.rack_names))[:-1] > 0
    lost: Ints = held[world.given_up].sum(axis=0)
    return lost


def _reach(world: PlacementModel) -> Ints:
    """Racks a row can span at all: those it has, and those of brokers that may be given replicas."""
    count = len(world.rack_names)
    offered = np.zeros(count + 1, dtype=bool)
    offered[world.racks[:-1][world.target]] = True
    offered[count] = False
    spans: Ints = ((by_rack(world.racks[world.after], count) > 0) | offered[:, None])[:count].sum(axis=0)
    return spans


def _superfluous(world: PlacementModel, rows: Ints, need: Ints, limit: Ints) -> Bools:
    """Rows of which a replica has to leave: too many, or in too few racks, or too many in one rack."""
    after = world.after[:, rows]
    held = after != NO_BROKER
    keeps = independent(world.racks[after], held, world.factor[rows], need[rows], limit[rows])
    superfluous: Bools = held.sum(axis=0) > keeps
    return superfluous


def _dispensable(world: PlacementModel, rows: Ints, need: Ints, limit: Ints) -> Bools:
    """(slot, row): replicas without which a row is as near to its racks as with them."""
    after = world.after[:, rows]
    racks, held = world.racks[after], after != NO_BROKER
    bounds = world.factor[rows], need[rows], limit[rows]
    keeps = independent(racks, held, *bounds)
    marks = np.zeros(after.shape, dtype=bool)
    for slot in range(len(after)):
        others = np.arange(len(after)) != slot
        marks[slot] = held[slot] & (independent(racks[others], held[others], *bounds) == keeps)
    return marks


def _take_out(world: PlacementModel, rows: Ints, load: Ints, dispensable: Bools) -> None:
    """Take a dispensable replica out of each row: one that leaves first, then a follower, then of the fullest broker.

    Sets that fit the racks are the bases of a matroid, so that one after the other is best.
    """
    most = int(load.max()) + 1
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        after = world.after[:, some]
        rank = load[after] + 2 * most * world.removal_rank[:, some]
        rank[0] -= most
        slots = np.where(dispensable[:, start : start + AT_ONCE], rank, -2 * most).argmax(axis=0)
        np.subtract.at(load, after[slots, np.arange(len(some))], 1)
        world.after[slots, some] = NO_BROKER


def _replace_broker(world: PlacementModel, load: Ints, gone: int, successor: int) -> Bools:
    """Put the successor where `gone` was, unless it is there already or the row's racks would suffer."""
    left, right = (int(np.flatnonzero(world.ids == broker)[0]) for broker in (gone, successor))
    was = (world.before == left) & world.movable
    rows = np.flatnonzero(was.any(axis=0) & (world.after != right).all(axis=0) & world.target[right])
    slots = was[:, rows].argmax(axis=0)
    trial = world.after[:, rows]
    trial[slots, np.arange(len(rows))] = right
    racks = world.racks[trial]
    more = world.factor[rows] - (trial != NO_BROKER).sum(axis=0)
    good = np.minimum(spanned(racks) + more, _reach(world)[rows]) >= world.min_racks[rows]
    good &= crowding(racks) <= world.limit[rows]
    unsure = good & (more > 0)
    good[unsure] &= _lowest_of(world, rows[unsure], trial[:, unsure]) <= world.limit[rows[unsure]]
    world.after[slots[good], rows[good]] = right
    load[right] += int(good.sum())
    done = np.zeros(len(world.factor), dtype=bool)
    done[rows[good]] = True
    return done


def _fill(world: PlacementModel, load: Ints) -> None:
    """Fill every row up to its replication factor."""
    while (short := np.flatnonzero(world.movable & (_held(world) < world.factor))).size:
        for start in range(0, len(short), AT_ONCE):
            rows = short[start : start + AT_ONCE]
            chosen = _choose(allowed_brokers(world, rows), load, world.target)
            world.after[_vacancies(world, rows), rows] = chosen
            load += np.bincount(chosen, minlength=world.size)


def _vacancies(world: PlacementModel, rows: Ints) -> Ints:
    vacancies: Ints = (world.after[:, rows] == NO_BROKER).argmax(axis=0)
    return vacancies


def allowed_brokers(world: PlacementModel, rows: Ints) -> Bools:
    """(broker, row): may be given to the row without spoiling the racks it needs, or crowding one."""
    after, before = world.after[:, rows], world.before[:, rows]
    racks = world.racks[after]
    columns = np.arange(len(rows))
    free = np.repeat(world.may_receive[:, None], len(rows), axis=1)
    for replicas in (*after, *before):
        free[replicas[replicas != NO_BROKER], columns[replicas != NO_BROKER]] = False
    vacant = world.factor[rows] - (after != NO_BROKER).sum(axis=0)
    hurried = world.min_racks[rows] - spanned(racks) >= vacant
    held = by_rack(racks, len(world.rack_names))
    fresh, room = held == 0, held < world.limit[rows]
    fresh[-1], room[-1] = False, True  # brokers without a rack
    welcome: Bools = free & (room & (fresh | ~hurried))[world.racks[:-1]]
    return welcome


def _choose(welcome: Bools, load: Ints, target: Bools) -> Ints:
    """One broker a row: the rows take turns at the brokers in the order in which even filling would take them."""
    count = welcome.shape[1]
    if not welcome.any(axis=0).all():
        raise AssertionError("a partition has nowhere to go although enough brokers are allowed")
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
    """Brokers in the order in which `count` replicas would be given, each to the emptiest.

    >>> _turns(np.array([5, 2, 3]), 4)
    array([1, 1, 2, 1])
    """
    few = np.argsort(load, kind="stable")[:count]
    levels = load[few][:, None] + np.arange(count)
    brokers = np.repeat(few, count)
    turns: Ints = brokers[np.lexsort((brokers, levels.ravel()))[:count]]
    return turns
