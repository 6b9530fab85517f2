"""The maximum size of a znode."""

from typing import Final

ZNODE_LIMIT_REASON: Final = "ZooKeeper takes about a megabyte a request (jute.maxbuffer)"
"""Reason why a znode must not be larger than a limit; part of messages."""

ZNODE_LIMIT: Final = 1_000_000
"""Bytes, below ZooKeeper's jute.maxbuffer of 1 MB, with room for the request around the data."""
