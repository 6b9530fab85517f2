"""How fast reassignments copy, and the configs of brokers and topics that say so.

Corresponds to `calculateLeaderThrottles`, `calculateFollowerThrottles` and `modifyReassignmentThrottle` of
`ReassignPartitionsCommand`. Partitions that get no new replica copy nothing and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Literal

from jobs.core.units import parse_rate
from jobs.runtime.settings import AUTO_THROTTLE, NO_THROTTLE
from planner.load.throttle_rates import Rates, ThrottleRate
from schemas.rows import Change
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

UNTHROTTLED: Final = 0
"""The rate `none`: remove a throttle that is set."""

AUTO: Final = "auto"
"""The rates of brokers follow their load, hour by hour."""

Throttle = int | Literal["auto"]
"""Bytes a second for each broker, or AUTO."""


class ResourceKind(StrEnum):
    """The kind of resource that a config belongs to."""

    BROKER = "broker"
    TOPIC = "topic"


Resource = tuple[ResourceKind, str]
Configs = dict[Resource, dict[str, str]]
"""Values by name, for each broker and topic."""


def parse_throttle(text: str) -> Throttle:
    """Parse the value of --throttle: a rate, `none` or `auto`.

    >>> [parse_throttle(text) for text in ("50MB/s", "none", "auto")]
    [50000000, 0, 'auto']
    """
    if text == AUTO_THROTTLE:
        return AUTO
    return UNTHROTTLED if text == NO_THROTTLE else parse_rate("--throttle", text)


def throttled_brokers(moves: Iterable[Change]) -> list[int]:
    """Return the brokers that send or receive copies of these reassignments."""
    return sorted({broker for _, sources, added in _copies(moves) for broker in (*sources, *added)})


def throttle_configs(moves: Sequence[Change], rates: Rates) -> Configs:
    """Return the configs for these reassignments: rates of their brokers, and throttled replicas of their topics."""
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for move, sources, added in _copies(moves):
        leaders[move.topic].update(f"{move.partition}:{replica}" for replica in sources)
        followers[move.topic].update(f"{move.partition}:{replica}" for replica in added)
    configs: Configs = {}
    for broker in throttled_brokers(moves):
        rate = ThrottleRate(receive=rates, send=rates) if isinstance(rates, int) else rates[broker]
        configs[ResourceKind.BROKER, str(broker)] = {LEADER_RATE: str(rate.send), FOLLOWER_RATE: str(rate.receive)}
    for topic in sorted(leaders):
        configs[ResourceKind.TOPIC, topic] = {
            LEADER_REPLICAS: ",".join(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: ",".join(sorted(followers[topic])),
        }
    return configs


def _copies(moves: Iterable[Change]) -> Iterator[tuple[Change, list[int], list[int]]]:
    """Yield the reassignments that copy, with the brokers that have the replicas and those that get one."""
    for move in moves:
        sources = [replica for replica in move.replicas_before or () if replica not in (move.adding_before or ())]
        added = [replica for replica in move.replicas_after if replica not in sources]
        if added:
            yield move, sources, added
