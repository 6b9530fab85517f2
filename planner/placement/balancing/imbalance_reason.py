"""Why brokers stay uneven: what keeps the fullest from giving to the others, or the emptiest from getting from them.

Once no way leads from full brokers to emptier ones, those it leads to at all are a closed circle: their replicas are
bound to it. Which rule binds how many of them is what a plan says. In: a World that is evened out as far as it goes,
and the graph it was evened out on. Out: a sentence, empty where brokers are within one replica of each other.
"""

from typing import Final

import numpy as np

from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.balancing.shortest_paths import reachable
from planner.placement.model import PlacementModel
from planner.placement.problem import Bools, Question
from planner.placement.removal_order import guarded
from planner.text import pluralise

SHOWN: Final = 5
"""Brokers that are named."""


def why_uneven(
    world: PlacementModel, question: Question, graph: ExchangeGraph | None, *, copied: int, left: int
) -> str:
    """Say what keeps brokers from being even; `copied` replicas are, `left` have to be and are not."""
    held = world.load()[world.target]
    if not len(held) or np.ptp(held) <= 1:
        return ""
    if left:
        return f"--max-moves {question.max_moves} leaves {pluralise(left, 'replica')} where they may not stay"
    if not question.even:
        return "only replicas that have to move do; --rebalance evens out what they leave uneven"
    if graph is None:
        return "no partition may change"
    return _of_graph(world, question, graph, copied)


def _of_graph(world: PlacementModel, question: Question, graph: ExchangeGraph, copied: int) -> str:
    load, takers, arcs = graph.load, world.target, reachable(graph.lengths)
    most, least = int(load[takers].max()), int(load[takers].min())
    giving = _closure(arcs, takers & (load == most))
    taking = _closure(arcs.T, takers & (load == least))
    if load[giving].min() < most - 1 or load[taking].max() > least + 1:
        return _limit(world, question, copied)
    if most * int(takers.sum()) >= int(load[takers].sum()) + int(takers.sum()):
        return f"{_named(world, giving)} cannot give to others: {_binding(world, giving, takers & ~giving)}"
    return f"{_named(world, taking)} cannot take from others: {_binding(world, takers & ~taking, taking)}"


def _closure(arcs: Bools, start: Bools) -> Bools:
    """Brokers that arcs lead to from these, and these."""
    closed = start
    while True:
        more = closed | arcs[closed].any(axis=0)
        if (more == closed).all():
            return closed
        closed = more


def _limit(world: PlacementModel, question: Question, copied: int) -> str:
    if question.max_moves is not None and (not question.onto or copied >= question.max_moves):
        return f"--max-moves {question.max_moves} allows no more copies that would help"
    only = _named(world, world.may_receive)
    return f"nobody but {only} is to take any, nor more than an even share; --rebalance evens all"


def _named(world: PlacementModel, brokers: Bools) -> str:
    ids = world.ids[brokers].tolist()
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids[:SHOWN]))}{more}"


def _binding(world: PlacementModel, sources: Bools, targets: Bools) -> str:
    """Of the replicas on `sources`, how many may not go to `targets`, by what forbids it."""
    open_to = targets & world.may_receive
    if not open_to.any():
        return f"nobody but {_named(world, world.may_receive)} is to take any"
    here, there = (np.append(brokers, False)[world.after] for brokers in (sources, open_to))
    replicas = here.sum(axis=0)
    fixed = ~world.movable
    everywhere = ~fixed & (there.sum(axis=0) == int(open_to.sum()))
    rest = ~fixed & ~everywhere
    kept = (here & guarded(world.after, world.keep_in_sync)).sum(axis=0)
    crowded = (world.limit < world.factor - world.min_racks + 1) & (world.min_racks > 0)
    lost = "in partitions that would lose a rack" + (" or crowd one" if (crowded & rest & (replicas > 0)).any() else "")
    counts = {
        "in partitions that may not change": int(replicas[fixed].sum()),
        "in partitions that have a replica on each of the others": int(replicas[everywhere].sum()),
        "in sync in partitions that lack one": int(kept[rest].sum()),
        lost: int((replicas - kept)[rest].sum()),
    }
    bound = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"of {int(replicas.sum())} replicas {bound}"
