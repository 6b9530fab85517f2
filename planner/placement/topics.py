"""Evenness within each topic where it costs nothing: two replicas that move anyway exchange where they go.

Neither copies nor the load of any broker change, no row loses a rack, so that this comes after everything exact. It is
a local search with a bound on its work: most topics get even, none gets worse. In: a World with its replicas chosen.
Works in its `after`.
"""

from typing import Final

import numpy as np

from planner.placement.problem import NOBODY, Bools, Ints
from planner.placement.racks import spanned
from planner.placement.slots import arrivals
from planner.placement.world import World

WORK: Final = 200_000_000
"""Pairs of moving replicas that are looked at, at most."""
TRIED: Final = 16
"""Partners tried for a replica, the best first."""


def even_topics(world: World, rows: Bools) -> None:
    """Exchange targets of moving replicas in `rows` while that evens out topics."""
    swaps = _Swaps(world, rows)
    count = len(swaps.row)
    for moving in swaps.crowded()[: WORK // max(count, 1)].tolist():
        swaps.improve(moving)


class _Swaps:
    """Replicas that move, by the row and slot they belong to, and what each topic gives each broker."""

    def __init__(self, world: World, rows: Bools) -> None:
        self.world = world
        self.slot, self.row = np.nonzero(arrivals(world.before, world.after) & (rows & world.movable))
        self.topic = np.unique(world.topic[self.row], return_inverse=True)[1]
        self.load = self._load()

    def _load(self) -> Ints:
        world, size = self.world, self.world.size
        number = np.full(int(world.topic.max(initial=-1)) + 1, NOBODY)
        number[world.topic[self.row]] = self.topic
        counted = number[world.topic] != NOBODY
        replicas = world.after[:, counted]
        keys = (number[world.topic[counted]] * size + replicas)[replicas != NOBODY]
        topics = int(self.topic.max(initial=-1)) + 1
        load: Ints = np.bincount(keys, minlength=topics * size).reshape(topics, size)
        return load

    def broker(self) -> Ints:
        brokers: Ints = self.world.after[self.slot, self.row]
        return brokers

    def crowded(self) -> Ints:
        """Replicas whose topic gives their broker two more than another one that may take replicas."""
        least = np.where(self.world.target, self.load, np.iinfo(np.int64).max).min(
            axis=1, initial=np.iinfo(np.int64).max
        )
        return np.flatnonzero(self.load[self.topic, self.broker()] - least[self.topic] > 1)

    def improve(self, moving: int) -> None:
        """Exchange with the partner that evens out most, if there is one."""
        brokers, topic = self.broker(), self.topic[moving]
        here = brokers[moving]
        gain = self.load[topic, here] - self.load[topic, brokers] - 1
        gain += self.load[self.topic, brokers] - self.load[self.topic, here] - 1
        gain[(self.topic == topic) | (brokers == here)] = 0
        partners = np.flatnonzero(gain > 0)
        for partner in partners[np.argsort(-gain[partners], kind="stable")][:TRIED].tolist():
            if self._fits(moving, int(brokers[partner])) and self._fits(partner, int(here)):
                self._put(moving, int(brokers[partner]))
                self._put(partner, int(here))
                return

    def _fits(self, moving: int, broker: int) -> bool:
        world, slot, row = self.world, self.slot[moving], self.row[moving]
        now = world.after[:, row]
        then = now.copy()
        then[slot] = broker
        spans = spanned(world.racks[np.stack([now, then], axis=1)])
        return broker not in now and broker not in world.before[:, row] and bool(spans[1] >= spans[0])

    def _put(self, moving: int, broker: int) -> None:
        slot, row, topic = self.slot[moving], self.row[moving], self.topic[moving]
        self.load[topic, self.world.after[slot, row]] -= 1
        self.load[topic, broker] += 1
        self.world.after[slot, row] = broker
