"""The steps of a partition from one list of replicas to another: a single step, or one replica per step.

With one replica per step, a new replica replaces a leaving one so that no rack gets more replicas than at either end
and as many racks as possible remain. Lagging replicas are replaced first, as the step would have to wait for them, and
followers before leaders. If the list grows, replicas are then added one by one. An intermediate list never spans fewer
racks than the end with fewer, nor has it more replicas in one rack than the end with more. This is possible because
common replicas stay and bases of a matroid can be exchanged one element at a time (`racks`). In: lists as (slot, row)
of brokers by index. Out: Steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.placement.problem import NO_BROKER, Bools, Ints
from planner.placement.racks import crowding, spanned
from planner.placement.replica_arrays import arrivals, is_in_row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """One entry per step, by row and then in order: `nth` of its `row`; lists before and after as (slot, step)."""

    row: Ints
    nth: Ints
    before: Ints
    after: Ints


def single_steps(before: Ints, after: Ints) -> Steps:
    """Return one step per row."""
    rows = np.arange(before.shape[1])
    return Steps(row=rows, nth=np.zeros_like(rows), before=before, after=after)


def one_replica_steps(before: Ints, after: Ints, racks: Ints, lagging: Ints) -> Steps:
    """Return as many steps per row as it has new replicas, at least one.

    `racks` are rack numbers by broker; `lagging` are the replicas of each row that are not in sync, (slot, row).
    """
    links = list(_step_batches(before, after, racks, lagging))
    row, nth = (np.concatenate([link[n] for link in links]) for n in (0, 1))
    order = np.lexsort((nth, row))
    lists = (np.concatenate([link[n] for link in links], axis=1)[:, order] for n in (2, 3))
    was, becomes = lists
    return Steps(row=row[order], nth=nth[order], before=was, after=becomes)


def _step_batches(before: Ints, after: Ints, racks: Ints, lagging: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Yield steps of many rows at once: rows, step numbers, lists before and after."""
    current, nth = before.copy(), np.zeros(before.shape[1], dtype=np.int64)
    while (rows := np.flatnonzero(arrivals(current, after).sum(axis=0) > 1)).size:
        then = _exchange_one(current[:, rows], after[:, rows], racks, lagging[:, rows])
        yield rows, nth[rows], current[:, rows], then
        current[:, rows] = then
        nth[rows] += 1
    yield np.arange(len(nth)), nth, current, after


def _exchange_one(current: Ints, after: Ints, racks: Ints, lagging: Ints) -> Ints:
    """Bring one new replica into each row, in place of a leaving one, else at the end."""
    leaves, comes, late = arrivals(after, current), arrivals(current, after), is_in_row(current, lagging)
    best, most = _add_one(current, after, comes), np.full(current.shape[1], NO_BROKER)
    ends = [racks[lists] for lists in (current, after)]
    limit, need = np.maximum(*map(crowding, ends)), np.minimum(*map(spanned, ends))
    for gone in reversed(range(len(current))):
        for new in range(len(after)):
            option = current.copy()
            option[gone] = after[new]
            option_racks = racks[option]
            span = spanned(option_racks)
            fits = (crowding(option_racks) <= limit) & (span >= need)
            merit = 2 * span + late[gone] + (2 * len(option) + 2) * fits
            merit = np.where(leaves[gone] & comes[new], merit, NO_BROKER)
            better = merit > most
            best[:, better], most[better] = option[:, better], merit[better]
    return best


def _add_one(current: Ints, after: Ints, comes: Bools) -> Ints:
    """Append the first new replica of each row in a free slot, for rows without a leaving replica."""
    columns = np.arange(current.shape[1])
    joined = current.copy()
    joined[(current == NO_BROKER).argmax(axis=0), columns] = after[comes.argmax(axis=0), columns]
    return joined
