"""The inter-broker protocol of a snapshot's brokers, and what follows from it for new topics and their configs.

Corresponds to `inter.broker.protocol.version` (`MetadataVersion`): no broker is older than its protocol.
"""

import re
from typing import Any, Final

from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import rows_as_of, table_as_of
from schemas.broker_config_names import PROTOCOL_VERSION
from schemas.rows import BrokerConfig
from schemas.topic_configs import TOPIC_CONFIGS

Version = tuple[int, int, int]
"""Major and minor version, and the number of the internal version (IV)."""

UNKNOWN_PROTOCOL: Final[Version] = (0, 0, 0)

TOPIC_IDS: Final[Version] = (2, 8, 1)
"""From this version on, brokers receive topic ids; an older controller removes ids from znodes that it writes."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:-IV(\d+))?")
_LAST_IV: Final = 99


def protocols(tables: SnapshotTables) -> list[Version]:
    """Return the inter.broker.protocol.version of each broker, UNKNOWN_PROTOCOL if the broker did not report it."""
    configs = rows_as_of(tables.warehouse, tables.snapshot, BrokerConfig, ("name", "=", PROTOCOL_VERSION))
    return [_version(config.value) for config in configs]


def have_topic_ids(tables: SnapshotTables) -> bool:
    """Return whether new topics get an id: only if all brokers use ids, as far as that is known.

    If some brokers did not report their version, the presence of topic ids shows that the controller assigns them. A
    topic without an id is still complete: a controller that assigns ids adds one when it takes over.
    """
    versions = protocols(tables)
    if any(UNKNOWN_PROTOCOL < version < TOPIC_IDS for version in versions):
        return False
    if versions and UNKNOWN_PROTOCOL not in versions:
        return True
    topics = table_as_of(tables.warehouse, tables.snapshot, "topics", columns=["topic_id"])
    return bool(topics["topic_id"].null_count < topics.num_rows)


def config_notes(tables: SnapshotTables, config: dict[str, str]) -> dict[str, Any]:
    """Return remarks for an operation: config names that were not checked, and names that older brokers ignore."""
    unknown = sorted(config.keys() - TOPIC_CONFIGS.keys())
    spoken = min(protocols(tables), default=UNKNOWN_PROTOCOL) if config else UNKNOWN_PROTOCOL
    since = {name: TOPIC_CONFIGS[name].since for name in sorted(config.keys() & TOPIC_CONFIGS.keys())}
    later = {name: version for name, version in since.items() if version and _version(version)[:2] > spoken[:2]}
    return ({"unknown": unknown} if unknown else {}) | ({"ignored_before": later} if later else {})


def _version(text: str | None) -> Version:
    """Parse a version as Kafka writes it.

    >>> _version("2.8-IV1"), _version("2.6"), _version(None)
    ((2, 8, 1), (2, 6, 99), (0, 0, 0))
    """
    match = _VERSION.match(text or "")
    return (int(match[1]), int(match[2]), int(match[3] or _LAST_IV)) if match else UNKNOWN_PROTOCOL
