"""How reassignments are run: whom to ask, how long to wait, how fast to copy, and which configurations that sets.

Corresponds to `calculateLeaderThrottles`, `calculateFollowerThrottles` and `modifyReassignmentThrottle` of
`ReassignPartitionsCommand`; partitions to which no replica comes copy nothing and are left out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobs.basics.errors import UsageError
from jobs.runtime.choices import Via
from schemas.rows import Change

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

UNTHROTTLED: Final = 0
"""A rate of `none`: a throttle that is in force is taken away."""

_UNITS: Final = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_BINARY: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RATE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKMG]?B|[KMG]iB)?(?:/s)?", re.ASCII)
_LARGEST: Final = 2**63 - 1


class ResourceKind(StrEnum):
    """What a configuration is of."""

    BROKER = "broker"
    TOPIC = "topic"


Resource = tuple[ResourceKind, str]
Configs = dict[Resource, dict[str, str]]
"""Values by name, for each broker and topic."""


def bytes_per_second(text: str) -> int:
    """Read a rate: bytes a second, or 50MB/s, 1.5MiB/s, and `none`.

    >>> [bytes_per_second(rate) for rate in ("1048576", "200kB/s", "1.5MiB", "none")]
    [1048576, 200000, 1572864, 0]
    """
    if text == "none":
        return UNTHROTTLED
    parts = _RATE.fullmatch(text)
    rate = 0 if parts is None else int(float(parts[1]) * (_UNITS | _BINARY)[parts[2] or ""])
    if not 0 < rate <= _LARGEST:
        raise UsageError(
            f"--throttle {text!r} is no rate: expected bytes a second, as 50000000, 50MB/s or 64MiB; or none"
        )
    return rate


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
class Running:
    """What the command line says of it."""

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


AS_EVER: Final = Running()
"""Where nothing is said: asked over Kafka's protocol, not throttled, not waited for."""
