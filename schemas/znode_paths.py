"""Paths of znodes that also modules without a client of ZooKeeper name, in messages or to classify a znode."""

from typing import Final

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"

ZNODE_LIMIT_REASON: Final = "ZooKeeper takes about a megabyte a request (jute.maxbuffer)"
"""Reason why a znode must not be larger than a limit; part of messages."""

ZNODE_LIMIT: Final = 1_000_000
"""Bytes, below ZooKeeper's jute.maxbuffer of 1 MB, with room for the request around the data."""
