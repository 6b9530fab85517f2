"""Balancing within topics at no cost: two replicas that move anyway exchange their targets.

Copies and loads of brokers do not change and no row loses a rack, so this runs after all exact steps. It is a local
search with bounded work: most topics become even and none gets worse. In: a PlacementModel with its replicas chosen.
Changes its `after`.
"""

from collections import Counter
from typing import Final

import numpy as np

from planner.placement.model import PlacementModel, topic_load
from planner.placement.racks import NO_RACK
from planner.placement.replica_arrays import arrivals
from planner.placement.types import Bools, Ints

MAX_REPLICAS_TRIED: Final = 5_000
"""Maximum number of replicas for which a partner is searched."""
BROKERS_TRIED: Final = 8
PARTNERS_TRIED: Final = 4
"""Partners tried for a replica, on each of the brokers that hold least of the topic."""


def even_topics(model: PlacementModel, rows: Bools) -> None:
    """Exchange the targets of moving replicas in `rows` while that balances topics."""
    swaps = _Swaps(model, rows)
    for moving in swaps.crowded()[:MAX_REPLICAS_TRIED].tolist():
        swaps.improve(moving)


class _Swaps:
    """The moving replicas with their rows and slots, and the load of each topic on each broker."""

    def __init__(self, model: PlacementModel, rows: Bools) -> None:
        self.model = model
        self.slot, self.row = np.nonzero(arrivals(model.before, model.after) & (rows & model.movable))
        self.topic, self.load = topic_load(model, self.row)
        self.broker = model.after[self.slot, self.row]
        self.members = [np.flatnonzero(self.broker == broker) for broker in range(model.size)]

    def crowded(self) -> Ints:
        """Return replicas whose broker holds at least two more of the topic than another possible target."""
        most = np.iinfo(np.int64).max
        least = np.where(self.model.target, self.load, most).min(axis=1, initial=most)
        return np.flatnonzero(self.load[self.topic, self.broker] - least[self.topic] > 1)

    def improve(self, moving: int) -> None:
        """Exchange with the first partner that improves the balance of both topics together, if there is one."""
        source, load = int(self.broker[moving]), self.load[self.topic[moving]]
        emptier = np.flatnonzero(self.model.target & (load < load[source] - 1))
        for destination in emptier[np.argsort(load[emptier], kind="stable")][:BROKERS_TRIED].tolist():
            partner = self._partner(moving, source, destination, int(load[source] - load[destination]) - 1)
            if partner is not None:
                self._exchange(moving, partner)
                return

    def _partner(self, moving: int, source: int, destination: int, gained: int) -> int | None:
        partners = self.members[destination]
        topics = self.topic[partners]
        gain = gained + self.load[topics, destination] - self.load[topics, source] - 1
        gain[topics == self.topic[moving]] = 0
        best = np.argsort(-gain, kind="stable")[:PARTNERS_TRIED]
        fits = (
            int(partners[n])
            for n in best
            if gain[n] > 0 and self._fits(moving, destination) and self._fits(int(partners[n]), source)
        )
        return next(fits, None)

    def _fits(self, moving: int, broker: int) -> bool:
        model, slot, row = self.model, self.slot[moving], self.row[moving]
        now = model.after[:, row].tolist()
        if broker in now or broker in model.before[:, row].tolist():
            return False
        then = [*now[:slot], broker, *now[slot + 1 :]]
        counts = [Counter(int(model.racks[held]) for held in some) for some in (now, then)]
        for count in counts:
            del count[NO_RACK]
        crowded = max(counts[1].values(), default=0) > model.capacity[row]
        return len(counts[1]) >= len(counts[0]) and not crowded

    def _exchange(self, one: int, other: int) -> None:
        first_broker, second_broker = int(self.broker[one]), int(self.broker[other])
        for moving, source, target in ((one, first_broker, second_broker), (other, second_broker, first_broker)):
            self.load[self.topic[moving], [source, target]] += np.array([-1, 1])
            self.model.after[self.slot[moving], self.row[moving]] = target
            self.broker[moving] = target
        self.members[first_broker][self.members[first_broker] == one] = other
        self.members[second_broker][self.members[second_broker] == other] = one
