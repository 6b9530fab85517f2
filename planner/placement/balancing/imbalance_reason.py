"""The reason why brokers stay uneven: what binds the replicas of the fullest, or keeps others from the emptiest.

When no path leads from full brokers to emptier ones, the brokers reachable from the full ones form a closed set to
which their replicas are bound. The plan states which rules bind how many of them. In: a PlacementModel after balancing,
and the graph used for it. Out: a sentence, empty if brokers are within one replica of each other.
"""

from typing import Final

import numpy as np

from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.balancing.shortest_paths import reachable
from planner.placement.model import PlacementModel
from planner.placement.problem import Bools, PlacementGoal
from planner.placement.removal_order import is_kept
from schemas.text import pluralise

MAX_BROKERS_NAMED: Final = 5
"""Broker ids in one message."""


def imbalance_reason(
    model: PlacementModel, goal: PlacementGoal, graph: ExchangeGraph | None, *, copied: int, undone: int
) -> str:
    """Return why brokers are not even.

    `copied` replicas are copied by the plan; `undone` required copies are not.
    """
    held = model.load()[model.target]
    if not len(held) or np.ptp(held) <= 1:
        return ""
    if undone:
        return f"--max-moves {goal.max_moves} leaves {pluralise(undone, 'replica')} where they may not stay"
    if not goal.even:
        return "only replicas that have to move do; --rebalance evens out what they leave uneven"
    if graph is None:
        return "no partition may change"
    return _graph_reason(model, goal, graph, copied)


def _graph_reason(model: PlacementModel, goal: PlacementGoal, graph: ExchangeGraph, copied: int) -> str:
    load, takers, arcs = graph.load, model.target, reachable(graph.lengths)
    most, least = int(load[takers].max()), int(load[takers].min())
    giving = _closure(arcs, takers & (load == most))
    taking = _closure(arcs.T, takers & (load == least))
    if load[giving].min() < most - 1 or load[taking].max() > least + 1:
        return _limit_reason(model, goal, copied)
    if most * int(takers.sum()) >= int(load[takers].sum()) + int(takers.sum()):
        return (
            f"{_broker_names(model, giving)} cannot give to others: {_binding_rules(model, giving, takers & ~giving)}"
        )
    return f"{_broker_names(model, taking)} cannot take from others: {_binding_rules(model, takers & ~taking, taking)}"


def _closure(arcs: Bools, start: Bools) -> Bools:
    """Return these brokers and all that arcs lead to from them."""
    closed = start
    while True:
        extended = closed | arcs[closed].any(axis=0)
        if (extended == closed).all():
            return closed
        closed = extended


def _limit_reason(model: PlacementModel, goal: PlacementGoal, copied: int) -> str:
    if goal.max_moves is not None and (not goal.onto or copied >= goal.max_moves):
        return f"--max-moves {goal.max_moves} allows no more copies that would help"
    only = _broker_names(model, model.may_receive)
    return f"only {only} may take replicas, up to an even share; --rebalance balances all brokers"


def _broker_names(model: PlacementModel, brokers: Bools) -> str:
    ids = model.ids[brokers].tolist()
    more = f" and {len(ids) - MAX_BROKERS_NAMED} more" if len(ids) > MAX_BROKERS_NAMED else ""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids[:MAX_BROKERS_NAMED]))}{more}"


def _binding_rules(model: PlacementModel, sources: Bools, targets: Bools) -> str:
    """Count the replicas on `sources` that may not go to `targets`, by the rule that forbids it."""
    open_to = targets & model.may_receive
    if not open_to.any():
        return f"only {_broker_names(model, model.may_receive)} may take replicas"
    on_sources, on_targets = (np.append(brokers, False)[model.after] for brokers in (sources, open_to))
    replicas = on_sources.sum(axis=0)
    fixed = ~model.movable
    everywhere = ~fixed & (on_targets.sum(axis=0) == int(open_to.sum()))
    rest = ~fixed & ~everywhere
    kept = (on_sources & is_kept(model.after, model.keep_in_sync)).sum(axis=0)
    crowded = (model.limit < model.factor - model.min_racks + 1) & (model.min_racks > 0)
    lost = "in partitions that would lose a rack" + (" or crowd one" if (crowded & rest & (replicas > 0)).any() else "")
    counts = {
        "in partitions that may not change": int(replicas[fixed].sum()),
        "in partitions that have a replica on each of the others": int(replicas[everywhere].sum()),
        "in sync in partitions that lack one": int(kept[rest].sum()),
        lost: int((replicas - kept)[rest].sum()),
    }
    bound = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"of {int(replicas.sum())} replicas {bound}"
