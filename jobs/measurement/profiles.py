"""Profiles: the load of partitions in the hours of the week that hurt most, which plans are made by.

A profile has versions, which plans name. The same hours give no new version.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.session import start_session
from jobs.core.errors import UnreadableError
from jobs.repositories.load_basis import DEFAULT_PROFILE, LoadRows, find_profile, has_sizes
from jobs.repositories.loads import HOUR, hourly_loads, recorded_hours
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import last_snapshot
from jobs.runtime.console import CommandResult, Summary, warn
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from planner.load.cpu_model import CpuModel, fitted_model, model_text
from planner.load.profiles import cpu_sums, measured_brokers, peak_windows, profiled_loads, with_cpu
from schemas.enums import EVERY_HOUR
from schemas.rows import BrokerLoad, BrokerMetric, PartitionLoad, ProfiledLoad
from schemas.tables import PARTITION_LOAD
from schemas.text import pluralise

WEEK: Final = timedelta(weeks=1)

_LOADED: Final = ("topic", "topic_id", "partition", "hour", "method", "bytes_in", "bytes_out", "size_bytes")

LOADED: Final = StructType([PARTITION_LOAD[name] for name in _LOADED])
"""The columns of PARTITION_LOAD that profiles and plans are made of."""

DIGITS: Final = 3
"""Decimals of rates that distinguish two versions."""

ALL_BROKERS: Final = -1
"""Stands for the broker of imported hours."""

CPU_DIGITS: Final = 6
"""Decimals of percents of all cores that distinguish two versions."""


class StoredProfile(Summary, frozen=True, kw_only=True):
    """A profile as stored; fields as in the JSON."""

    profile: str
    version: int
    is_new: bool
    windows: list[str]
    hours: int
    rows: int
    cpu: CpuModel | None
    """None if CPU of brokers is not known."""


def store_profile(settings: Settings, name: str, weeks: int, now: datetime) -> StoredProfile:
    """Compute a profile from the newest `weeks` of hours, and store it if it differs from its newest version.

    Raise UnreadableError if there are no loads.
    """
    warehouse = settings.warehouse
    hours = recorded_hours(warehouse, weeks * WEEK) if warehouse.exists() else {}
    if not hours and not (warehouse.exists() and warehouse.count(PartitionLoad.TABLE)):
        raise UnreadableError(
            f"no loads of cluster {warehouse.cluster!r} in {warehouse.uri}",
            advice="`surveyor load rollup` computes them from samples, `surveyor load import` reads them from a file",
        )
    brokers = hourly_loads(warehouse, [*hours]) or [_all_brokers(hour, traffic) for hour, traffic in hours.items()]
    windows = peak_windows(brokers) if hours else [EVERY_HOUR]
    with progress("starting the engine"):
        session = start_session("surveyor load profile", place=settings.place)
    tables = SparkWarehouse(session, warehouse)
    with progress("computing the profile"):
        cpu = _cpu_model(tables, hours, weeks)
        loads = stored_loads(tables, [*hours]).transform(profiled_loads, windows)
        loads = loads.transform(with_cpu, _partitions(tables), cpu).localCheckpoint()
        last = find_profile(warehouse, name)
        version = 0 if last is None else last.version
        is_new = last is None or _digest(loads) != _digest(_version(tables, name, version))
        count = loads.count()
        if is_new:
            version += 1
            identity = ProfiledLoad(
                profile=name, version=version, created_at=now, weeks=weeks, window="", topic="", partition=0
            )
            _store(tables, loads, identity)
    return StoredProfile(
        profile=name, version=version, is_new=is_new, windows=windows, hours=len(hours), rows=count, cpu=cpu
    )


def _all_brokers(hour: datetime, traffic: float) -> BrokerLoad:
    """Return the load of all brokers as that of one, in an hour of which the loads of brokers are not stored."""
    return BrokerLoad(
        hour=hour,
        broker_id=ALL_BROKERS,
        leaders=0,
        replicas=0,
        bytes_in=traffic,
        replication_in=0.0,
        bytes_out=0.0,
        replication_out=0.0,
    )


def _cpu_model(tables: SparkWarehouse, hours: Collection[datetime], weeks: int) -> CpuModel | None:
    """Fit CPU to the hours of brokers of the same weeks, also those before the first sample."""
    newest = max(hours, default=None)

    def within(table: str, column: str) -> DataFrame:
        if newest is None:
            return tables.read(table)
        since, until = newest - weeks * WEEK, newest + HOUR
        rows = tables.read(table, None, (column, ">=", since), (column, "<", until))
        return rows.where((F.col(column) >= since) & (F.col(column) < until))

    measured = measured_brokers(within(BrokerLoad.TABLE, "hour"), within(BrokerMetric.TABLE, "sampled_at"))
    [sums] = measured.transform(cpu_sums).toArrow().to_pylist()
    return fitted_model(sums)


def _partitions(tables: SparkWarehouse) -> DataFrame:
    """Return the partitions of the newest snapshot, none without a snapshot."""
    snapshot = last_snapshot(tables.warehouse)
    return tables.frame("partitions", []) if snapshot is None else SnapshotTables(tables, snapshot)["partitions"]


def stored_loads(tables: SparkWarehouse, hours: Collection[datetime]) -> DataFrame:
    """Return LOADED from the first to the last of these hours and, without an hour, of every hour."""
    stored = tables.warehouse.read(PartitionLoad.TABLE, ("hour", "is", None), columns=LOADED.names)
    of_every_hour = tables.arrow(stored, LOADED)
    if not hours:
        return of_every_hour
    first, last = min(hours), max(hours)
    rows = tables.read(PartitionLoad.TABLE, None, ("hour", ">=", first), ("hour", "<=", last))
    in_hours = rows.where(F.col("hour").between(first, last)).select(*LOADED.names)
    return in_hours.unionByName(of_every_hour) if stored.num_rows else in_hours


def _version(tables: SparkWarehouse, name: str, version: int) -> DataFrame:
    return tables.read(ProfiledLoad.TABLE).where((F.col("profile") == name) & (F.col("version") == version))


def _digest(loads: DataFrame) -> tuple[object, ...]:
    """Return a digest of the loads, whatever their order."""
    rates = [F.round(F.coalesce(name, F.lit(-1.0)), DIGITS) for name in ("bytes_in", "bytes_out", "growth", "cpu_r2")]
    rates += [F.round(F.coalesce(name, F.lit(-1.0)), CPU_DIGITS) for name in ("cpu_leader", "cpu_follower")]
    size = F.coalesce("size_bytes", F.lit(-1))
    key = F.xxhash64("topic", "partition", "window", size, *rates)
    (row,) = loads.select(key.alias("key")).agg(F.count("key"), F.sum(F.pmod("key", F.lit(1_000_003)))).collect()
    return tuple(row)


def _store(tables: SparkWarehouse, loads: DataFrame, identity: ProfiledLoad) -> None:
    """Replace the rows of a version, so that a repeated write has no effect."""
    rows = loads.withColumns(
        {
            "cluster": F.lit(tables.warehouse.cluster),
            "profile": F.lit(identity.profile),
            "version": F.lit(identity.version).cast("bigint"),
            "created_at": F.lit(identity.created_at),
            "weeks": F.lit(identity.weeks).cast("int"),
        }
    )
    quoted = identity.profile.replace("'", "''")
    tables.warehouse.ensure_tables()
    tables.replace(ProfiledLoad.TABLE, rows, f"profile = '{quoted}' AND version = {identity.version}")


def report_profile(settings: Settings, name: str, weeks: int) -> CommandResult:
    """Compute and store a profile, and return a summary."""
    stored = store_profile(settings, name, weeks, datetime.now(UTC))
    if 0 < stored.hours < WEEK // HOUR:
        warn(f"only {pluralise(stored.hours, 'hour')} of loads: other hours of the week may be higher")
    state = "new" if stored.is_new else "unchanged"
    zone = " UTC" if stored.hours else ""
    line = (
        f"profile {name} of {settings.cluster}: version {stored.version}, {state}; "
        f"windows {', '.join(stored.windows)}{zone}, {pluralise(stored.rows, 'row')}; CPU is {model_text(stored.cpu)}"
    )
    if has_sizes(settings.warehouse, LoadRows(profile=name, version=stored.version)):
        profile = () if name == DEFAULT_PROFILE else ("--profile", name)
        steps = [suggestion(settings, "balance the loads", "plan", "reassign", "--rebalance", "--by-load", *profile)]
    else:
        steps = [suggestion(settings, "record the sizes of logs, which plans by load need", "sizes")]
    return CommandResult(stored.json, line, steps=steps)
