"""Balancing of leaders: a new order of replicas moves no data.

Corresponds to the preferred replica of `PartitionStateMachine`: the first replica of a list leads once it is in sync.
An arc a → b counts the partitions that a leads and b follows. It costs 1 if the preferred leader stays in its partition
and would lose it, so leaders become even with as few changes as possible. A partition that neither gets nor loses a
replica keeps its order unless the goal includes all. In: a PlacementModel with final replicas.
"""

from functools import reduce

import numpy as np

from planner.placement.balancing.augmenting_paths import descend
from planner.placement.balancing.shortest_paths import arcs
from planner.placement.model import PlacementModel, dense_numbers
from planner.placement.replica_arrays import arrivals, count_leaders
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementGoal


class LeaderGraph:
    """The graph of leaders over the rows that may change; `edges` is (cost + 1, from, to)."""

    def __init__(self, model: PlacementModel, rows: Ints) -> None:
        self.model, self.rows = model, rows
        self.after = model.after[:, self.rows]
        self.leader = self.after[0].copy()
        stays = (self.after == model.before[0, self.rows]).any(axis=0)
        self.home = np.where(stays, model.before[0, self.rows], NO_BROKER)
        self.changed = (self.after != model.before[:, self.rows]).any(axis=0)
        self.topic = dense_numbers(model.topic[self.rows])
        topics = int(self.topic.max(initial=-1)) + 1
        led = np.bincount(self.topic * model.size + self.leader, minlength=topics * model.size)
        self.topic_load = led.astype(np.int32).reshape(topics, model.size)
        self.load = count_leaders(model.after, model.size)
        self.edges = np.zeros((3, model.size, model.size), dtype=np.int64)
        self._count(np.arange(len(self.rows)), 1)
        self.lengths = arcs(self.edges)

    def shift(self, source: int, target: int, cost: int, most: int) -> int:
        """Let `target` lead instead of `source` in up to `most` rows, each at `cost`; return the number of rows."""
        columns = np.flatnonzero(self.leader == source)
        columns = columns[reduce(np.logical_or, [replicas[columns] == target for replicas in self.after])]
        columns = columns[self._costs(columns, np.full(len(columns), target)) == cost]
        chosen = columns[self._preferred(columns, source, target)[:most]]
        self._count(chosen, -1)
        self.leader[chosen] = target
        self._count(chosen, 1)
        self.lengths[[source, target]] = arcs(self.edges[:, [source, target]])
        self.load[[source, target]] += np.array([-1, 1]) * len(chosen)
        np.add.at(self.topic_load[:, source], self.topic[chosen], -1)
        np.add.at(self.topic_load[:, target], self.topic[chosen], 1)
        return len(chosen)

    def finish(self) -> None:
        """Move the leaders to the front; the other replicas keep their order."""
        moved = np.flatnonzero(self.leader != self.after[0])
        after, leader = self.after[:, moved], self.leader[moved]
        order = np.argsort(after != leader, axis=0, kind="stable")
        self.model.after[:, self.rows[moved]] = np.take_along_axis(after, order, axis=0)

    def _costs(self, columns: Ints, targets: Ints) -> Ints:
        home, leader = self.home[columns], self.leader[columns]
        costs: Ints = (home == leader).astype(int) - (home == targets)
        return costs

    def _preferred(self, columns: Ints, source: int, target: int) -> Ints:
        """Order rows: those that change anyway first, then those that balance the topic's leaders."""
        topics = self.topic[columns]
        gain = self.topic_load[topics, source] - self.topic_load[topics, target]
        order: Ints = np.lexsort((-gain, ~self.changed[columns]))
        return order

    def _count(self, columns: Ints, sign: int) -> None:
        size, target = self.model.size, self.model.target
        leader = self.leader[columns]
        for other in self.after[:, columns]:
            at = (other != NO_BROKER) & (other != leader) & target[other] & target[leader]
            keys = ((self._costs(columns, other) + 1) * size + leader) * size + other
            np.add.at(self.edges.reshape(-1), keys[at], sign)


def even_leaders(model: PlacementModel, goal: PlacementGoal) -> tuple[int, Ints]:
    """Reorder the rows that the goal allows.

    Return how many more rows would be reordered if all could be, and the leaders of each broker in that case. A new
    replication factor keeps the leaders, unless the goal includes all rows.
    """
    rows: Bools = model.movable & (model.after[0] != NO_BROKER)
    if goal.leaders and goal.reorder:
        _evened(model, rows).finish()
    if not goal.leaders or goal.reorder:
        return 0, count_leaders(model.after, model.size)
    unrestricted = _evened(model, rows)
    concerned = _touched(model) if goal.replication_factor is None else np.zeros_like(rows)
    if concerned.any():
        _evened(model, rows & concerned).finish()
    left_as_they_are = (unrestricted.leader != unrestricted.after[0]) & ~concerned[unrestricted.rows]
    return int(left_as_they_are.sum()), unrestricted.load


def _evened(model: PlacementModel, rows: Bools) -> LeaderGraph:
    leadership = LeaderGraph(model, np.flatnonzero(rows))
    if rows.any():
        descend(leadership, model.target)
    return leadership


def _touched(model: PlacementModel) -> Bools:
    """Return the rows that may change and that get or lose a replica."""
    moved = np.concatenate([arrivals(model.before, model.after), arrivals(model.after, model.before)])
    touched: Bools = model.movable & moved.any(axis=0)
    return touched
