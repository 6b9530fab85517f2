"""Balancing of bytes instead of replicas: brokers come within a share of the mean by moving few bytes.

Exact balancing of bytes is bin packing, so this is a greedy algorithm without a proof of optimality. Forced replicas go
largest first to the emptiest broker. If brokers must be even, the broker furthest outside the band around the mean
repeatedly gives or gets one replica, until all are inside or none can move. Only what exceeds the band moves: both
sides stay inside it. In: a PlacementModel with its forced changes made. Changes its `after`.
"""

from typing import Final

import numpy as np

from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.forced_moves import allowed_brokers
from planner.placement.model import PlacementModel, copies
from planner.placement.replica_arrays import arrivals, count_bytes
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementGoal

NEW_COPY: Final = 1
"""The cost of an exchange that moves a replica for the first time; one that has moved stays where it is."""

PRICE_DIVISOR: Final = 2
"""One replica may exceed the bytes that have to move by half of the mean replica, to save the moves of smaller ones."""


def spread_bytes(model: PlacementModel, weights: Ints, goal: PlacementGoal, redirected: Bools) -> Bools:
    """Place the forced replicas again by size, then balance all if the goal requires it.

    Return the brokers that stay uneven, because none of their replicas fits elsewhere or `max_moves` is spent.
    """
    _replace_forced(model, weights, np.flatnonzero(redirected & model.movable))
    rows = np.flatnonzero(model.movable)
    if goal.even and len(rows):
        budget = len(rows) * len(model.after) if goal.max_moves is None else goal.max_moves - copies(model)
        band = _Band(ExchangeGraph(model, rows, voluntary=True), weights, goal.within)
        band.enter(budget)
        band.exchange.finish()
        return band.outside
    return np.zeros(model.size, dtype=bool)


def _replace_forced(model: PlacementModel, weights: Ints, rows: Ints) -> None:
    after, before = model.after[:, rows], model.before[:, rows]
    new = arrivals(before, after)
    model.after[:, rows] = np.where(new, NO_BROKER, after)
    load = count_bytes(model.after, weights, model.size)
    vacancies = new.sum(axis=0)
    largest = np.argsort(-weights[rows], kind="stable")
    for row in np.repeat(rows[largest], vacancies[largest]):
        may = allowed_brokers(model, np.array([row]))[:, 0]
        broker = int(np.where(may, load, np.iinfo(np.int64).max).argmin())
        model.after[(model.after[:, row] == NO_BROKER).argmax(), row] = broker
        load[broker] += weights[row]


class _Band:
    """The bytes that each broker may hold, from `low` to `high`, and the search that brings the brokers there."""

    def __init__(self, exchange: ExchangeGraph, weights: Ints, within: float) -> None:
        self.exchange, self.weights = exchange, weights[exchange.rows]
        self.load = count_bytes(exchange.model.after, weights, exchange.model.size)
        self.brokers = np.flatnonzero(exchange.model.target)
        mean = int(self.load[self.brokers].sum()) // max(len(self.brokers), 1)
        self.slack = int(mean * within)
        self.low, self.high = mean - self.slack, mean + self.slack
        self.price = int(self.weights.mean()) // PRICE_DIVISOR

    def enter(self, budget: int) -> None:
        """Move up to `budget` replicas, one at a time for the broker furthest outside, until none helps."""
        stuck: set[int] = set()
        is_improved = False
        while budget > 0:
            broker = self._furthest(stuck)
            if broker is None:
                if not is_improved:
                    return
                stuck, is_improved = set(), False  # a move since may have made room
            elif self._move_one(broker):
                budget, is_improved = budget - 1, True
            else:
                stuck.add(broker)

    @property
    def outside(self) -> Bools:
        """The brokers that hold more or less than the band allows."""
        outside: Bools = self.exchange.model.target & ((self.load > self.high) | (self.load < self.low))
        return outside

    def _furthest(self, stuck: set[int]) -> int | None:
        load = self.load[self.brokers]
        outside = np.maximum(load - self.high, self.low - load)
        outside[np.isin(self.brokers, list(stuck))] = 0
        return int(self.brokers[outside.argmax()]) if outside.max(initial=0) > 0 else None

    def _move_one(self, broker: int) -> bool:
        """Move one replica from a full broker to the emptiest one, or to an empty broker from the fullest one.

        The first pass keeps both inside the band. The second pass takes the replica that brings the two closest, if
        they are further apart than the share: rules such as racks may keep many brokers outside.
        """
        gives = self.load[broker] > self.high
        others = self.brokers[np.argsort(self.load[self.brokers] * (1 if gives else -1), kind="stable")].tolist()
        pairs = [(broker, other) if gives else (other, broker) for other in others]
        pairs = [(source, target) for source, target in pairs if self.exchange.offers(source, target, NEW_COPY)]
        excess = int(self.load[broker] - self.high if gives else self.low - self.load[broker])
        for source, target in pairs:
            room = int(min(self.load[source] - self.low, self.high - self.load[target]))
            if self._move(source, target, room, excess):
                return True
        for source, target in pairs:
            gap = int(self.load[source] - self.load[target])
            if self._move(source, target, gap - 1 - self.slack, None):
                return True
        return False

    def _move(self, source: int, target: int, room: int, excess: int | None) -> bool:
        """Move the replica of at most `room` bytes that fits best; return whether there is one."""
        columns = self.exchange.holders(source) if room > 0 else np.zeros(0, dtype=np.int64)
        columns = columns[(self.weights[columns] <= room) & (self.weights[columns] > 0)]
        columns = columns[self.exchange.allowed(columns, source, target, NEW_COPY)]
        if not len(columns):
            return False
        sizes = self.weights[columns]
        gap = int(self.load[source] - self.load[target])
        misfit = abs(sizes - gap // 2) if excess is None else _misfit(sizes, excess, self.price)
        best = columns[[misfit.argmin()]]
        self.exchange.replace(best, source, target)
        self.load[[source, target]] += np.array([-1, 1]) * self.weights[best]
        return True


def _misfit(sizes: Ints, excess: int, price: int) -> Ints:
    """Rank replicas for moving `excess` bytes, the best one lowest.

    The best is the smallest that suffices, if it exceeds them by at most `price`; else the largest that does not
    suffice, as more can follow; else the smallest.

    >>> [int(np.array(sizes)[_misfit(np.array(sizes), 10, 2).argmin()]) for sizes in ([4, 8, 11], [4, 8, 13], [13, 15])]
    [11, 8, 13]
    """
    over = sizes - excess
    ends, exceeds = (over >= 0) & (over <= price), over > price
    ranks: Ints = np.where(ends, over, np.where(exceeds, sizes + price + 1, price + 1 - over))
    return ranks
