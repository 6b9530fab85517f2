"""How large the znode of a topic gets, told before it is made: ZooKeeper takes no znode beyond jute.maxbuffer.

Corresponds to what `TopicZNode.encode` writes; Kafka itself finds out when ZooKeeper drops the connection.
"""

from collections.abc import Collection, Iterator
from typing import Final

from planner.reassignment.lint import ZNODE_LIMIT

_FRAME_BYTES: Final = 128
"""Bytes around the lists: version, topic id, names."""


def digits_below(count: int) -> int:
    """Digits of all numbers below `count`, written one after the other.

    >>> digits_below(12) == len("01234567891011")
    True
    """
    return count + sum(max(count - int(10**digits), 0) for digits in range(1, 10))


def topic_bytes(partitions: int, replication_factor: int, brokers: Collection[int]) -> int:
    """Bytes of /brokers/topics/T where each of `brokers` holds about as many replicas as any other.

    >>> topic_bytes(2, 3, [0, 1, 2]) - topic_bytes(1, 3, [0, 1, 2]) == len('"1":[1,2,0],')
    True
    """
    replica = sum(len(str(broker)) for broker in brokers) / len(brokers) + len(",")
    return _FRAME_BYTES + digits_below(partitions) + round(partitions * (len('"":[]') + replication_factor * replica))


def size_faults(topic: str, size: int) -> Iterator[str]:
    """Say what is wrong with a topic's znode of `size` bytes, if anything is."""
    if size > ZNODE_LIMIT:
        yield (
            f"/brokers/topics/{topic} would take about {size} bytes, more than {ZNODE_LIMIT}, and ZooKeeper takes "
            "about a megabyte; ask for fewer partitions or replicas"
        )
