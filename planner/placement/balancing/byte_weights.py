"""Balancing bytes instead of replicas: the largest first, each to the emptiest broker that may take it.

Bytes cannot be evened out exactly in reasonable time (it is bin packing), so this is a greedy and no proof goes with
it: forced replicas go largest first to the emptiest broker; where brokers are to be even, the fullest gives its largest
replica that overshoots on neither side. In: a World with its forced changes made. Works in its `after`.
"""

from typing import Final

import numpy as np

from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.forced_moves import allowed_brokers
from planner.placement.model import PlacementModel, copies
from planner.placement.problem import NO_BROKER, Bools, Ints, Question
from planner.placement.replica_arrays import arrivals, count_bytes

TOLERANCE: Final = 100
"""Brokers within a hundredth of the mean count as even: the last bytes would cost most moves."""


def spread_bytes(world: PlacementModel, weights: Ints, question: Question, redirected: Bools) -> None:
    """Place the forced replicas anew by size, then, if asked for, even out."""
    _replace(world, weights, np.flatnonzero(redirected & world.movable))
    rows = np.flatnonzero(world.movable)
    if question.even and len(rows):
        left = len(rows) * len(world.after) if question.max_moves is None else question.max_moves - copies(world)
        exchange = ExchangeGraph(world, rows, voluntary=True)
        _even_out(exchange, count_bytes(world.after, weights, world.size), weights[rows], left)
        exchange.finish()


def _replace(world: PlacementModel, weights: Ints, rows: Ints) -> None:
    after, before = world.after[:, rows], world.before[:, rows]
    new = arrivals(before, after)
    world.after[:, rows] = np.where(new, NO_BROKER, after)
    load = count_bytes(world.after, weights, world.size)
    vacancies = new.sum(axis=0)
    largest = np.argsort(-weights[rows], kind="stable")
    for row in np.repeat(rows[largest], vacancies[largest]):
        may = allowed_brokers(world, np.array([row]))[:, 0]
        broker = int(np.where(may, load, np.iinfo(np.int64).max).argmin())
        world.after[(world.after[:, row] == NO_BROKER).argmax(), row] = broker
        load[broker] += weights[row]


def _even_out(exchange: ExchangeGraph, load: Ints, weights: Ints, left: int) -> None:
    takers = np.flatnonzero(exchange.world.target)
    mean = int(load[takers].sum()) // max(len(takers), 1)
    blocked: set[int] = set()
    while left > 0:
        full = takers[np.argsort(-load[takers], kind="stable")]
        source = next((int(broker) for broker in full if int(broker) not in blocked), None)
        if source is None or load[source] - mean <= mean // TOLERANCE:
            return
        given = _give(exchange, load, weights, source, mean)
        if given == 0:
            blocked.add(source)
        left -= given


def _give(exchange: ExchangeGraph, load: Ints, weights: Ints, source: int, mean: int) -> int:
    """Move one replica away from `source`, to the emptiest broker that one fits; 1 if there was one.

    First one that overshoots on neither side, then, for the last bytes, the one that brings the two closest.
    """
    slack = mean // TOLERANCE
    takers = np.flatnonzero(exchange.world.target & (load < mean))
    takers = takers[np.argsort(load[takers], kind="stable")]
    held = exchange.holders(source)
    for last in (False, True):
        for target in takers.tolist():
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
