"""Profiles: the load of partitions in the hours of the week that hurt most, which plans are made by.

A profile has versions, which plans name. The same hours give no new version.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.spark.session import start_session
from jobs.core.errors import UnreadableError
from jobs.repositories.loads import HOUR, hourly_loads, recorded_hours
from jobs.repositories.plan_loads import find_profile
from jobs.runtime.console import CommandResult, Summary, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from planner.load.profiles import peak_windows, profiled_loads
from schemas.enums import EVERY_HOUR
from schemas.rows import PartitionLoad, ProfiledLoad
from schemas.text import pluralise

WEEK: Final = timedelta(weeks=1)

DIGITS: Final = 3
"""Decimals of rates that distinguish two versions."""


class StoredProfile(Summary, frozen=True, kw_only=True):
    """A profile as stored; fields as in the JSON."""

    profile: str
    version: int
    is_new: bool
    windows: list[str]
    hours: int
    rows: int
    cpu: None = None
    """CPU is not modelled."""


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
    windows = peak_windows(hourly_loads(warehouse, [*hours])) if hours else [EVERY_HOUR]
    with progress("starting the engine"):
        session = start_session("surveyor load profile", place=settings.place)
    tables = SparkWarehouse(session, warehouse)
    with progress("computing the profile"):
        loads = _loads(tables, [*hours], windows).localCheckpoint()
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
    return StoredProfile(profile=name, version=version, is_new=is_new, windows=windows, hours=len(hours), rows=count)


def _loads(tables: SparkWarehouse, hours: list[datetime], windows: list[str]) -> DataFrame:
    if not hours:
        always = tables.read(PartitionLoad.TABLE).where(F.col("hour").isNull())
        columns = ("topic", "topic_id", "partition", "bytes_in", "bytes_out", "size_bytes")
        return always.select(*columns, F.lit(None).cast("double").alias("growth"), F.lit(EVERY_HOUR).alias("window"))
    first, last = min(hours), max(hours)
    rows = tables.read(PartitionLoad.TABLE, None, ("hour", ">=", first), ("hour", "<=", last))
    return rows.where(F.col("hour").between(first, last)).transform(profiled_loads, windows)


def _version(tables: SparkWarehouse, name: str, version: int) -> DataFrame:
    return tables.read(ProfiledLoad.TABLE).where((F.col("profile") == name) & (F.col("version") == version))


def _digest(loads: DataFrame) -> tuple[object, ...]:
    """Return a digest of the loads, whatever their order."""
    rates = [F.round(F.coalesce(name, F.lit(-1.0)), DIGITS) for name in ("bytes_in", "bytes_out", "growth")]
    size = F.coalesce("size_bytes", F.lit(-1))
    key = F.xxhash64("topic", "partition", "window", size, *rates)
    (row,) = loads.select(key.alias("key")).agg(F.count("key"), F.sum(F.pmod("key", F.lit(1_000_003)))).collect()
    return tuple(row)


def _store(tables: SparkWarehouse, loads: DataFrame, identity: ProfiledLoad) -> None:
    """Replace the rows of a version, so that a repeated write has no effect."""
    none = F.lit(None).cast("double")
    rows = loads.withColumns(
        {
            "cluster": F.lit(tables.warehouse.cluster),
            "profile": F.lit(identity.profile),
            "version": F.lit(identity.version).cast("bigint"),
            "created_at": F.lit(identity.created_at),
            "weeks": F.lit(identity.weeks).cast("int"),
            "cpu_leader": none,
            "cpu_follower": none,
        }
    )
    quoted = identity.profile.replace("'", "''")
    tables.warehouse.ensure_tables()
    tables.replace(ProfiledLoad.TABLE, rows, f"profile = '{quoted}' AND version = {identity.version}")


def report_profile(settings: Settings, name: str, weeks: int) -> CommandResult:
    """Compute and store a profile, and return a summary."""
    stored = store_profile(settings, name, weeks, datetime.now(UTC))
    if 0 < stored.hours < WEEK // HOUR:
        log(
            f"surveyor: only {pluralise(stored.hours, 'hour')} of loads: other hours of the week may be higher",
            logging.WARNING,
        )
    state = "new" if stored.is_new else "unchanged"
    line = (
        f"profile {name} of {settings.cluster}: version {stored.version}, {state}; "
        f"windows {', '.join(stored.windows)}, {pluralise(stored.rows, 'row')}; CPU is not modelled"
    )
    steps = [suggestion(settings, "balance the loads", "plan", "reassign", "--rebalance", "--by-load")]
    return CommandResult(stored.json, line, steps=steps)
