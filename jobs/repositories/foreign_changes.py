"""Damaging changes of a warehouse's tables by other programs, with OPTIMIZE, VACUUM or ALTER TABLE.

Any program may read the tables, and most changes by other programs do no damage; docs/tables.md lists the others. On S3
 each commit by Spark may do damage. This module changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from deltalake.exceptions import DeltaError

from jobs.adapters.delta.compatibility import VERSION_PROPERTY, schema_version, write_incompatibility
from jobs.adapters.delta.table_properties import changed_properties
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import store_error_reason
from jobs.adapters.java.jars import S3
from jobs.core.errors import UnreadableError, first_line
from jobs.repositories.snapshots import STATE_TABLES, find_snapshot, is_whole, last_snapshot, oldest_snapshot_id
from schemas.columns import SCHEMA_VERSION, TABLE_COLUMNS

UPGRADE: Final = "`surveyor snapshot`"
"""The command that upgrades tables, sets their properties back and writes lost files again."""

_COMMITS_READ: Final = 20
"""Number of the newest commits of a table whose engine is read."""

_SPARK: Final = ("Apache-Spark", "Databricks-Runtime")
"""Beginnings of the names of engines whose commits on S3 are unconditional."""

_ONLY_READ: Final = (
    "such a commit can silently overwrite a commit of Surveyor; use Spark only to read this warehouse, and deltalake "
    "or `surveyor vacuum` to change it"
)

_KEEP: Final = (
    "these snapshots can no longer be shown; let no other program VACUUM a table with a retention below "
    "delta.deletedFileRetentionDuration, and remove old snapshots with `surveyor vacuum`"
)

_READ_AGAIN: Final = "run this command again: errors of a store may last for a moment only"

_STORE_ERRORS: Final = (UnreadableError, OSError, DeltaError)
"""Errors of reading a table; deltalake reports some of a store as OSError."""


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """A damaging change, and what undoes it."""

    description: str
    remedy: str
    is_fault: bool
    """Whether the table cannot be used before it is undone."""


def foreign_changes(warehouse: Warehouse) -> Iterator[ForeignChange]:
    """Yield the damaging changes of each existing table, then the losses of the newest and the oldest snapshot.

    A table or a snapshot that the store does not return is yielded, too.
    """
    is_readable = True
    for name in TABLE_COLUMNS:
        try:
            if warehouse.has(name):
                yield from _of_table(warehouse, name)
        except _STORE_ERRORS as error:
            is_readable = False
            yield _unreadable(f"table {name}", error)
    if is_readable:
        try:
            yield from _lost_files(warehouse)
        except _STORE_ERRORS as error:
            yield _unreadable("the last or the first snapshot", error)


def _unreadable(subject: str, error: Exception) -> ForeignChange:
    if isinstance(error, UnreadableError):
        return ForeignChange(error.reason, error.advice, is_fault=True)
    reason = store_error_reason(error) or first_line(error)
    return ForeignChange(f"{subject} cannot be read: {reason}", _READ_AGAIN, is_fault=True)


def _of_table(warehouse: Warehouse, name: str) -> Iterator[ForeignChange]:
    table = warehouse.opened(name)
    if mismatch := write_incompatibility(table):
        yield ForeignChange(f"table {name} {mismatch.fault}", mismatch.remedy, is_fault=True)
    elif int(schema_version(table)) < SCHEMA_VERSION:
        yield ForeignChange(f"table {name} has schema version {schema_version(table)}", UPGRADE, is_fault=False)
    stored = table.metadata().configuration
    changed = {key: value for key, value in changed_properties(name, table).items() if key != VERSION_PROPERTY}
    if changed:
        values = ", ".join(f"{key} {stored.get(key, 'unset')}, expected {value}" for key, value in changed.items())
        yield ForeignChange(f"table {name} has {values}", UPGRADE, is_fault=False)
    if urlsplit(warehouse.uri).scheme in S3:
        engines = {str(commit.get("engineInfo")) for commit in table.history(_COMMITS_READ)}
        if spark := sorted(engine for engine in engines if engine.startswith(_SPARK)):
            yield ForeignChange(f"table {name} on S3 was written by {', '.join(spark)}", _ONLY_READ, is_fault=False)


def _lost_files(warehouse: Warehouse) -> Iterator[ForeignChange]:
    """Yield the snapshots, of the newest and the oldest, that lack files, as after a VACUUM without retention.

    A VACUUM removes files by age. So if the oldest snapshot has all its files, the later ones do, too.
    """
    newest = last_snapshot(warehouse) if warehouse.has("snapshots") else None
    if newest is None:
        return
    oldest = oldest_snapshot_id(warehouse)
    for snapshot_id in sorted({newest.snapshot_id, oldest}, reverse=True):
        snapshot = find_snapshot(warehouse, snapshot_id)
        read = STATE_TABLES if snapshot_id == newest.snapshot_id else [*{*STATE_TABLES} - {"partitions"}]
        versions = {name: snapshot.versions[name] for name in sorted(read) if name in snapshot.versions}
        if lost := [name for name, version in versions.items() if not is_whole(warehouse, name, version)]:
            remedy = UPGRADE if snapshot_id == newest.snapshot_id else _KEEP
            yield ForeignChange(f"snapshot {snapshot_id} has lost files of {', '.join(lost)}", remedy, is_fault=False)
