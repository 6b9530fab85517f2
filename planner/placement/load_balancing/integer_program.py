"""The fewest bytes by an integer program, where changes of single replicas do not reach the bands.

Each partition chooses one of some lists, so that the loads of brokers are in their bands; HiGHS searches the choice
with the fewest bytes, in a number of nodes and in one thread, so that the same input gives the same plan. In a small
cluster these are all lists that keep the rules. If no choice reaches all bands, and a limit is broken, only the limits
are sought, and then that none is broken by more than before. In larger clusters they are the candidates for one
broker. In: a LoadState in which balancing has ended. Changes the model's `after`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb
from typing import Final, NamedTuple

import highspy
import numpy as np

from planner.placement.load_balancing.load_model import TOLERANCE
from planner.placement.load_balancing.load_state import Changes, LoadState
from planner.placement.racks import max_per_rack, racks_spanned
from planner.placement.replica_arrays import arrivals
from planner.placement.types import NO_BROKER, Floats, Ints

MOST_LISTS: Final = 2_500
"""Lists of all partitions, whatever the racks, of the largest cluster that is searched."""

MARGIN: Final = 1e-6
"""Part of a target by which loads stay inside bounds, and numbers may differ, as the solver has a tolerance."""

LIST_NODES: Final = 15_000
"""Nodes of the search for each attempt, times the lists: a node among more lists takes longer."""

BROKER_NODES: Final = 50
"""Nodes of the search among the candidates for one broker."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaLists:
    """The lists that rows may have, one entry each, those of a row together.

    `lists` are by (slot, entry), `loads` by (entry, broker, resource) in targets of the brokers. `copies` is the number
    of replicas that a list copies. `present`: the entry of the present list of each row.
    """

    row: Ints
    lists: Ints
    loads: Floats
    copies: Ints
    present: Ints


def choose_lists(state: LoadState, attempts: int) -> bool:
    """Choose the lists with the fewest bytes, and return whether they were found; leave larger clusters as they are."""
    lists = _lists_of(state)
    if lists is None or not attempts:
        return False
    bands, nodes = state.bands, attempts * LIST_NODES // len(lists.row)
    if _choose(state, lists, (bands.low, bands.high), nodes):
        return True
    if (state.excess() > TOLERANCE).any() and _choose(state, lists, (bands.least, bands.limit), nodes):
        return True
    former = np.minimum(bands.least, state.former - MARGIN), np.maximum(bands.limit, state.former + MARGIN)
    return bool((state.worsened() > TOLERANCE).any()) and _choose(state, lists, former, nodes)


def choose_changes(state: LoadState, broker: int, candidates: Sequence[Changes]) -> bool:
    """Bring all loads of a broker into their bands by at most one change of each row; return whether it was possible.

    The other brokers stay as near to their bands as they are.
    """
    bands = state.bands
    low, high = np.minimum(bands.low, state.level - MARGIN), np.maximum(bands.high, state.level + MARGIN)
    low[broker], high[broker] = bands.low[broker], bands.high[broker]
    lists = _lists_with(state, candidates)
    return len(lists.row) > 0 and _choose(state, lists, (low, high), BROKER_NODES)


def _choose(state: LoadState, lists: ReplicaLists, bounds: tuple[Floats, Floats], nodes: int) -> bool:
    entries = _fewest_bytes(state, lists, bounds, nodes)
    if entries is None:
        return False
    state.model.after[:, lists.row[entries]] = lists.lists[:, entries]
    state.measure()
    return True


def _fewest_bytes(state: LoadState, lists: ReplicaLists, bounds: tuple[Floats, Floats], nodes: int) -> Ints | None:
    """Return the entry of each row; None if there is no choice within the bounds, or none was found."""
    number = np.unique(lists.row, return_inverse=True)[1]
    count, size = len(number), state.loads.size[lists.row]
    others = state.level - lists.loads[lists.present].sum(axis=0)
    bytes_left = state.max_bytes - state.bytes + int((lists.copies * size)[lists.present].sum())
    copies_left = state.max_copies - state.copies + int(lists.copies[lists.present].sum())
    low, high = bounds
    margin = np.where(state.bands.evened, np.where(high - low > 2 * MARGIN, MARGIN, 0), -MARGIN)
    is_bounded = (np.isfinite(low) | np.isfinite(high)).ravel()
    low, high = ((bound - others).ravel()[is_bounded] for bound in (low + margin, high - margin))
    unit = max(float(size.mean()), 1.0)
    ones = np.ones(len(lists.present))
    sums = np.concatenate([lists.loads.reshape(count, -1).T[is_bounded], [lists.copies * size / unit, lists.copies]])
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, len(ones) + len(sums)
    program.col_cost_ = lists.copies * (size + state.price) / unit
    program.col_lower_, program.col_upper_ = np.zeros(count), np.ones(count)
    program.row_lower_ = np.concatenate([ones, low, [-np.inf, -np.inf]])
    program.row_upper_ = np.concatenate([ones, high, [bytes_left / unit, copies_left]])
    column, row = np.nonzero(sums.T)
    starts = np.searchsorted(column, np.arange(count + 1))
    program.a_matrix_.start_ = starts + np.arange(count + 1)
    program.a_matrix_.index_ = np.insert(row + len(ones), starts[:-1], number)
    program.a_matrix_.value_ = np.insert(sums[row, column], starts[:-1], 1.0)
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    solver = highspy.Highs()
    options = {"output_flag": False, "threads": 1, "random_seed": 0, "mip_max_nodes": nodes, "mip_rel_gap": 0.0}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    chosen = np.flatnonzero(np.array(solver.getSolution().col_value) > 1 / 2)
    return chosen if len(chosen) == len(ones) else None


def _lists_of(state: LoadState) -> ReplicaLists | None:
    """Return the lists of the rows that may change; None if there are none, or too many."""
    rows = np.flatnonzero(state.may_copy | state.may_elect)
    if not 0 < len(rows) <= MOST_LISTS:
        return None
    choices = [_choices(state, row) for row in rows.tolist()]
    if sum(choice.total for choice in choices) > MOST_LISTS:
        return None
    parts = [_lists_of_row(state, row, choice) for row, choice in zip(rows.tolist(), choices, strict=True)]
    lists, lengths = np.concatenate(parts, axis=1), [part.shape[1] for part in parts]
    return _replica_lists(state, np.repeat(rows, lengths), lists)


def _lists_with(state: LoadState, candidates: Sequence[Changes]) -> ReplicaLists:
    """Return the present lists of the rows that have legal candidates, and these lists with one candidate each."""
    candidates = [changes.at(np.flatnonzero(state.legal(changes))) for changes in candidates]
    changed = np.concatenate([changes.row for changes in candidates])
    row = np.concatenate([np.unique(changed), changed])
    lists = state.model.after[:, row]
    start = len(row) - len(changed)
    for changes in candidates:
        places = np.arange(start, start + len(changes.row))
        if changes.are_elections:
            lists[0, places] = changes.target
        lists[changes.slot, places] = changes.source if changes.are_elections else changes.target
        start += len(changes.row)
    order = np.argsort(row, kind="stable")
    return _replica_lists(state, row[order], lists[:, order])


def _replica_lists(state: LoadState, row: Ints, lists: Ints) -> ReplicaLists:
    """Return lists with their loads; the rows ascend, and the first list of each is its present one."""
    loads = np.zeros((len(row), state.model.size + 1, state.level.shape[1]))
    for slot, broker in enumerate(lists):
        loads[np.arange(len(row)), broker] += (state.follower if slot else state.leader)[row]
    return ReplicaLists(
        row=row,
        lists=lists,
        loads=loads[:, :-1] * state.inverse,
        copies=arrivals(state.model.before[:, row], lists).sum(axis=0),
        present=np.unique(row, return_index=True)[1],
    )


class _Choices(NamedTuple):
    """The brokers that a row may keep, and those that it may get up to `most` of; `factor` of all these hold it."""

    kept: list[int]
    new: list[int]
    most: int
    factor: int
    may_elect: bool

    @property
    def total(self) -> int:
        """The number of lists."""
        return sum(
            comb(len(self.new), copies) * comb(len(self.kept), self.factor - copies) for copies in range(self.most + 1)
        ) * (self.factor if self.may_elect else 1)

    def brokers(self) -> Iterator[tuple[int, ...]]:
        """Yield all choices of brokers, ascending."""
        for copies in range(self.most + 1):
            for new, kept in product(combinations(self.new, copies), combinations(self.kept, self.factor - copies)):
                yield tuple(sorted((*new, *kept)))


def _choices(state: LoadState, row: int) -> _Choices:
    """Return the brokers that may hold a row; if no more bytes may be copied, with no more copies than now."""
    model, present = state.model, state.model.after[:, row]
    held, before = ({*some.tolist()} - {NO_BROKER} for some in (present, model.before[:, row]))
    kept, new = held, set[int]()
    if state.may_copy[row]:
        kept = before & ({*np.flatnonzero(model.target).tolist()} | held)
        new = ({*np.flatnonzero(model.may_receive).tolist()} | held) - before
    most = len(held - before) if state.bytes >= state.max_bytes else len(held)
    return _Choices(sorted(kept), sorted(new), most, len(held), bool(state.may_elect[row]))


def _lists_of_row(state: LoadState, row: int, choices: _Choices) -> Ints:
    """Return the lists that a row may have, (slot, entry): its present one first, then all that keep the rules."""
    model, present = state.model, state.model.after[:, row]
    held = present[present != NO_BROKER]
    fixed = ({*model.in_sync_quota[:, row].tolist(), int(model.pinned[row])} & {*held.tolist()}) - {NO_BROKER}
    found = [present]
    for chosen in choices.brokers():
        if fixed <= {*chosen}:
            ordered = sorted(chosen, key=lambda broker: (broker not in held, broker))
            leaders = chosen if choices.may_elect else present[:1] if present[0] in chosen else {*chosen} - {*held}
            found += [
                np.array([leader, *(broker for broker in ordered if broker != leader), *present[len(held) :]])
                for leader in sorted(leaders)
                if model.target[leader] and leader not in model.lagging[:, row]
            ]
    lists = np.stack(found, axis=1)
    racks = model.racks[lists]
    legal = (racks_spanned(racks) >= model.min_racks[row]) & (max_per_rack(racks) <= model.capacity[row])
    legal[0] = True
    return lists[:, legal]
