"""The version of the protocol between brokers, inter.broker.protocol.version (`MetadataVersion`)."""

import re
from typing import Final, NamedTuple

_LATEST_IV: Final = 99
"""Stands for the latest internal version of a release, which a release without a suffix means: "2.7" is 2.7-IV2."""


class Protocol(NamedTuple):
    """An inter-broker protocol version; 2.7-IV2 is (2, 7, 2)."""

    major: int
    minor: int
    iv: int = _LATEST_IV

    @classmethod
    def parse(cls, text: str | None) -> "Protocol | None":
        """Return the version, None if it cannot be parsed.

        >>> Protocol.parse("2.7-IV1") < Protocol.parse("2.7") < Protocol.parse("3.9-IV0")
        True
        """
        match = re.match(r"(\d+)\.(\d+)(?:-IV(\d+))?", text or "")
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]), _LATEST_IV if match[3] is None else int(match[3]))


TOPIC_IDS_SINCE: Final = Protocol(2, 8, 0)
"""First protocol version with topic ids (`MetadataVersion.isTopicIdsSupported`)."""
