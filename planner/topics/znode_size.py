"""The size of a topic's znode, estimated before it is created: ZooKeeper accepts no znode beyond jute.maxbuffer.

Corresponds to what `TopicZNode.encode` writes. Kafka itself only finds out when ZooKeeper drops the connection.
"""

from collections.abc import Collection, Iterator
from typing import Final

from schemas import reasons

_FRAME_BYTES: Final = 128
"""Bytes around the lists: version, topic id, names."""


def digits_below(count: int) -> int:
    """Return the number of digits of all numbers below `count`.

    >>> digits_below(12) == len("01234567891011")
    True
    """
    return count + sum(max(count - int(10**digits), 0) for digits in range(1, 10))


def topic_bytes(partitions: int, replication_factor: int, brokers: Collection[int]) -> int:
    """Return the bytes of /brokers/topics/T if all `brokers` hold about the same number of replicas.

    >>> topic_bytes(2, 3, [0, 1, 2]) - topic_bytes(1, 3, [0, 1, 2]) == len('"1":[1,2,0],')
    True
    """
    replica = sum(len(str(broker)) for broker in brokers) / len(brokers) + len(",")
    return _FRAME_BYTES + digits_below(partitions) + round(partitions * (len('"":[]') + replication_factor * replica))


def size_faults(topic: str, size: int, max_bytes: int | None) -> Iterator[str]:
    """Yield a fault if a topic's assignment of `size` bytes is too large; None means no limit."""
    if max_bytes is not None and size > max_bytes:
        yield reasons.TOPIC_TOO_LARGE.render(topic=topic, size=f"{size:,}", limit=f"{max_bytes:,}")
