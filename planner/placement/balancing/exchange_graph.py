"""The graph on which replicas are balanced: which broker can hand a replica to which, over all partitions.

An arc a → b counts the partitions that may replace a by b and keep their hard rules. Replicas must be distinct and on
allowed brokers, span the required racks, and not exceed the allowed number per rack. In a partition with a lagging
replica, a replica in sync may only be replaced by another one in sync that returns. The cost of an arc is the change in
the number of copies. Arcs are counted, not listed, so the graph of a hundred brokers is small for any number of
partitions. In: a PlacementModel and the rows that may change.
"""

from functools import reduce
from typing import Final

import numpy as np

from planner.placement.balancing.shortest_paths import arcs
from planner.placement.model import PlacementModel, topic_load
from planner.placement.racks import exclusive_rack, max_per_rack, racks_spanned, replicas_by_rack
from planner.placement.removal_order import kept_mask
from planner.placement.replica_arrays import arrivals, is_in_row
from planner.placement.types import NO_BROKER, Bools, Ints

ROWS_PER_BATCH: Final = 1 << 15
"""Rows counted at once, to limit memory."""


class ExchangeGraph:
    """The rows that may change, and how many of them offer each arc.

    With `voluntary`, replicas that need not move may move. `edges` is (cost + 1, from, to).
    """

    def __init__(self, model: PlacementModel, rows: Ints, *, voluntary: bool) -> None:
        self.model, self.rows, self.voluntary = model, rows, voluntary
        self.before, self.after = (np.ascontiguousarray(x[:, rows]) for x in (model.before, model.after))
        self.min_racks, self.pinned, self.stay = model.min_racks[rows], model.pinned[rows], model.in_sync_quota[:, rows]
        factor, count = model.factor[rows], max(len(model.rack_names), 1)
        self.best, self.even = np.minimum(factor, len(model.rack_names)), -(-factor // count)
        self.crowds = bool((self.even > 1).any() and model.rack_names)
        self.capacity = model.capacity[rows]
        # other rows need no check: the racks they have to span leave no room for more in one rack
        self.limited = (self.capacity <= factor - self.min_racks) & bool(model.rack_names)
        self.topic, self.topic_load = topic_load(model, rows)
        self.rack_of = np.where(model.racks[:-1] < 0, len(model.rack_names), model.racks[:-1])
        self.load = model.load()
        self._by_rack = np.zeros((3, model.size, len(model.rack_names) + 1), dtype=np.int64)
        self._apart = np.zeros((3, model.size, model.size), dtype=np.int64)
        self._returns = np.zeros((3, model.size, model.size), dtype=np.int64)
        for start in range(0, len(rows), ROWS_PER_BATCH):
            self._count(np.arange(start, min(start + ROWS_PER_BATCH, len(rows))), 1)
        self.edges = self._edges(np.arange(model.size))
        self.lengths = arcs(self.edges)

    def shift(self, source: int, target: int, cost: int, most: int) -> int:
        """Replace `source` by `target` in up to `most` rows, each at `cost`; return the number of rows."""
        columns = self.holders(source)
        columns = columns[self.allowed(columns, source, target, cost)]
        chosen = np.sort(columns[self._preferred(columns, source, target)[:most]])
        self._count(chosen, -1)
        slots = (self.after[:, chosen] == source).argmax(axis=0)
        self.after[slots, chosen] = target
        self._count(chosen, 1)
        self._refresh(np.append(self.after[:, chosen], source))
        self.load[[source, target]] += np.array([-1, 1]) * len(chosen)
        np.add.at(self.topic_load[:, source], self.topic[chosen], -1)
        np.add.at(self.topic_load[:, target], self.topic[chosen], 1)
        return len(chosen)

    def holders(self, broker: int) -> Ints:
        """Return the columns in which `broker` holds a replica."""
        return np.flatnonzero(reduce(np.logical_or, [replicas == broker for replicas in self.after]))

    def finish(self) -> None:
        """Write the changes into the model."""
        self.model.after[:, self.rows] = self.after

    def _replaced(self, columns: Ints, source: int, target: int) -> Ints:
        """Return the racks of the rows after `source` is replaced by `target`."""
        after = self.after[:, columns]
        racks: Ints = self.model.racks[np.where(after == source, target, after)]
        return racks

    def allowed(self, columns: Ints, source: int, target: int, cost: int) -> Bools:
        before, after = self.before[:, columns], self.after[:, columns]
        costs = (before == source).any(axis=0).astype(int) - (before == target).any(axis=0)
        may_come = self.model.may_receive[target] | (before == target).any(axis=0)
        free = may_come & ~(after == target).any(axis=0) & (self.pinned[columns] != source) & (costs == cost)
        stay = self.stay[:, columns]
        free &= ~(stay == source).any(axis=0) | (stay == target).any(axis=0)
        racks = self._replaced(columns, source, target)
        allowed: Bools = free & (racks_spanned(racks) >= self.min_racks[columns])
        if self.limited[columns].any():
            allowed &= max_per_rack(racks) <= self.capacity[columns]
        return allowed

    def _preferred(self, columns: Ints, source: int, target: int) -> Ints:
        """Order rows: gain in racks first, then balance of the topic, then rows in which nothing else moves."""
        topics = self.topic[columns]
        first = np.maximum.accumulate(np.where(np.diff(topics, prepend=-1) != 0, np.arange(len(topics)), 0))
        nth = np.arange(len(topics)) - first
        gain = self.topic_load[topics, source] - self.topic_load[topics, target] - 2 * nth
        racks = self._replaced(columns, source, target)
        wasted = racks_spanned(racks) < self.best[columns]
        if self.crowds:
            wasted |= max_per_rack(racks) > self.even[columns]
        moving = arrivals(self.before[:, columns], self.after[:, columns]).sum(axis=0)
        order: Ints = np.lexsort((moving, -gain, wasted))
        return order

    def _count(self, columns: Ints, sign: int) -> None:
        """Count the arcs of these rows: by rack as if no replica blocked them, then subtract the blocked ones.

        Any target may take back a replica that it gave away, which saves a copy; only brokers that may receive get new
        ones.
        """
        before, after = self.before[:, columns], self.after[:, columns]
        new, gone = ~is_in_row(after, before), ~is_in_row(before, after) & (before != NO_BROKER)
        stay = self.stay[:, columns]
        held_back = kept_mask(after, stay)
        may = (after != NO_BROKER) & self.model.target[after] & (after != self.pinned[columns])
        open_to = self._open_racks(columns) & may[:, None, :]
        cost = np.where(new, 1, 2)
        starts = cost * self.model.size + after
        if held_back.any():
            back = self._arcs(open_to & held_back[:, None, :], starts, before, gone & (stay != NO_BROKER))
            np.add.at(self._returns.reshape(-1), back - self.model.size**2, sign)
            open_to &= ~held_back[:, None, :]
        slot, rack, row = np.nonzero(open_to)
        np.add.at(self._by_rack.reshape(-1), starts[slot, row] * open_to.shape[1] + rack, sign)
        held = self._arcs(open_to, starts, after, after != NO_BROKER)
        np.add.at(self._apart.reshape(-1), held, -sign)
        returning = self._arcs(open_to, starts, before, gone)
        np.add.at(self._apart.reshape(-1), returning, -sign)
        np.add.at(self._returns.reshape(-1), returning - self.model.size**2, sign)

    def _arcs(self, open_to: Bools, starts: Ints, others: Ints, marked: Bools) -> Ints:
        """Return the keys of the arcs from each slot to the marked entries of `others`."""
        rows = np.arange(others.shape[1])
        at = open_to[np.arange(len(starts))[:, None, None], self.rack_of[others][None], rows] & marked[None]
        keys: Ints = (starts[:, None, :] * self.model.size + others[None])[at]
        return keys

    def _refresh(self, brokers: Ints) -> None:
        """Recount the arcs that leave these brokers; no others have changed."""
        changed = np.unique(brokers[brokers != NO_BROKER])
        self.edges[:, changed] = self._edges(changed)
        self.lengths[changed] = arcs(self.edges[:, changed])

    def _edges(self, brokers: Ints) -> Ints:
        fresh = (self._by_rack[:, brokers][:, :, self.rack_of] + self._apart[:, brokers]) * self.model.may_receive
        edges: Ints = fresh + self._returns[:, brokers] * self.model.target
        if not self.voluntary:
            edges[2] = 0
        return edges

    def _open_racks(self, columns: Ints) -> Bools:
        """Return by (slot, rack, row) whether a broker of the rack may replace the slot; the last one is none."""
        racks = self.model.racks[self.after[:, columns]]
        count = len(self.model.rack_names)
        without = racks_spanned(racks) - exclusive_rack(racks)
        held = replicas_by_rack(racks, count)
        at = racks[:, None, :] == np.arange(count + 1)[None, :, None]
        fresh = held[None] == at
        fresh[:, count] = False
        min_racks = self.min_racks[columns]
        spans: Bools = (without >= min_racks)[:, None, :] | (fresh & (without + 1 >= min_racks)[:, None, :])
        if self.limited[columns].any():
            spans[:, :count] &= held[None, :count] - at[:, :count] < self.capacity[columns]
        return spans
