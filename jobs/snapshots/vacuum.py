"""Retention: deletes old rows from the tables and unneeded files from the disk.

Rows are deleted first, rows of `snapshots` before all others. Then small files are compacted, and files that belong to
no version named by a remaining snapshot are removed. After a crash at any point, run it again.

Plans, changes, operations, rejections and commits are kept regardless of age, because rollbacks and audits need them,
and because they grow with the changes made and not with the number of snapshots. Plans that change nothing are deleted
after a day. Broker responses are kept; there is one for each broker, partition and API.

Samples of load are kept for two weeks, and the hours that are computed from them for a year, whatever the retention of
snapshots is. Of each profile the last versions are kept.

Versions of `partitions` are kept for some days only. Of earlier snapshots they are rebuilt from `partition_history`, so
that files and log grow with the changes in a cluster and not with the number of snapshots.

The tables are shared by a fleet. Only rows of this cluster are deleted, and versions named by snapshots of any cluster
are kept like this cluster's versions.
"""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.lock_files import VACUUM, locked
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.warehouse import TARGET_FILE_BYTES, Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.units import hour_of, parse_period
from jobs.repositories.loads import newest_sample
from jobs.repositories.plans.store import drop_plans, is_empty
from jobs.repositories.snapshots import STATE_TABLES, find_snapshot, rows_to_keep
from jobs.runtime.console import CommandResult, Result, table
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.columns import TABLE_COLUMNS
from schemas.rows import PlanRecord
from schemas.text import pluralise

GRACE_HOURS: Final = 1
"""Files replaced or written within this time are kept, because a running snapshot may be about to name them."""

EMPTY_PLANS_KEPT: Final = timedelta(days=1)
"""How long plans that change nothing are kept; a schedule creates one whenever no work is due."""

PARTITION_VERSIONS_KEPT: Final = timedelta(days=7)
"""How long the versions of `partitions` that snapshots name are kept; the newest snapshot's version stays."""

PER_SNAPSHOT_TABLES: Final = ("snapshots", "events", "imbalance", "whatif")
"""Tables whose rows belong to one snapshot and are deleted with it; `snapshots` comes first."""

SAMPLES_KEPT, HOURS_KEPT = timedelta(days=14), timedelta(days=365)

LOAD_KEPT: Final = {
    "partition_offsets": ("sampled_at", SAMPLES_KEPT),
    "group_offsets": ("sampled_at", SAMPLES_KEPT),
    "broker_metrics": ("sampled_at", SAMPLES_KEPT),
    "partition_load": ("hour", HOURS_KEPT),
    "broker_load": ("hour", HOURS_KEPT),
    "group_load": ("hour", HOURS_KEPT),
}
"""The column with the age of a row of these tables, and how long rows are kept; rows without an age stay."""

PROFILE_VERSIONS_KEPT: Final = 10
"""Versions of each profile that are kept; a plan names the version that it was made by."""

SHORTENED_TABLES: Final = (*PER_SNAPSHOT_TABLES, "partition_history", *LOAD_KEPT)
"""Tables that lose their oldest rows with each vacuum."""

SHORTENED_FILE_BYTES: Final = 1 << 17
"""Target size of compacted files of SHORTENED_TABLES.

The deletion of the oldest rows writes the other rows of their files again, so the time of a vacuum depends on the size
of a file, not of the table.
"""

FileSizes = dict[str, int]
"""Path within a table's folder to bytes."""


def oldest_kept(snapshots: pa.Table, now: datetime, keep: timedelta) -> int:
    """Return the id of the oldest snapshot taken within `keep` before `now`, else of the newest, 0 without any."""
    cutoff = now - keep
    ids, taken = snapshots["snapshot_id"], snapshots["taken_at"]
    recent = ids.filter(pc.greater_equal(taken, pa.scalar(cutoff, taken.type)))
    oldest: int = pc.min(recent).as_py() if len(recent) else pc.max(ids).as_py() or 0
    return oldest


def vacuum_warehouse(
    warehouse: Warehouse, now: datetime, keep: timedelta, *, dry_run: bool, grace_hours: int = GRACE_HOURS
) -> Result:
    """Delete what is older than `keep`; return counts in total and by table. A dry run only counts."""
    with ExitStack() as stack:
        if not dry_run:
            with progress("waiting for running snapshots or another vacuum"):
                stack.enter_context(locked(warehouse.uri, VACUUM))
        return _vacuum(warehouse, now, keep, grace_hours, dry_run=dry_run)


def _vacuum(warehouse: Warehouse, now: datetime, keep: timedelta, grace_hours: int, *, dry_run: bool) -> Result:
    oldest = oldest_kept(warehouse.read("snapshots", columns=["snapshot_id", "taken_at"]), now, keep)
    before = {name: TableFiles(warehouse.path(name)).data() for name in TABLE_COLUMNS}
    with progress("dropping rows"):
        rows = _drop_rows(warehouse, oldest, now, dry_run=dry_run)
    with progress("removing files"):
        kept = _kept_versions(warehouse, oldest, now)
        after = _remove_files(warehouse, kept, before, grace_hours, dry_run=dry_run)
    tables = [{"table": name, **_counts(rows.get(name, 0), before[name], after[name])} for name in TABLE_COLUMNS]
    totals = {name: sum(row[name] for row in tables) for name in tables[0] if name != "table"}
    return {"oldest_snapshot": oldest, "snapshots_dropped": rows["snapshots"], **totals, "tables": tables}


def _counts(rows_dropped: int, before: FileSizes, after: FileSizes) -> dict[str, Any]:
    return {
        "rows_dropped": rows_dropped,
        "files_before": len(before),
        "files_after": len(after),
        "bytes_before": sum(before.values()),
        "bytes_after": sum(after.values()),
    }


def _drop_rows(warehouse: Warehouse, oldest: int, now: datetime, *, dry_run: bool) -> dict[str, int]:
    """Delete rows that no snapshot from `oldest` on needs; return the counts by table."""
    dropped = {}
    for name in PER_SNAPSHOT_TABLES:
        dropped[name] = warehouse.read(name, ("snapshot_id", "<", oldest), columns=["snapshot_id"]).num_rows
        if dropped[name] and not dry_run:
            warehouse.delete(name, f"snapshot_id < {oldest}")
    empty = _empty_plans(warehouse, now)
    if empty and not dry_run:
        drop_plans(warehouse, empty)
    dropped["plans"] = len(empty)
    dropped["partition_history"] = _shorten_history(warehouse, oldest, dry_run=dry_run)
    hour = hour_of(now)  # of a part of an hour a rollup could compute less
    for name, (column, kept) in LOAD_KEPT.items():
        dropped[name] = _drop_where(warehouse, name, (column, "<", hour - kept), dry_run=dry_run)
    dropped["load_profiles"] = sum(
        _drop_where(warehouse, "load_profiles", ("profile", "=", profile), ("version", "<", oldest), dry_run=dry_run)
        for profile, oldest in _oldest_versions(warehouse).items()
    )
    return dropped


def _drop_where(warehouse: Warehouse, name: str, *filters: Filter, dry_run: bool) -> int:
    """Delete the rows of a table that pass all filters; return their number. There may be hundreds of millions."""
    count = warehouse.count_where(name, *filters)
    if count and not dry_run:
        warehouse.delete_where(name, *filters)
    return count


def _oldest_versions(warehouse: Warehouse) -> dict[str, int]:
    """Return the oldest version of each profile that is kept."""
    versions = warehouse.read("load_profiles", columns=["profile", "version"]).group_by(["profile", "version"])
    kept: dict[str, list[int]] = {}
    for profile, version in sorted(values_of(versions.aggregate([]), "profile", "version"), reverse=True):
        kept.setdefault(profile, []).append(version)
    return {profile: of_profile[:PROFILE_VERSIONS_KEPT][-1] for profile, of_profile in kept.items()}


def _empty_plans(warehouse: Warehouse, now: datetime) -> list[str]:
    """Return ids of plans that change nothing, named or not, and that are older than EMPTY_PLANS_KEPT."""
    rows = warehouse.typed_rows(PlanRecord, ("created_at", "<", now - EMPTY_PLANS_KEPT), ("changes", "=", 0))
    return [row.plan_id for row in rows if is_empty(warehouse, row)]


def _shorten_history(warehouse: Warehouse, oldest: int, *, dry_run: bool) -> int:
    """Delete rows up to `oldest`, except the newest row and the last state of each partition that still exists."""
    until = ("snapshot_id", "<=", oldest)
    key = ["topic", "partition", "snapshot_id", "partition_state", "vanished"]
    rows = warehouse.read("partition_history", until, columns=key)
    superfluous: int = rows.num_rows - rows_to_keep(rows).num_rows
    if superfluous and not dry_run:
        warehouse.transform_rows("partition_history", until, rows_to_keep)
    return superfluous


def _kept_versions(warehouse: Warehouse, oldest: int, now: datetime) -> dict[str, set[int]]:
    """Return the versions that stay readable: of tables with the state of a cluster, those that snapshots name."""
    named = warehouse.referenced_versions(oldest)
    is_recent = pc.greater_equal(named["taken_at"], pa.scalar(now - PARTITION_VERSIONS_KEPT, named["taken_at"].type))
    is_kept = pc.or_(named["is_newest"], is_recent)
    named = named.filter(pc.or_(is_kept, pc.not_equal(named["table"], "partitions")))
    kept: dict[str, set[int]] = {name: set() for name in TABLE_COLUMNS}
    for table_name, version in values_of(named, "table", "version"):
        if table_name in STATE_TABLES:
            kept[table_name].add(version)
    return kept


def _remove_files(
    warehouse: Warehouse,
    kept: Mapping[str, Collection[int]],
    before: dict[str, FileSizes],
    grace_hours: int,
    *,
    dry_run: bool,
) -> dict[str, FileSizes]:
    """Compact small files and remove unneeded ones; return the remaining files of each table."""
    after = {}
    for name in TABLE_COLUMNS:
        files = TableFiles(warehouse.path(name))
        if dry_run:
            removable = set(files.unneeded(kept[name], grace_hours))
            after[name] = {path: size for path, size in before[name].items() if path not in removable}
            continue
        warehouse.compact(name, SHORTENED_FILE_BYTES if name in SHORTENED_TABLES else TARGET_FILE_BYTES)
        files.remove_unneeded(kept[name], grace_hours)
        files.clean_log(kept[name])
        after[name] = files.data()
    return after


def drop_old(settings: Settings, keep: str | None, *, dry_run: bool) -> CommandResult:
    """Delete what is older than `keep`, by default the configured retention, and return a summary."""
    kept = settings.conf.retention if keep is None else keep
    age = parse_period("--keep", kept)
    if not settings.warehouse.exists() or newest_sample(settings.warehouse) is None:
        find_snapshot(settings.warehouse)
    settings.warehouse.ensure_tables()
    result = vacuum_warehouse(settings.warehouse, datetime.now(UTC), age, dry_run=dry_run)
    return CommandResult({"keep": kept, "dry_run": dry_run, **result}, *_text_output(settings, result, dry_run=dry_run))


def _text_output(settings: Settings, result: Result, *, dry_run: bool) -> list[Any]:
    rows = [row for row in result["tables"] if row["files_before"]]
    would = "would be " if dry_run else ""
    oldest = f"the oldest is then {result['oldest_snapshot']}; " if result["oldest_snapshot"] else ""
    summary = (
        f"{pluralise(result['snapshots_dropped'], 'snapshot')} {would}deleted; {oldest}"
        f"{result['bytes_before']:,} bytes before, {result['bytes_after']:,} after"
    )
    waiting = f"files replaced less than {GRACE_HOURS} h ago are kept until a later vacuum"
    return [table(f"vacuum of {settings.cluster}", list(rows[0]), rows), summary, waiting]
