"""Paths of znodes that also modules without a client of ZooKeeper name, in messages or to classify a znode."""

from typing import Final

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"

ZNODE_LIMIT_REASON: Final = "ZooKeeper takes about a megabyte a request (jute.maxbuffer)"
"""Why a znode must not be larger than a limit; part of messages."""
