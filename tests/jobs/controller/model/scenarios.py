"""What happens to an island: a history drawn from a seed, beforehand, so that it can be run again with parts left out.

A script does not know what the controller makes of it: what cannot happen when its turn comes (a dead broker is
killed, an absent topic is deleted) does not. That is why an own minimiser does better here than Hypothesis would: a
decision by Spark takes a second whatever its size, so a history is not run once for each attempt at shrinking it, but
all its variants that lack one event side by side, in one archipelago (`replay`).

States vanish and become illegible for good: that one is mended is seen with the next audit, and time stands still here.
Topics and registrations stay legible: a topic's znode is what the islands themselves go by, and beside a broker that is
alive and not understood next to nothing is decided on an island.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from random import Random
from typing import Any, Final


class Point(IntEnum):
    """When in a cycle something happens."""

    BEFORE_CYCLE = 0
    """Before the controller looks."""
    AFTER_DECISION = 1
    """Between its decision and its writing."""
    BEFORE_SENDING = 2
    """Right before the first telling of the cycle, of what was read or written."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that happens, in a round, at a point of its cycle; brokers and topics are named as on the island."""

    round: int
    point: Point
    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"round {self.round} {self.point.name.lower()}: {self.kind} {', '.join(map(str, self.args))}"


@dataclass(frozen=True)
class Scenario:
    """A history to be. `topics` are there from the beginning, led and in sync."""

    seed: int
    brokers: int
    topics: dict[str, dict[int, list[int]]]
    events: tuple[Event, ...]
    stay_dead: frozenset[int] = frozenset()
    """Brokers that, if dead at the end, are so for good."""
    stay_failed: bool = False
    """Log dirs that failed are not mended at the end."""
    leads_first: bool = False
    """Leaders change ISRs before they take what the controller tells in a turn."""

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
"""How often each happens, in proportion."""


@dataclass
class _Draft:
    """What an island may look like while its script is drawn: good guesses make events that do something."""

    random: Random
    brokers: int
    up: set[int] = field(default_factory=set)
    partitions: dict[str, int] = field(default_factory=dict)
    factor: int = 2

    def replicas(self, strangers: float = 0.0) -> list[int]:
        known = [*range(self.brokers)]
        some = self.random.sample(known, self.random.randint(1, min(len(known), self.factor + 1)))
        return [self.brokers + 2, *some[1:]] if self.random.random() < strangers else some

    def partition(self) -> tuple[str, int]:
        topic = self.random.choice([*self.partitions] or ["a"])
        count = self.partitions.get(topic, 1)
        nonsense = self.random.random()
        if nonsense < 0.03:
            return self.random.choice((("nothing", 0), (topic, count + 5)))
        return topic, self.random.randrange(count)

    def args(self, kind: str) -> tuple[Any, ...] | None:  # noqa: C901, PLR0911 - a case for each kind
        """What an event of a kind is about; None where it makes no sense."""
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
            case "bounce" | "stall" | "lag":
                return (broker,)
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
                return (*self.partition(), self.replicas(strangers=0.08))
            case "cancel" | "elect" | "vanish" | "garble":
                return self.partition()
            case "unclean":
                return (self.random.choice(TOPIC_NAMES), self.random.random() < 0.8)
        return ()


def draw_scenario(seed: int, rounds: int) -> Scenario:
    """Draw an island and its history."""
    random = Random(seed)  # noqa: S311 - no secret
    draft = _Draft(random, random.randint(3, 5))
    draft.up = set(range(draft.brokers))
    draft.factor = random.randint(1, 3)
    topics = {name: {0: draft.replicas()} for name in TOPIC_NAMES[: random.randint(1, 2)]}
    topics["a"] |= {number: draft.replicas() for number in range(1, random.randint(1, 3))}
    draft.partitions = {name: len(partitions) for name, partitions in topics.items()}
    return Scenario(
        seed,
        draft.brokers,
        topics,
        tuple(_events(random, draft, rounds)),
        frozenset(random.sample(range(draft.brokers), random.choice((0, 0, 1)))),
        stay_failed=random.random() < 0.5,
        leads_first=random.random() < 0.3,
    )


def _events(random: Random, draft: _Draft, rounds: int) -> Iterator[Event]:
    calm = random.random() * 0.4
    for number in range(rounds):
        while random.random() > calm:
            kind = random.choices([*_EVENT_WEIGHTS], [*_EVENT_WEIGHTS.values()])[0]
            args = draft.args(kind)
            if args is not None:
                point = random.choices([*Point], (6, 3, 1))[0]
                yield Event(number, point, kind, args)
            calm = max(calm, 0.25)
