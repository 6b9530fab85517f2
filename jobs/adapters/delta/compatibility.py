"""Whether this Surveyor can read and write a Delta table; a change by another program is named and refused.

Each table stores the version of its schema as the property `surveyor.schemaVersion`. A table without it was written by
release 0.1.0, whose version is 1. The next command that writes all tables upgrades tables of an older version in place
(`Warehouse.ensure_tables`), by adding nullable columns. Tables of a later version are refused, because columns unknown
here may have changed the meaning of the others.

Spark and Arrow read the files that deltalake names unchanged. They would misread a table in which Delta renames
columns or marks rows of a file as deleted, so such tables are refused, too.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version as installed_version
from typing import Any, Final

from deltalake import DeltaTable

from jobs.core.option_sources import WAREHOUSE, option_name
from schemas.columns import KEY_COLUMNS, SCHEMA_VERSION, TABLE_COLUMNS

VERSION_PROPERTY: Final = "surveyor.schemaVersion"

FIRST_VERSION: Final = "1"
"""The version of tables that store none: the tables of release 0.1.0."""

PARTITION_COLUMN: Final = "cluster"

_READABLE_FEATURES: Final = frozenset({"timestampNtz", "variantType", "variantType-preview"})
"""Delta's features that deltalake can read."""

_WRITABLE_FEATURES: Final = _READABLE_FEATURES | {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns")
}
"""Delta's features that deltalake can write."""

_MAPPING: Final = "delta.columnMapping.mode"

_TURN_OFF: Final = "turn it off with the program that turned it on (ALTER TABLE ... DROP FEATURE in Spark SQL)"

_RESTORE: Final = "restore the table to its version before that change (RESTORE TABLE in Spark SQL), or take a backup"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A feature of a table that this Surveyor cannot handle, and the remedy."""

    fault: str
    remedy: str


def schema_version(table: DeltaTable) -> str:
    """Return the version of a table's schema, which is a number unless another program changed it."""
    return table.metadata().configuration.get(VERSION_PROPERTY, FIRST_VERSION)


def incompatibility(name: str, table: DeltaTable) -> Incompatibility | None:
    """Return why this Surveyor can neither read nor write a table, None if it can read it."""
    if fault := _unknown_version(table):
        return Incompatibility(fault, f"install a Surveyor that knows it, or name another in {option_name(WAREHOUSE)}")
    if feature := _unreadable_feature(table):
        return Incompatibility(f"needs Delta's feature {feature}, which another program turned on", _TURN_OFF)
    if fault := _other_schema(name, table):
        return Incompatibility(fault, _RESTORE)
    return None


def write_incompatibility(table: DeltaTable) -> Incompatibility | None:
    """Return why this Surveyor cannot write a table that it can read, None if it can."""
    features = {*(table.protocol().writer_features or ())} - _WRITABLE_FEATURES
    if not features:
        return None
    fault = f"needs Delta's feature {', '.join(sorted(features))} of its writers, which another program turned on"
    return Incompatibility(fault, _TURN_OFF)


def _unknown_version(table: DeltaTable) -> str | None:
    version = schema_version(table)
    if version.isdecimal() and int(FIRST_VERSION) <= int(version) <= SCHEMA_VERSION:
        return None
    supported = FIRST_VERSION if int(FIRST_VERSION) == SCHEMA_VERSION else f"{FIRST_VERSION} to {SCHEMA_VERSION}"
    return f"has schema version {version}, and Surveyor {installed_version('kafka-surveyor')} knows {supported}"


def _unreadable_feature(table: DeltaTable) -> str | None:
    """Return a feature by which the rows or columns of a table are not what is in its files."""
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        return "columnMapping"
    return min({*(table.protocol().reader_features or ())} - _READABLE_FEATURES, default=None)


def _other_schema(name: str, table: DeltaTable) -> str | None:
    """Return what differs from the schema of the table's version; additional columns do not."""
    metadata = table.metadata()
    if metadata.partition_columns != [PARTITION_COLUMN]:
        return f"is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}, expected {PARTITION_COLUMN}"
    stored, expected = _types(table.schema().to_json()), _types_of(name)
    for column in expected:
        if column in stored and stored[column] != expected[column]:
            return f"has column {column} of type {_shown(stored[column])}, expected {_shown(expected[column])}"
    is_current = metadata.configuration.get(VERSION_PROPERTY) == str(SCHEMA_VERSION)
    required = expected if is_current else KEY_COLUMNS[name]
    missing = [column for column in required if column not in stored]
    return f"has lost column {', '.join(missing)}" if missing else None


def _shown(column_type: Any) -> str:  # noqa: ANN401 - JSON
    """Format a type as SQL does.

    >>> _shown({"type": "array", "elementType": "integer"}), _shown("long")
    ('array<integer>', 'long')
    """
    if not isinstance(column_type, dict):
        return str(column_type)
    parts = [column_type[key] for key in ("elementType", "keyType", "valueType") if key in column_type]
    fields = [f"{field['name']}:{_shown(field['type'])}" for field in column_type.get("fields", ())]
    return f"{column_type['type']}<{','.join([*map(_shown, parts), *fields])}>"


@cache
def _types_of(name: str) -> dict[str, Any]:
    return _types(json.dumps(TABLE_COLUMNS[name].json))


def _types(schema: str) -> dict[str, Any]:
    """Return the types of a schema's columns, without what may differ: comments, and whether a value may be null."""
    return {field["name"]: _plain(field["type"]) for field in json.loads(schema)["fields"]}


def _plain(part: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(part, dict):
        kept = part.keys() - {"metadata", "nullable", "containsNull", "valueContainsNull"}
        return {key: _plain(part[key]) for key in sorted(kept)}
    return [_plain(item) for item in part] if isinstance(part, list) else part
