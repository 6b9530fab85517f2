"""Balancing by shortest paths: load moves from full to empty brokers until no path improves anything.

The loads that partitions can give brokers form a base polyhedron, so a distribution that no single path improves is
optimal. As each unit takes a cheapest path, the number of copies stays minimal for the load reached (successive
shortest paths). In: a graph of arcs and the ideal load of each broker. Changes the graph.
"""

from typing import Final, Protocol

import numpy as np

from planner.placement.balancing.shortest_paths import COSTS, cheapest_paths, path, reachable
from planner.placement.types import Bools, Ints

UNLIMITED: Final = 1 << 60
MIN_RECIPIENTS: Final = 16
"""Minimum number of brokers among which a broker shares its excess, if that number lack load."""
LOW_BUDGET_COPIES: Final = 4
"""With no more copies left than this in the budget, the best path from several full brokers is taken."""
SOURCES_TRIED: Final = 32
"""Number of the fullest brokers among which the best path is searched."""


class Graph(Protocol):
    """Arcs counted by cost + 1, the length of the cheapest arc, the load, and the operation that shifts load."""

    edges: Ints
    lengths: Ints
    load: Ints

    def shift(self, source: int, target: int, cost: int, most: int) -> int: ...


def descend(graph: Graph, recipients: Bools, budget: int = UNLIMITED) -> None:
    """Balance the load of `recipients` with at most `budget` additional copies."""
    descent = _Descent(graph, recipients, budget)
    done, moved = ~recipients, False
    while moved or not done.all():
        if done.all():
            done, moved = ~recipients, False
        if descent.budget <= LOW_BUDGET_COPIES:
            if not descent.best_step():
                return
            continue
        source = int(np.where(done, -1, graph.load).argmax())
        if descent.step(source):
            moved = True
        else:
            done[source] = True


def even_goal(load: Ints, recipients: Bools, budget: int) -> Ints:
    """Return the loads after `budget` free moves from the fullest to the emptiest brokers, at most to the even share.

    >>> even_goal(np.array([9, 5, 0, 0]), np.array([True, True, True, False]), 100)
    array([5, 5, 4, 0])
    >>> even_goal(np.array([9, 5, 0, 0]), np.array([True, True, True, False]), 2)
    array([7, 5, 2, 0])
    """
    ranks = np.flatnonzero(recipients)[np.argsort(-load[recipients], kind="stable")]
    if not len(ranks):
        return load
    share, over = divmod(int(load[ranks].sum()), len(ranks))
    even = np.full(len(ranks), share)
    even[:over] += 1
    count = min(budget, int(np.maximum(load[ranks] - even, 0).sum()))
    goal = load.copy()
    goal[ranks] = -fill_lowest(-load[ranks], count)
    goal[ranks] += fill_lowest(load[ranks], count) - load[ranks]
    return goal


def fill_lowest(load: Ints, count: int) -> Ints:
    """Give `count` units, each to the emptiest broker.

    >>> fill_lowest(np.array([5, 2, 3]), 4)
    array([5, 5, 4])
    """
    low, high = int(load.min()), int(load.min()) + count
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(level - load, 0).sum() <= count else (low, level - 1)
    raised = np.maximum(load, low)
    rest = count - int((raised - load).sum())
    raised[np.flatnonzero(raised == low)[:rest]] += 1
    return raised


class _Descent:
    """One balancing run: the goal load of each broker, the share of its excess given at once, and the budget left."""

    def __init__(self, graph: Graph, recipients: Bools, budget: int) -> None:
        self.graph, self.recipients, self.budget = graph, recipients, budget
        self.goal = even_goal(graph.load, recipients, budget)
        lacking = int((self.goal > graph.load).sum())
        self.share = np.maximum(-((self.goal - graph.load) // min(max(lacking, 1), MIN_RECIPIENTS)), 1)
        self.cost_scale = len(recipients) + 1

    def step(self, source: int) -> bool:
        """Send load from `source` to the best target; return False if there is none."""
        distance, previous = cheapest_paths(self.graph.lengths, source)
        cost = distance // self.cost_scale
        target, amount = self._target_of(source, self.recipients & reachable(distance) & (cost <= self.budget), cost)
        if amount == 0:
            return False
        self._send(source, target, amount, cost, previous)
        return True

    def best_step(self) -> bool:
        """Send one replica along the best path within the budget; return False if none helps."""
        best, best_path = -1.0, None
        for source in np.argsort(np.where(self.recipients, -self.graph.load, 1), kind="stable")[
            :SOURCES_TRIED
        ].tolist():
            if not self.recipients[source]:
                break
            distance, previous = cheapest_paths(self.graph.lengths, source)
            cost = distance // self.cost_scale
            gap = self.graph.load[source] - self.graph.load
            helps = (
                self.recipients & reachable(distance) & (cost <= self.budget) & ((gap > 1) | ((gap == 1) & (cost < 0)))
            )
            # free moves come first, then the moves that help most for their cost
            worth = np.where(helps, (gap - 1) / np.maximum(cost, 1) + np.where(cost <= 0, UNLIMITED, 0), -1.0)
            target = int(worth.argmax())
            if worth[target] > best:
                best, best_path = float(worth[target]), (source, target, 1, cost, previous)
        if best_path is not None:
            self._send(*best_path)
        return best_path is not None

    def _send(self, source: int, target: int, amount: int, cost: Ints, previous: Ints) -> None:
        """Shift up to `amount` along the path in `previous`."""
        route = [(*arc, self._cheapest(arc)) for arc in path(previous, source, target)]
        room = min(int(self.graph.edges[kind + 1, a, b]) for a, b, kind in route) // len(route)
        price = int(cost[target])
        amount = max(1, min(amount, room, self.budget // price if price > 0 else amount))
        for a, b, kind in route:
            if self.graph.shift(a, b, kind, amount) != amount:
                raise AssertionError(
                    f"cannot shift {amount} partitions from broker index {a} to {b} at cost {kind}: fewer are available"
                )
        self.budget -= price * amount

    def _cheapest(self, arc: tuple[int, int]) -> int:
        return next(cost for cost in COSTS if self.graph.edges[(cost + 1, *arc)] > 0)

    def _target_of(self, source: int, open_to: Bools, cost: Ints) -> tuple[int, int]:
        """Return target and amount: a broker below its goal, else the emptiest, else one that saves copies."""
        load, goal = self.graph.load, self.goal
        gap = load[source] - load
        lacking, emptier = open_to & (gap > 1) & (load < goal), open_to & (gap > 1)
        if load[source] > goal[source] and lacking.any():
            target = _best(lacking, cost, load - goal)
            excess = min(int(load[source] - goal[source]), int(goal[target] - load[target]))
            return target, min(int(self.share[source]), excess)
        if emptier.any():
            target = _best(emptier, cost, load)
            return target, int(gap[target]) // 2
        saving = open_to & (gap == 1) & (cost < 0)
        return (_best(saving, cost, load), 1) if saving.any() else (source, 0)


def _best(among: Bools, cost: Ints, load: Ints) -> int:
    candidates = np.flatnonzero(among)
    return int(candidates[np.lexsort((load[candidates], cost[candidates]))[0]])
