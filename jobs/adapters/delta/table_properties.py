"""The properties that Surveyor gives to its Delta tables."""

from typing import Final

from deltalake import DeltaTable

from jobs.adapters.delta.compatibility import VERSION_PROPERTY
from schemas.columns import SCHEMA_VERSION

_PROPERTIES: Final = {
    "delta.enableDeletionVectors": "false",  # readable by Spark and deltalake
    # files are skipped by the key columns, which come first; statistics of other columns double the time of a write
    "delta.dataSkippingNumIndexedCols": "4",
    # opening a table reads all commits since the last checkpoint, which deltalake writes every 100 commits by default
    "delta.checkpointInterval": "10",
    # only `surveyor vacuum` may make a snapshot unreadable, neither Delta's log cleaning nor a plain VACUUM
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.deletedFileRetentionDuration": "interval 365 days",
}

_STATISTICS: Final = "delta.dataSkippingStatsColumns"

_STATISTICS_OF: Final = {"partition_load": "hour,topic,partition,method,stored_until"}
"""Columns with statistics instead of the first ones: a rollup finds by them what is new."""

_APPEND_ONLY: Final = "delta.appendOnly"

_APPEND_ONLY_TABLES: Final = frozenset({"commits"})
"""The audit trail must stay complete, so Delta itself refuses to change or delete its rows."""


def properties_of(name: str) -> dict[str, str]:
    """Return the properties of a table: Delta's properties that Surveyor relies on, and the version of its schema."""
    append_only = {_APPEND_ONLY: "true"} if name in _APPEND_ONLY_TABLES else {}
    statistics = {_STATISTICS: _STATISTICS_OF[name]} if name in _STATISTICS_OF else {}
    return _PROPERTIES | append_only | statistics | {VERSION_PROPERTY: str(SCHEMA_VERSION)}


def changed_properties(name: str, table: DeltaTable) -> dict[str, str]:
    """Return the properties that differ from a new table's properties, with the values that they should have."""
    stored = {_APPEND_ONLY: "false"} | table.metadata().configuration
    expected = {_APPEND_ONLY: "false"} | properties_of(name)
    return {key: value for key, value in expected.items() if stored.get(key) != value}
