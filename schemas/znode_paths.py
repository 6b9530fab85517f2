"""Paths of topics, states, brokers and reassignments in ZooKeeper; those of other znodes are with their readers."""

import re
from typing import Final

from schemas.rows import Key

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"

_STATE_PATH: Final = re.compile(rf"{TOPICS}/([^/]+)/partitions/(\d+)/state")


def topic_path(topic: str) -> str:
    """Return the znode of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def state_path(key: tuple[str, int | str]) -> str:
    """Return the znode of a partition's state."""
    return f"{topic_path(key[0])}/partitions/{key[1]}/state"


def key_of_state(path: str) -> Key | None:
    """Return the partition whose state a znode is, None if it is another znode.

    >>> key_of_state("/brokers/topics/orders/partitions/7/state"), key_of_state("/brokers/topics/state")
    (('orders', 7), None)
    """
    match = _STATE_PATH.fullmatch(path)
    return None if match is None else (match[1], int(match[2]))
