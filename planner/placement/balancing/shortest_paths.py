"""Cheapest paths from one broker to the others, in a graph with an arc wherever a partition can shift load.

This is the Bellman-Ford algorithm: arcs may cost -1 (a replica returns), 0 (a moving replica goes elsewhere) or 1 (one
more replica moves). Among equally cheap paths the one with the fewest arcs is taken. All its arcs can then be applied,
even if a partition appears in several of them.
"""

from typing import Final

import numpy as np

from planner.placement.types import Bools, Ints

COSTS: Final = (-1, 0, 1)
NO_ARC: Final = 1 << 40


def arcs(edges: Ints) -> Ints:
    """Return by (from, to) the length of the cheapest arc, NO_ARC if there is none; `edges` counts arcs by cost + 1."""
    scale = edges.shape[2] + 1
    cheapest = np.full(edges.shape[1:], NO_ARC)
    for cost, count in reversed(list(zip(COSTS, edges, strict=True))):
        cheapest[count > 0] = cost * scale + 1
    return cheapest


def cheapest_paths(lengths: Ints, source: int) -> tuple[Ints, Ints]:
    """Return the length of the shortest path from `source` to each broker, and the broker before it on that path."""
    distance, previous = lengths[source].copy(), np.full(len(lengths), source)
    distance[source] = 0
    frontier = np.flatnonzero(distance < NO_ARC)
    for _ in range(len(lengths) + 1):
        if not len(frontier):
            return distance, previous
        through = distance[frontier][:, None] + lengths[frontier]
        best = through.argmin(axis=0)
        reached = through[best, np.arange(len(lengths))]
        better = (reached < distance) & (reached < NO_ARC // 2)
        distance[better] = reached[better]
        previous[better] = frontier[best[better]]
        frontier = np.flatnonzero(better)
    raise AssertionError("a round trip over the brokers saves moves: the plan so far was not the cheapest")


def path(previous: Ints, source: int, target: int) -> list[tuple[int, int]]:
    """Return the arcs from `source` to `target`, the last one first.

    >>> path(np.array([0, 0, 1]), 0, 2)
    [(1, 2), (0, 1)]
    """
    route = []
    while target != source:
        route.append((int(previous[target]), target))
        target = int(previous[target])
    return route


def reachable(distance: Ints) -> Bools:
    near: Bools = distance < NO_ARC // 2
    return near
