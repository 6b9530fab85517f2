"""Lists that somebody else made, accounted for as the optimiser's own: moves, reasons, what brokers and racks hold.

Corresponds to the file that kafka-reassign-partitions --execute takes. Nothing is chosen here, and nothing is checked:
that is the lint's. In: Brokers, Partitions and a list for each of them. Out: a Placement.
"""

from dataclasses import replace

import numpy as np

from planner.placement.evenness.leaders import even_leaders
from planner.placement.outcome import Found, copies, placement_of
from planner.placement.problem import NOBODY, Brokers, Ints, Partitions, Placement, PlacementError, Question
from planner.placement.world import indexes, world_of


def as_given(brokers: Brokers, partitions: Partitions, replicas: Ints) -> Placement:
    """Account for `replicas`, (row, slot) of broker ids; raise PlacementError for a broker that nobody knows."""
    question = Question(leaders=False, given=True)
    world = world_of(brokers, partitions, question)
    unknown = np.setdiff1d(replicas, [*world.ids.tolist(), NOBODY]).tolist()
    if unknown:
        raise PlacementError(
            f"brokers {', '.join(map(str, unknown))} are in no list now and not registered: lint first"
        )
    width = max(len(world.before), replicas.shape[1])
    world.before = np.pad(world.before, ((0, width - len(world.before)), (0, 0)), constant_values=NOBODY)
    world.after = indexes(world.ids, replicas[world.order].T, width)
    forced = copies(world)
    found = placement_of(world, partitions, question, Found(forced=forced, reordered=even_leaders(world, question)))
    return replace(found, bound=f"{forced} replicas are given to brokers that do not hold them")
