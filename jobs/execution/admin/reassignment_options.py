"""Options of reassignments (how long to wait, how fast to copy) and the throttle configs.

Corresponds to `calculateLeaderThrottles`, `calculateFollowerThrottles` and `modifyReassignmentThrottle` of
`ReassignPartitionsCommand`. Partitions that get no new replica copy nothing and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobs.core.units import parse_rate
from jobs.runtime.settings import NO_THROTTLE
from schemas.rows import Change
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

UNTHROTTLED: Final = 0
"""The rate `none`: remove a throttle that is set."""


class ResourceKind(StrEnum):
    """The kind of resource that a config belongs to."""

    BROKER = "broker"
    TOPIC = "topic"


Resource = tuple[ResourceKind, str]
Configs = dict[Resource, dict[str, str]]
"""Values by name, for each broker and topic."""


def bytes_per_second(text: str) -> int:
    """Parse the value of --throttle: a rate, or `none`.

    >>> bytes_per_second("50MB/s"), bytes_per_second("none")
    (50000000, 0)
    """
    return UNTHROTTLED if text == NO_THROTTLE else parse_rate("--throttle", text)


def throttle_configs(moves: Iterable[Change], rate: int) -> Configs:
    """Return the configs for these reassignments: rates of their brokers, and throttled replicas of their topics."""
    brokers: set[int] = set()
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for move in moves:
        sources = [replica for replica in move.replicas_before or () if replica not in (move.adding_before or ())]
        added = [replica for replica in move.replicas_after if replica not in sources]
        if added:
            brokers.update(sources, added)
            leaders[move.topic].update(f"{move.partition}:{replica}" for replica in sources)
            followers[move.topic].update(f"{move.partition}:{replica}" for replica in added)
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(rate))
    configs: Configs = {(ResourceKind.BROKER, str(broker)): dict(rates) for broker in sorted(brokers)}
    for topic in sorted(leaders):
        configs[ResourceKind.TOPIC, topic] = {
            LEADER_REPLICAS: ",".join(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: ",".join(sorted(followers[topic])),
        }
    return configs


@dataclass(frozen=True, slots=True)
class ReassignmentOptions:
    """The reassignment options of the command line."""

    throttle: int | None = None
    """Bytes a second; None leaves the throttle unchanged."""
    wait: bool = False
    """Also wait for the last wave."""
    max_wait: float | None = None
    """Seconds; None waits without a limit."""

    @property
    def watches(self) -> bool:
        """Whether a plan that is already committed still needs work by this command."""
        return self.wait or self.throttle is not None


DEFAULT: Final = ReassignmentOptions()
"""Options if none are given: no throttle, no waiting."""
