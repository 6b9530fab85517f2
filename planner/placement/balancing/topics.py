"""Evenness within each topic where it costs nothing: two replicas that move anyway exchange where they go.

Neither copies nor the load of any broker change, no row loses a rack, so that this comes after everything exact. It is
a local search with a bound on its work: most topics get even, none gets worse. In: a World with its replicas chosen.
Works in its `after`.
"""

from collections import Counter
from typing import Final

import numpy as np

from planner.placement.model import PlacementModel, topic_load
from planner.placement.problem import Bools, Ints
from planner.placement.racks import NO_RACK
from planner.placement.replica_arrays import arrivals

LIMIT: Final = 5_000
"""Replicas for which a partner is looked for, at most."""
BROKERS_TRIED: Final = 8
PARTNERS_TRIED: Final = 4
"""Partners tried for a replica: of each broker that the topic gives least, the best."""


def even_topics(world: PlacementModel, rows: Bools) -> None:
    """Exchange targets of moving replicas in `rows` while that evens out topics."""
    swaps = _Swaps(world, rows)
    for moving in swaps.crowded()[:LIMIT].tolist():
        swaps.improve(moving)


class _Swaps:
    """Replicas that move, by the row and slot they belong to, and what each topic gives each broker."""

    def __init__(self, world: PlacementModel, rows: Bools) -> None:
        self.world = world
        self.slot, self.row = np.nonzero(arrivals(world.before, world.after) & (rows & world.movable))
        self.topic, self.load = topic_load(world, self.row)
        self.broker = world.after[self.slot, self.row]
        self.members = [np.flatnonzero(self.broker == broker) for broker in range(world.size)]

    def crowded(self) -> Ints:
        """Replicas whose topic gives their broker two more than another one that may take replicas."""
        most = np.iinfo(np.int64).max
        least = np.where(self.world.target, self.load, most).min(axis=1, initial=most)
        return np.flatnonzero(self.load[self.topic, self.broker] - least[self.topic] > 1)

    def improve(self, moving: int) -> None:
        """Exchange with the first partner that evens out both topics together, if there is one."""
        here, load = int(self.broker[moving]), self.load[self.topic[moving]]
        emptier = np.flatnonzero(self.world.target & (load < load[here] - 1))
        for there in emptier[np.argsort(load[emptier], kind="stable")][:BROKERS_TRIED].tolist():
            partner = self._partner(moving, here, there, int(load[here] - load[there]) - 1)
            if partner is not None:
                self._exchange(moving, partner)
                return

    def _partner(self, moving: int, here: int, there: int, gained: int) -> int | None:
        partners = self.members[there]
        topics = self.topic[partners]
        gain = gained + self.load[topics, there] - self.load[topics, here] - 1
        gain[topics == self.topic[moving]] = 0
        best = np.argsort(-gain, kind="stable")[:PARTNERS_TRIED]
        fits = (
            int(partners[n])
            for n in best
            if gain[n] > 0 and self._fits(moving, there) and self._fits(int(partners[n]), here)
        )
        return next(fits, None)

    def _fits(self, moving: int, broker: int) -> bool:
        world, slot, row = self.world, self.slot[moving], self.row[moving]
        now = world.after[:, row].tolist()
        if broker in now or broker in world.before[:, row].tolist():
            return False
        then = [*now[:slot], broker, *now[slot + 1 :]]
        counts = [Counter(int(world.racks[held]) for held in some) for some in (now, then)]
        for count in counts:
            del count[NO_RACK]
        crowded = max(counts[1].values(), default=0) > world.limit[row]
        return len(counts[1]) >= len(counts[0]) and not crowded

    def _exchange(self, one: int, other: int) -> None:
        here, there = int(self.broker[one]), int(self.broker[other])
        for moving, source, target in ((one, here, there), (other, there, here)):
            self.load[self.topic[moving], [source, target]] += np.array([-1, 1])
            self.world.after[self.slot[moving], self.row[moving]] = target
            self.broker[moving] = target
        self.members[here][self.members[here] == one] = other
        self.members[there][self.members[there] == other] = one
