"""The changes a question forces: what has to leave, and a first, nearly even, choice of where the new replicas go.

Corresponds to the moves that `--remove-brokers`, `--replace`, `--replication-factor` and `--fix-racks` cannot do
without: for each partition as few as can be, to as many racks as these few can reach. A rack may be lost only where all
of its brokers are emptied. In: a World whose `after` is `before`. Out: `after` with the forced changes, `need` raised
where a replica has to move anyway; `descend` makes the choice exact. What leaves by choice is as `leaving` says; no
later step brings it back for one in sync.
"""

from typing import Final

import numpy as np

from planner.placement.leaving import RANKS
from planner.placement.problem import NOBODY, Bools, Ints, Question
from planner.placement.racks import alone, by_rack, spanned
from planner.placement.slots import count_replicas
from planner.placement.world import World, refuse

AT_ONCE: Final = 128
"""Rows placed between two looks at the load."""


def force(world: World, question: Question) -> Bools:
    """Make the forced changes; returns the rows that `descend` may still redirect."""
    fixed = np.zeros(len(world.factor), dtype=bool)
    reached = _vacate(world, fix_racks=question.fix_racks)
    fewest = world.need - _lost(world)
    if question.replication_factor is not None:
        world.pinned = np.where(world.after[0] == world.before[0], world.before[0], NOBODY)
    refuse(
        world,
        world.movable & (reached < fewest),
        "fewer racks than now",
        "allow a broker in another rack, leave these partitions out, or empty all brokers of a rack to give it up",
    )
    world.need = np.minimum(world.need, reached)
    load = count_replicas(world.after, world.size)
    for gone, successor in question.replacements:
        fixed |= _succeed(world, load, gone, successor)
    touched = world.movable & ((world.after != world.before).any(axis=0) | (world.factor > _held(world)))
    world.need = np.where(touched & ~fixed, reached, world.need)
    _fill(world, load)
    redirected: Bools = touched & ~fixed
    return redirected


def _held(world: World) -> Ints:
    held: Ints = (world.after != NOBODY).sum(axis=0)
    return held


def _vacate(world: World, *, fix_racks: bool) -> Ints:
    """Take out what has to leave; returns the racks each row can then reach."""
    leaves = world.movable & (world.emptied | ~world.live)[world.before] & (world.before != NOBODY)
    world.after = np.where(leaves, NOBODY, world.after)
    load = count_replicas(world.after, world.size)
    while (over := np.flatnonzero(_held(world) > world.factor)).size:
        _take_out(world, over, load)
    reach = _reach(world)
    span = np.minimum(reach, world.factor if fix_racks else world.need)
    while (short := np.flatnonzero(world.movable & _too_narrow(world, span))).size:
        _take_out(world, short, load, only_spare=True)
    distinct = spanned(world.racks[world.after])
    reached: Ints = np.minimum(distinct + world.factor - _held(world), reach)
    return reached


def _lost(world: World) -> Ints:
    """Racks given up that each row spans: so many fewer it may have, if no other rack takes their place."""
    if not world.given_up.any():
        return np.zeros_like(world.factor)
    held = by_rack(world.racks[world.before], len(world.rack_names))[:-1] > 0
    lost: Ints = held[world.given_up].sum(axis=0)
    return lost


def _reach(world: World) -> Ints:
    """Racks a row can span at all: those it has, and those of brokers that may be given replicas."""
    count = len(world.rack_names)
    offered = np.zeros(count + 1, dtype=bool)
    offered[world.racks[:-1][world.target]] = True
    offered[count] = False
    spans: Ints = ((by_rack(world.racks[world.after], count) > 0) | offered[:, None])[:count].sum(axis=0)
    return spans


def _can_leave(world: World, rows: Ints | slice = slice(None)) -> Bools:
    """(slot, row): a replica whose leaving loses no rack, and that may leave."""
    after = world.after[:, rows]
    may: Bools = (after != NOBODY) & world.live[after] & ~alone(world.racks[after])
    return may


def _too_narrow(world: World, span: Ints) -> Bools:
    """Rows that need another vacancy to span the racks wanted, and have a replica that can leave."""
    attained = spanned(world.racks[world.after]) + world.factor - _held(world)
    narrow: Bools = (span > attained) & _can_leave(world).any(axis=0)
    return narrow


def _take_out(world: World, rows: Ints, load: Ints, *, only_spare: bool = False) -> None:
    """Take one replica out of each row: one whose rack is not needed, of those one that leaves first, then a follower.

    Then one of the fullest broker. Sets that span the racks needed are a matroid, so that one after the other is best.
    """
    most = int(load.max()) + 1
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        after = world.after[:, some]
        racks = world.racks[after]
        spare = _can_leave(world, some) if only_spare else ~alone(racks) | (spanned(racks) > world.need[some])
        rank = load[after] + 2 * most * (world.leaves[:, some] + RANKS * spare)
        rank[0] -= most
        rank = np.where(after == NOBODY, -2 * most, rank)
        slots = rank.argmax(axis=0)
        np.subtract.at(load, after[slots, np.arange(len(some))], 1)
        world.after[slots, some] = NOBODY


def _succeed(world: World, load: Ints, gone: int, successor: int) -> Bools:
    """Put the successor where `gone` was, unless it is there already or the row would lose a rack."""
    left, right = (int(np.flatnonzero(world.ids == broker)[0]) for broker in (gone, successor))
    was = (world.before == left) & world.movable
    rows = np.flatnonzero(was.any(axis=0) & (world.after != right).all(axis=0) & world.target[right])
    slots = was[:, rows].argmax(axis=0)
    trial = world.after[:, rows]
    trial[slots, np.arange(len(rows))] = right
    racks = world.racks[trial]
    more = world.factor[rows] - (trial != NOBODY).sum(axis=0)
    good = np.minimum(spanned(racks) + more, _reach(world)[rows]) >= world.need[rows]
    world.after[slots[good], rows[good]] = right
    load[right] += int(good.sum())
    done = np.zeros(len(world.factor), dtype=bool)
    done[rows[good]] = True
    return done


def _fill(world: World, load: Ints) -> None:
    """Fill every row up to its replication factor."""
    while (short := np.flatnonzero(world.movable & (_held(world) < world.factor))).size:
        for start in range(0, len(short), AT_ONCE):
            rows = short[start : start + AT_ONCE]
            chosen = _choose(welcome(world, rows), load, world.target)
            world.after[_vacancies(world, rows), rows] = chosen
            load += np.bincount(chosen, minlength=world.size)


def _vacancies(world: World, rows: Ints) -> Ints:
    vacancies: Ints = (world.after[:, rows] == NOBODY).argmax(axis=0)
    return vacancies


def welcome(world: World, rows: Ints) -> Bools:
    """(broker, row): may be given to the row without spoiling the racks it needs."""
    after, before = world.after[:, rows], world.before[:, rows]
    racks = world.racks[after]
    columns = np.arange(len(rows))
    free = np.repeat(world.fresh[:, None], len(rows), axis=1)
    for replicas in (*after, *before):
        free[replicas[replicas != NOBODY], columns[replicas != NOBODY]] = False
    vacant = world.factor[rows] - (after != NOBODY).sum(axis=0)
    hurried = world.need[rows] - spanned(racks) >= vacant
    fresh = (by_rack(racks, len(world.rack_names)) == 0)[world.racks[:-1]] & (world.racks[:-1] >= 0)[:, None]
    welcome: Bools = free & (fresh | ~hurried)
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
