"""The maximum size of a znode."""

from typing import Final

ZNODE_LIMIT_REASON: Final = "ZooKeeper takes about a megabyte a request (jute.maxbuffer)"
"""Reason why a znode must not be larger than a limit; part of messages."""

ZNODE_LIMIT: Final = 1_000_000
"""Maximum bytes of a znode: jute.maxbuffer (1,048,575) less room for the checks in the same multi."""
