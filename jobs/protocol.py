"""What the brokers of a snapshot speak with each other, and what follows from it for new topics and their configs.

Corresponds to `inter.broker.protocol.version` (`MetadataVersion`): no broker is older than what it speaks.
"""

import re
from typing import Any, Final

from jobs.snapshots import SnapshotTables, as_of
from planner.unclean import IBP
from schemas.topic_configs import TOPIC_CONFIGS

Version = tuple[int, int]

UNKNOWN: Final[Version] = (0, 0)

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def protocols(at: SnapshotTables) -> list[Version]:
    """The inter.broker.protocol.version of each broker, UNKNOWN where it did not say."""
    rows = as_of(at.tables.lake, at.snapshot, "broker_configs", ("name", "=", IBP))
    return [_version(row["value"]) for row in rows]


def config_notes(at: SnapshotTables, config: dict[str, str]) -> dict[str, Any]:
    """What an operation has to say of its configs: names taken unchecked, and those that older brokers ignore."""
    unknown = sorted(config.keys() - TOPIC_CONFIGS.keys())
    spoken = min(protocols(at), default=UNKNOWN) if config else UNKNOWN
    since = {name: TOPIC_CONFIGS[name].since for name in sorted(config.keys() & TOPIC_CONFIGS.keys())}
    later = {name: version for name, version in since.items() if version and _version(version) > spoken}
    return ({"unknown": unknown} if unknown else {}) | ({"ignored_before": later} if later else {})


def _version(text: str | None) -> Version:
    """Read a version as Kafka has it.

    >>> _version("2.8-IV1"), _version("0.11.0"), _version(None)
    ((2, 8), (0, 11), (0, 0))
    """
    found = _VERSION.match(text or "")
    return (int(found[1]), int(found[2])) if found else UNKNOWN
