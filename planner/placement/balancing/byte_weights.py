"""Balancing of bytes instead of replicas: the largest replicas first, each to the emptiest broker that may take it.

Exact balancing of bytes is bin packing, so this is a greedy algorithm without a proof of optimality. Forced replicas go
largest first to the emptiest broker. If brokers must be even, the fullest broker repeatedly gives away the largest
replica that makes neither side overshoot. In: a PlacementModel with its forced changes made. Changes its `after`.
"""

from typing import Final

import numpy as np

from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.forced_moves import allowed_brokers
from planner.placement.model import PlacementModel, copies
from planner.placement.replica_arrays import arrivals, count_bytes
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementGoal

TOLERANCE_DIVISOR: Final = 100
"""Brokers within 1/100 of the mean count as even; the last bytes would cost the most moves."""


def spread_bytes(model: PlacementModel, weights: Ints, goal: PlacementGoal, redirected: Bools) -> None:
    """Place the forced replicas again by size, then balance all if the goal requires it."""
    _replace_forced(model, weights, np.flatnonzero(redirected & model.movable))
    rows = np.flatnonzero(model.movable)
    if goal.even and len(rows):
        budget = len(rows) * len(model.after) if goal.max_moves is None else goal.max_moves - copies(model)
        exchange = ExchangeGraph(model, rows, voluntary=True)
        _even_out(exchange, count_bytes(model.after, weights, model.size), weights[rows], budget)
        exchange.finish()


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


def _even_out(exchange: ExchangeGraph, load: Ints, weights: Ints, budget: int) -> None:
    recipients = np.flatnonzero(exchange.model.target)
    mean = int(load[recipients].sum()) // max(len(recipients), 1)
    blocked: set[int] = set()
    while budget > 0:
        full = recipients[np.argsort(-load[recipients], kind="stable")]
        source = next((int(broker) for broker in full if int(broker) not in blocked), None)
        if source is None or load[source] - mean <= mean // TOLERANCE_DIVISOR:
            return
        moved = _move_one(exchange, load, weights, source, mean)
        if moved == 0:
            blocked.add(source)
        budget -= moved


def _move_one(exchange: ExchangeGraph, load: Ints, weights: Ints, source: int, mean: int) -> int:
    """Move one replica from `source` to the emptiest broker that one fits; return the number moved, 0 or 1.

    The first pass allows no overshoot on either side. The second pass takes the replica that brings the two closest.
    """
    slack = mean // TOLERANCE_DIVISOR
    recipients = np.flatnonzero(exchange.model.target & (load < mean))
    recipients = recipients[np.argsort(load[recipients], kind="stable")]
    held = exchange.holders(source)
    for last in (False, True):
        for target in recipients.tolist():
            gap = int(load[source] - load[target])
            room = gap - 1 - slack if last else min(int(load[source]) - mean, mean - int(load[target])) + slack
            columns = held[(weights[held] <= room) & (weights[held] > 0)]
            columns = columns[exchange.allowed(columns, source, target, 1)]
            if len(columns):
                fit = abs(weights[columns] - (gap // 2 if last else room))
                column = int(columns[fit.argmin()])
                exchange.after[(exchange.after[:, column] == source).argmax(), column] = target
                load[[source, target]] += np.array([-1, 1]) * weights[column]
                return 1
    return 0
