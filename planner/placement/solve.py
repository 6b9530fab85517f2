"""From a question to a placement: forced changes, then evenness of replicas, then of leaders, each with fewest changes.

The order is lexicographic: racks (as many as a partition spans now, but racks given up), copies, who leaves by choice,
the preferred leader of a new replication factor, replicas per broker, leaders per broker, evenness within topics.
Counts are exact: as few copies as the question allows; no replica in sync dropped before one that is dead, drained or
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
from planner.placement.balancing.imbalance_reason import why_uneven
from planner.placement.balancing.leaders import even_leaders, keep_places
from planner.placement.balancing.topics import even_topics
from planner.placement.forced_moves import apply
from planner.placement.model import PlacementModel, copies, copies_by_row, indexes, model_of
from planner.placement.problem import NO_BROKER, Brokers, Ints, Partitions, Placement, PlacementError, Question
from planner.placement.result import SearchResult, lacking, placement_of
from planner.text import pluralise


def place(brokers: Brokers, partitions: Partitions, question: Question) -> Placement:
    """Answer the question; the same question gets the same answer."""
    world = model_of(brokers, partitions, question)
    redirected = apply(world, question)
    forced = copies(world)
    left = _cut(world, question.max_moves)
    uneven = ""
    if partitions.weights is None:
        _spread(world, np.flatnonzero(redirected & world.movable), voluntary=False, budget=UNLIMITED)
        graph = None
        if question.even and not left:
            graph = _spread(world, np.flatnonzero(world.movable), voluntary=True, budget=_budget(world, question))
        uneven = why_uneven(world, question, graph, copied=copies(world), left=left)
        even_topics(world, redirected | question.even)
    else:
        spread_bytes(world, partitions.weights[world.order], question, redirected)
    keep_places(world)
    reordered = even_leaders(world, question)
    return placement_of(
        world, partitions, question, SearchResult(forced=forced, left=left, uneven=uneven, reordered=reordered)
    )


def _spread(world: PlacementModel, rows: Ints, *, voluntary: bool, budget: int) -> ExchangeGraph | None:
    """Even out over these rows; returns the graph as that leaves it."""
    if not len(rows):
        return None
    exchange = ExchangeGraph(world, rows, voluntary=voluntary)
    descend(exchange, world.target, budget)
    exchange.finish()
    return exchange


def _budget(world: PlacementModel, question: Question) -> int:
    """Copies that evening out may take: as `max_moves` leaves, and into chosen brokers what these lack."""
    left = UNLIMITED if question.max_moves is None else question.max_moves - copies(world)
    return min(left, lacking(world)[0]) if question.onto else left


def _cut(world: PlacementModel, most: int | None) -> int:
    """Leave undone the forced changes beyond `most` copies; returns how many.

    A partition is done whole or not at all. Those with fewest copies come first, so that no choice of partitions
    would complete more; of equal ones those with a replica on a dead broker, then by topic and partition.
    """
    if most is None:
        return 0
    needed = copies_by_row(world)
    on_dead = ((world.before != NO_BROKER) & ~world.live[world.before]).any(axis=0)
    in_order = np.lexsort((~on_dead, needed))
    undone = np.zeros(len(needed), dtype=bool)
    undone[in_order] = np.cumsum(needed[in_order]) > most
    world.after[:, undone] = world.before[:, undone]
    world.movable &= ~undone
    return int(needed[undone].sum())


def as_given(brokers: Brokers, partitions: Partitions, replicas: Ints) -> Placement:
    """Account for `replicas`, (row, slot) of broker ids; raise PlacementError for a broker that nobody knows."""
    question = Question(leaders=False, given=True)
    world = model_of(brokers, partitions, question)
    unknown = np.setdiff1d(replicas, [*world.ids.tolist(), NO_BROKER]).tolist()
    if unknown:
        raise PlacementError(
            f"brokers {', '.join(map(str, unknown))} are in no list now and not registered: lint first"
        )
    width = max(len(world.before), replicas.shape[1])
    world.before = np.pad(world.before, ((0, width - len(world.before)), (0, 0)), constant_values=NO_BROKER)
    world.after = indexes(world.ids, replicas[world.order].T, width)
    forced = copies(world)
    placement = placement_of(
        world, partitions, question, SearchResult(forced=forced, reordered=even_leaders(world, question))
    )
    return replace(
        placement, bound=f"{pluralise(forced, 'replica', 'is', 'are')} given to brokers that do not hold them"
    )
