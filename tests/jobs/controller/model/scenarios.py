"""Scenarios for simulated clusters: drawn from a seed in advance, so that they can be run again with parts left out.

A scenario does not know how the controller responds. Events that are impossible when they are due (a dead broker is
killed, an absent topic is deleted) are skipped. That is why a minimiser of our own works better here than Hypothesis: a
decision by Spark takes a second whatever its size, so all variants of a scenario that lack one event run side by side
in one simulation (`replay`), instead of one after another.

States vanish and are corrupted for good, because only a resync would find that one is restored, and time does not pass
here. Topics and registrations stay readable: the simulated clusters themselves read the topic's znode, and while a live
broker is not understood, almost nothing is decided in its cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from random import Random
from typing import Any, Final


class Point(IntEnum):
    """When in a cycle an event happens."""

    BEFORE_CYCLE = 0
    """Before the controller reads."""
    AFTER_DECISION = 1
    """Between the decision and the write."""
    BEFORE_SENDING = 2
    """Right before the first requests of the cycle are sent."""


@dataclass(frozen=True, order=True)
class Event:
    """An event in a round, at a point of its cycle; brokers and topics have their local names."""

    round: int
    point: Point
    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"round {self.round} {self.point.name.lower()}: {self.kind} {', '.join(map(str, self.args))}"


@dataclass(frozen=True)
class Scenario:
    """A scenario. Its `topics` exist from the beginning, led and in sync."""

    seed: int
    brokers: int
    topics: dict[str, dict[int, list[int]]]
    events: tuple[Event, ...]
    stay_dead: frozenset[int] = frozenset()
    """Brokers that stay dead at the end if they are dead."""
    stay_failed: bool = False
    """Failed log dirs are not repaired at the end."""
    leads_first: bool = False
    """Leaders change ISRs before they handle the requests of a turn."""
    moves_at_end: bool = False
    """Once all is quiet, a replica is moved."""

    def without(self, index: int) -> "Scenario":
        return replace(self, events=self.events[:index] + self.events[index + 1 :])


TOPIC_NAMES: Final = ("a", "b", "c")
_EVENT_WEIGHTS: Final = {
    "kill": 12,
    "start": 14,
    "bounce": 6,
    "stall": 4,
    "lag": 8,
    "fail": 6,
    "act": 8,
    "create": 5,
    "grow": 3,
    "delete": 5,
    "reassign": 14,
    "cancel": 3,
    "elect": 7,
    "fail_dir": 5,
    "deliver": 5,
    "unclean": 7,
    "vanish": 1,
    "garble": 1,
    "junk": 1,
}
"""Relative frequencies of the events."""

_PROPOSAL_WEIGHTS: Final = {
    **_EVENT_WEIGHTS,
    "shut_down": 9,
    "deaf": 5,
    "propose": 18,
    "overwrite": 5,
    "forge": 6,
    "repeat": 5,
    "lose_answers": 6,
}
"""The same, if brokers propose ISRs to the controller."""


@dataclass
class _ScenarioDraft:
    """The expected state of a cluster while its scenario is drawn: good guesses make events that have an effect."""

    random: Random
    brokers: int
    up: set[int] = field(default_factory=set)
    partitions: dict[str, int] = field(default_factory=dict)
    factor: int = 2

    def replicas(self, unknown_broker_share: float = 0.0) -> list[int]:
        broker_ids = [*range(self.brokers)]
        chosen = self.random.sample(broker_ids, self.random.randint(1, min(len(broker_ids), self.factor + 1)))
        return [self.brokers + 2, *chosen[1:]] if self.random.random() < unknown_broker_share else chosen

    def partition(self) -> tuple[str, int]:
        topic = self.random.choice([*self.partitions] or ["a"])
        count = self.partitions.get(topic, 1)
        dice = self.random.random()
        if dice < 0.03:
            return self.random.choice((("nothing", 0), (topic, count + 5)))
        return topic, self.random.randrange(count)

    def args(self, kind: str) -> tuple[Any, ...] | None:  # noqa: C901, PLR0911, PLR0912 - a case for each kind
        """Draw the arguments of an event; None if the event makes no sense."""
        broker = self.random.randrange(self.brokers)
        match kind:
            case "kill":
                self.up.discard(broker)
                return (broker,)
            case "start":
                down = sorted(set(range(self.brokers)) - self.up)
                if not down:
                    return None
                self.up.add(down[0])
                return (self.random.choice(down),)
            case "bounce" | "stall" | "lag" | "deaf" | "repeat" | "overwrite":
                return (broker,)
            case "shut_down":
                self.up.discard(broker)
                return (broker,)
            case "propose" | "forge":
                return (broker, self.random.randrange(1_000_000))
            case "lose_answers":
                return (broker, self.random.randint(1, 3))
            case "fail":
                return (broker, self.random.randint(1, 6), self.random.random() < 0.5)
            case "fail_dir":
                return (broker, self.random.randrange(3))
            case "create":
                topic = self.random.choice(TOPIC_NAMES)
                count = self.random.randint(1, 2)
                self.partitions[topic] = count
                return (topic, {number: self.replicas() for number in range(count)})
            case "grow":
                topic, _ = self.partition()
                self.partitions[topic] = self.partitions.get(topic, 0) + 1
                return (topic, self.replicas())
            case "delete":
                return (self.random.choice([*TOPIC_NAMES, "nothing"]),)
            case "reassign":
                return (*self.partition(), self.replicas(unknown_broker_share=0.08))
            case "cancel" | "elect" | "vanish" | "garble":
                return self.partition()
            case "unclean":
                return (self.random.choice(TOPIC_NAMES), self.random.random() < 0.8)
        return ()


def draw_scenario(seed: int, rounds: int, *, proposes: bool = False) -> Scenario:
    """Draw a cluster and its events; `proposes`: with those of brokers that propose ISRs to the controller."""
    random = Random(seed)  # noqa: S311 - no secret
    draft = _ScenarioDraft(random, random.randint(3, 5))
    draft.up = set(range(draft.brokers))
    draft.factor = random.randint(1, 3)
    topics = {name: {0: draft.replicas()} for name in TOPIC_NAMES[: random.randint(1, 2)]}
    topics["a"] |= {number: draft.replicas() for number in range(1, random.randint(1, 3))}
    draft.partitions = {name: len(partitions) for name, partitions in topics.items()}
    return Scenario(
        seed,
        draft.brokers,
        topics,
        tuple(_events(random, draft, rounds, _PROPOSAL_WEIGHTS if proposes else _EVENT_WEIGHTS)),
        frozenset(random.sample(range(draft.brokers), random.choice((0, 0, 1)))),
        stay_failed=random.random() < 0.5,
        leads_first=random.random() < 0.3,
        moves_at_end=True,
    )


def _events(random: Random, draft: _ScenarioDraft, rounds: int, weights: Mapping[str, int]) -> Iterator[Event]:
    stop_probability = random.random() * 0.4
    for number in range(rounds):
        while random.random() > stop_probability:
            kind = random.choices([*weights], [*weights.values()])[0]
            args = draft.args(kind)
            if args is not None:
                point = random.choices([*Point], (6, 3, 1))[0]
                yield Event(number, point, kind, args)
            stop_probability = max(stop_probability, 0.25)
