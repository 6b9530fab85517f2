"""How reassignments are run: whom to ask, how long to wait, how fast to copy, and which configurations that sets.

Corresponds to `calculateLeaderThrottles`, `calculateFollowerThrottles` and `modifyReassignmentThrottle` of
`ReassignPartitionsCommand`; partitions to which no replica comes copy nothing and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobs.core.units import parse_rate
from jobs.runtime.cli_enums import Via
from jobs.runtime.settings import NO_THROTTLE
from schemas.rows import Change
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

UNTHROTTLED: Final = 0
"""A rate of `none`: a throttle that is in force is taken away."""


class ResourceKind(StrEnum):
    """What a configuration is of."""

    BROKER = "broker"
    TOPIC = "topic"


Resource = tuple[ResourceKind, str]
Configs = dict[Resource, dict[str, str]]
"""Values by name, for each broker and topic."""


def bytes_per_second(text: str) -> int:
    """Read --throttle: a rate, or `none`.

    >>> bytes_per_second("50MB/s"), bytes_per_second("none")
    (50000000, 0)
    """
    return UNTHROTTLED if text == NO_THROTTLE else parse_rate("--throttle", text)


def throttle_configs(moves: Iterable[Change], rate: int) -> Configs:
    """Say what to set for these reassignments: rates of the brokers concerned, throttled replicas of the topics."""
    brokers: set[int] = set()
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for move in moves:
        sources = [replica for replica in move.replicas_before or () if replica not in (move.adding_before or ())]
        coming = [replica for replica in move.replicas_after if replica not in sources]
        if coming:
            brokers.update(sources, coming)
            leaders[move.topic].update(f"{move.partition}:{replica}" for replica in sources)
            followers[move.topic].update(f"{move.partition}:{replica}" for replica in coming)
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
    """What the command line says of how reassignments are run."""

    via: Via = Via.ADMIN
    throttle: int | None = None
    """Bytes a second; None: as it is."""
    wait: bool = False
    """Also for the last wave."""
    max_wait: float | None = None
    """Seconds; None: as long as it takes."""

    @property
    def watches(self) -> bool:
        """Whether a plan that is committed already is still to be looked after."""
        return self.wait or self.throttle is not None


DEFAULT: Final = ReassignmentOptions()
"""Where nothing is said: asked over Kafka's protocol, not throttled, not waited for."""
