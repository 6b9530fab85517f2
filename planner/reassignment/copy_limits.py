"""Replication throttles: the brokers whose rates limit how quickly a replica is copied.

Corresponds to `ReplicationQuotaManager.isThrottled` and `TopicConfigHandler.parseThrottledPartitions`. A rate of a
broker limits only replicas that are listed in the config of their topic: the leader in one list, the copy in another.
Without an own rate a broker has the rate that is set for all brokers.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS


class CopyLimit(NamedTuple):
    """A rate that limits a copy: the broker, the resource that has the config, and the config."""

    broker: int
    resource: str
    name: str
    value: str

    @property
    def rate(self) -> int:
        """Bytes a second."""
        return max(1, int(self.value))


def copy_limits(
    partition: int,
    senders: Collection[int],
    receivers: Collection[int],
    lists: Mapping[str, str | None],
    rates: Mapping[str, Mapping[str, str]],
) -> Iterator[CopyLimit]:
    """Yield the rates that limit a copy from one of `senders` to `receivers`.

    `lists` is the config of the topic; `rates` has the configs of brokers, and of all brokers.

    >>> lists = {"follower.replication.throttled.replicas": "0:3,1:2", "leader.replication.throttled.replicas": "*"}
    >>> rates = {"3": {"follower.replication.throttled.rate": "10"}, "2": {"follower.replication.throttled.rate": "20"}}
    >>> [limit.rate for limit in copy_limits(0, [1], [2, 3], lists, rates)]
    [10]
    >>> rates |= {"<default>": {"leader.replication.throttled.rate": "30"}}
    >>> [(limit.broker, limit.rate) for limit in copy_limits(1, [1], [2], lists, rates)]
    [(1, 30), (2, 20)]
    """
    for listed, name, brokers in (
        (LEADER_REPLICAS, LEADER_RATE, senders),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, receivers),
    ):
        entries = {entry.strip() for entry in (lists.get(listed) or "").split(",")}
        for broker in brokers:
            if not entries & {"*", f"{partition}:{broker}"}:
                continue
            resource = next((some for some in (str(broker), DEFAULT_ENTITY) if name in rates.get(some, {})), None)
            if resource is not None:
                yield CopyLimit(broker, resource, name, rates[resource][name])
