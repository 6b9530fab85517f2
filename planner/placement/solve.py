"""From a goal to a placement: forced changes, then evenness of replicas, then of leaders, each with fewest changes.

The order is lexicographic: racks (as many as a partition spans now, but racks given up), copies, who leaves by choice,
the preferred leader of a new replication factor, replicas per broker, leaders per broker, evenness within topics.
Counts are exact: as few copies as the goal allows; no replica in sync dropped before one that is dead, drained or
lagging; then replicas as even as these let them be (their squares sum to the least, which is max - min <= 1 where that
can be). With `even`, evenness is what is asked for, and comes before copies, but takes no replica in sync from a
partition that lacks one; with `onto` it is sought within the copies that the chosen brokers lack. Leaders are exact for
the replicas chosen and the partitions that may be reordered. Within `max_moves` forced changes come first: as many
partitions as so many copies complete, which is exact, then as even as those let brokers be; which of several equal
partitions are left is no matter of evenness. What is left of `max_moves` evens out as far as so few copies can; that
is not proved to be the best (one dear way may help more than several cheap ones), but none of 9,000 small clusters had
a better one. Not exact: bytes, topics, and who leaves of two drained replicas of one partition. In: `problem`'s types.
Out: a Placement.
"""

from dataclasses import replace

import numpy as np

from planner.placement.balancing.byte_weights import spread_bytes
from planner.placement.balancing.descent import UNLIMITED, descend
from planner.placement.balancing.exchange_graph import ExchangeGraph
from planner.placement.balancing.imbalance_reason import imbalance_reason
from planner.placement.balancing.leaders import even_leaders, keep_places
from planner.placement.balancing.topics import even_topics
from planner.placement.forced_moves import apply
from planner.placement.model import PlacementModel, broker_indexes, copies, copies_by_row, model_of
from planner.placement.problem import NO_BROKER, Brokers, Ints, Partitions, Placement, PlacementError, PlacementGoal
from planner.placement.result import SearchResult, placement_of, shortage
from planner.text import pluralise


def place(brokers: Brokers, partitions: Partitions, goal: PlacementGoal) -> Placement:
    """Answer the goal; the same goal gets the same answer."""
    model = model_of(brokers, partitions, goal)
    redirected = apply(model, goal)
    forced = copies(model)
    undone = _undo_beyond(model, goal.max_moves)
    uneven = ""
    if partitions.weights is None:
        _balance(model, np.flatnonzero(redirected & model.movable), voluntary=False, budget=UNLIMITED)
        graph = None
        if goal.even and not undone:
            graph = _balance(model, np.flatnonzero(model.movable), voluntary=True, budget=_budget(model, goal))
        uneven = imbalance_reason(model, goal, graph, copied=copies(model), undone=undone)
        even_topics(model, redirected | goal.even)
    else:
        spread_bytes(model, partitions.weights[model.order], goal, redirected)
    keep_places(model)
    reordered = even_leaders(model, goal)
    return placement_of(
        model, partitions, goal, SearchResult(forced=forced, left=undone, uneven=uneven, reordered=reordered)
    )


def _balance(model: PlacementModel, rows: Ints, *, voluntary: bool, budget: int) -> ExchangeGraph | None:
    """Even out over these rows; returns the graph as that leaves it."""
    if not len(rows):
        return None
    exchange = ExchangeGraph(model, rows, voluntary=voluntary)
    descend(exchange, model.target, budget)
    exchange.finish()
    return exchange


def _budget(model: PlacementModel, goal: PlacementGoal) -> int:
    """Copies that evening out may take: as `max_moves` leaves, and into chosen brokers what these lack."""
    left = UNLIMITED if goal.max_moves is None else goal.max_moves - copies(model)
    return min(left, shortage(model)[0]) if goal.onto else left


def _undo_beyond(model: PlacementModel, max_moves: int | None) -> int:
    """Leave undone the forced changes beyond `most` copies; returns how many.

    A partition is done whole or not at all. Those with fewest copies come first, so that no choice of partitions
    would complete more; of equal ones those with a replica on a dead broker, then by topic and partition.
    """
    if max_moves is None:
        return 0
    needed = copies_by_row(model)
    on_dead = ((model.before != NO_BROKER) & ~model.live[model.before]).any(axis=0)
    in_order = np.lexsort((~on_dead, needed))
    undone = np.zeros(len(needed), dtype=bool)
    undone[in_order] = np.cumsum(needed[in_order]) > max_moves
    model.after[:, undone] = model.before[:, undone]
    model.movable &= ~undone
    return int(needed[undone].sum())


def evaluate_given(brokers: Brokers, partitions: Partitions, replicas: Ints) -> Placement:
    """Account for `replicas`, (row, slot) of broker ids; raise PlacementError for a broker that nobody knows."""
    goal = PlacementGoal(leaders=False, given=True)
    model = model_of(brokers, partitions, goal)
    unknown = np.setdiff1d(replicas, [*model.ids.tolist(), NO_BROKER]).tolist()
    if unknown:
        raise PlacementError(
            f"brokers {', '.join(map(str, unknown))} are in no list now and not registered: lint first"
        )
    width = max(len(model.before), replicas.shape[1])
    model.before = np.pad(model.before, ((0, width - len(model.before)), (0, 0)), constant_values=NO_BROKER)
    model.after = broker_indexes(model.ids, replicas[model.order].T, width)
    forced = copies(model)
    placement = placement_of(model, partitions, goal, SearchResult(forced=forced, reordered=even_leaders(model, goal)))
    return replace(
        placement, bound=f"{pluralise(forced, 'replica', 'is', 'are')} given to brokers that do not hold them"
    )
