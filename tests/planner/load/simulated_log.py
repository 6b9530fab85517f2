"""The log of a partition, minute by minute: what producers write, retention deletes and brokers report.

It knows the true load of each hour, and how far any estimate from its samples can be from it.
"""

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from schemas.rows import Row
from tests.planner.load.samples import position, sample

MINUTES: Final = 240
MAX_INTERVAL: Final = 65


@dataclass(frozen=True, slots=True)
class State:
    """What the leader reports at the end of a minute, and the position of a reader."""

    log_end: int
    log_start: int
    size: int
    leader: int
    epoch: int
    committed: int
    written: int
    """Bytes written until then."""


@dataclass(slots=True)
class SimulatedLog:
    """A partition with a life of its own."""

    chance: random.Random
    topic: str
    states: list[State] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """The size of each record."""
    sampled: list[int] = field(default_factory=list)
    """The minutes of valid samples, in order."""

    def __post_init__(self) -> None:
        chance = self.chance
        busy, mean = chance.choice([0, 1, 7, 40]), chance.choice([10, 400])
        varies, segment = chance.choice([0, mean // 2]), chance.choice([20, 300, 10**9])
        kept, moves, lag = chance.choice([1, 3]) * segment, chance.choice([0.0, 0.02]), chance.choice([0, 50])
        start, leader, epoch, committed = 0, 1, 5, 0
        for _ in range(MINUTES + 1):
            written = chance.randint(0, 2 * busy)
            self.sizes += [mean + chance.randint(-varies, varies) for _ in range(written)]
            end = len(self.sizes)
            while end - start > kept:
                start += segment
            if chance.random() < moves:
                leader, epoch = leader % 3 + 1, epoch + 1
            committed = max(committed, start, end - lag)
            size = sum(self.sizes[start:]) + 1000 * leader
            self.states.append(State(end, start, size, leader, epoch, committed, sum(self.sizes)))
        often = chance.choice([1.0, 0.2, 0.05])
        self.sampled = [minute for minute in range(MINUTES + 1) if chance.random() < often]

    def samples(self) -> list[Row]:
        """Return the samples out of order, some of them twice, and some without offsets."""
        minutes = [*self.sampled, *self.chance.sample(self.sampled, len(self.sampled) // 5)]
        rows = [self._sample(minute) for minute in minutes]
        lost = [{**self._sample(minute + 0.5), "log_end": None} for minute in range(0, MINUTES, 50)]
        return self.chance.sample(rows + lost, len(rows + lost))

    def _sample(self, minute: float) -> Row:
        state = self.states[int(minute)]
        return sample(
            minute,
            state.log_end,
            state.size,
            topic=self.topic,
            log_start=state.log_start,
            leader=state.leader,
            leader_epoch=state.epoch,
        )

    def positions(self) -> list[Row]:
        return [position(minute, self.states[minute].committed, topic=self.topic) for minute in self.sampled]

    def intervals(self, hour: int) -> list[tuple[int, int]]:
        """Return the intervals between samples that touch an hour."""
        pairs = [(first, last) for first, last in pairwise(self.sampled) if last - first <= MAX_INTERVAL]
        return [(first, last) for first, last in pairs if first < 60 * (hour + 1) and last > 60 * hour]

    def minutes(self, hour: int) -> list[tuple[int, int]]:
        """Return the parts of intervals within an hour."""
        return [(max(first, 60 * hour), min(last, 60 * (hour + 1))) for first, last in self.intervals(hour)]

    def total(self, hour: int, name: str) -> int:
        """Return by how much a value of the states grew in the covered part of an hour."""
        return sum(self.growth(first, last, name) for first, last in self.minutes(hour))

    def growth(self, first: int, last: int, name: str) -> int:
        grown: int = getattr(self.states[last], name) - getattr(self.states[first], name)
        return grown

    def across(self, hour: int, name: str) -> int:
        """Return the growth of intervals that reach beyond the hour: how much of it belongs to the hour is a guess."""
        reaching = [(a, b) for a, b in self.intervals(hour) if a < 60 * hour or b > 60 * (hour + 1)]
        return sum(self.growth(first, last, name) for first, last in reaching)

    def uncertain_bytes(self, hour: int) -> float:
        """Return how far the bytes of an hour can be off: records whose size is estimated are of any size written."""
        inexact = [pair for pair in self.intervals(hour) if not self._is_exact(*pair)]
        records = sum(self.growth(first, last, "log_end") for first, last in inexact)
        spread = max(self.sizes, default=0) - min(self.sizes, default=0)
        mean_error = 3000 / max(1, min(state.log_end - state.log_start for state in self.states)) if records else 0
        return self.across(hour, "written") + records * (spread + mean_error)

    def _is_exact(self, first: int, last: int) -> bool:
        before, after = self.states[first], self.states[last]
        return (before.log_start, before.leader) == (after.log_start, after.leader)
