"""What the brokers of a snapshot speak with each other, and what follows from it for new topics and their configs.

Corresponds to `inter.broker.protocol.version` (`MetadataVersion`): no broker is older than what it speaks.
"""

import re
from typing import Any, Final

from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import as_of, table_as_of
from planner.leadership.unclean_config import IBP
from schemas.topic_configs import TOPIC_CONFIGS

Version = tuple[int, int, int]
"""Major, minor, and which of its internal versions."""

UNKNOWN_VERSION: Final[Version] = (0, 0, 0)

TOPIC_IDS: Final[Version] = (2, 8, 1)
"""From here on brokers are told topic ids; a controller before it takes them out of znodes that it writes."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:-IV(\d+))?")
_LAST_IV: Final = 99


def protocols(at: SnapshotTables) -> list[Version]:
    """The inter.broker.protocol.version of each broker, UNKNOWN where it did not say."""
    rows = as_of(at.tables.warehouse, at.snapshot, "broker_configs", ("name", "=", IBP))
    return [_version(row["value"]) for row in rows]


def have_topic_ids(at: SnapshotTables) -> bool:
    """Tell whether new topics get an id: where all brokers speak of them, as far as that is known.

    Where some did not say, topics that have one show that the controller gives them. Without an id a topic is whole
    all the same: a controller that gives ids adds it when it takes over.
    """
    versions = protocols(at)
    if any(UNKNOWN_VERSION < version < TOPIC_IDS for version in versions):
        return False
    if versions and UNKNOWN_VERSION not in versions:
        return True
    topics = table_as_of(at.tables.warehouse, at.snapshot, "topics", columns=["topic_id"])
    return bool(topics["topic_id"].null_count < topics.num_rows)


def config_notes(at: SnapshotTables, config: dict[str, str]) -> dict[str, Any]:
    """What an operation has to say of its configs: names taken unchecked, and those that older brokers ignore."""
    unknown = sorted(config.keys() - TOPIC_CONFIGS.keys())
    spoken = min(protocols(at), default=UNKNOWN_VERSION) if config else UNKNOWN_VERSION
    since = {name: TOPIC_CONFIGS[name].since for name in sorted(config.keys() & TOPIC_CONFIGS.keys())}
    later = {name: version for name, version in since.items() if version and _version(version)[:2] > spoken[:2]}
    return ({"unknown": unknown} if unknown else {}) | ({"ignored_before": later} if later else {})


def _version(text: str | None) -> Version:
    """Read a version as Kafka has it.

    >>> _version("2.8-IV1"), _version("2.6"), _version(None)
    ((2, 8, 1), (2, 6, 99), (0, 0, 0))
    """
    match = _VERSION.match(text or "")
    return (int(match[1]), int(match[2]), int(match[3] or _LAST_IV)) if match else UNKNOWN_VERSION
