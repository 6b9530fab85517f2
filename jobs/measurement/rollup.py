"""Loads by hour, computed from samples: tables `partition_load`, `group_load` and `broker_load`.

Only hours that new or late samples touch are computed, and replaced as a whole, so a repeated rollup changes nothing.
Millions of samples are computed in portions, whose results wait in files until each table is written in one commit:
`partition_load` last, because its `stored_until` tells the next rollup which samples are new.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.pending_rows import PendingRows
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.session import default_parallelism, start_session
from jobs.core.errors import UnreadableError
from jobs.core.units import Part, parse_since
from jobs.measurement.due_hours import LOADS, SAMPLES, Portion, due_hours, hours_condition, portions, sampled
from jobs.repositories.loads import newest_window
from jobs.repositories.racks import racks_as_of
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.console import CommandResult, Summary
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from planner.load.broker_loads import BROKER_SUMS, add_up, broker_load, cpu_of_brokers, replica_loads
from planner.load.hourly_loads import group_load, hourly_loads, partition_load, sampled_names, topic_key
from planner.load.interval_parts import HOUR_MICROSECONDS
from schemas.broker_config_names import REPLICA_SELECTOR
from schemas.enums import IMPORTED
from schemas.rows import BrokerConfig, Snapshot
from schemas.text import pluralise

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

RACK_AWARE: Final = "RackAwareReplicaSelector"

MAX_CORE_ROWS: Final = 4_000_000
"""Samples that a portion has for each core; on the embedded engine they take up to a kilobyte each, groups included."""

TASKS_PER_CORE: Final = 16

POSITIONS: Final = "group_offsets"
"""The table of the samples of groups."""

GROUPS: Final = "group_load"
BROKER_LOADS: Final = "broker_load"
"""Tables that are written."""


class RolledUp(Summary, frozen=True, kw_only=True):
    """Counts of a rollup, fields as in the JSON; rows of `partition_load` and `group_load`."""

    hours: int
    first_hour: datetime | None = None
    last_hour: datetime | None = None
    partition_rows: int = 0
    group_rows: int = 0
    stored_until: datetime
    """When the newest sample was stored."""


@dataclass(frozen=True, slots=True)
class Rollup:
    """The computation of hours; `tables` are those of the newest snapshot."""

    tables: SnapshotTables
    stored_until: datetime
    are_nearest_read: bool
    """Whether brokers let consumers read from a replica in their rack."""
    tasks: int
    loads: PendingRows
    groups: PendingRows
    broker_sums: list[pa.Table] = field(default_factory=list)

    @property
    def warehouse(self) -> SparkWarehouse:
        return self.tables.spark_warehouse

    def compute(self, portion: Portion) -> None:
        """Compute the rows of a portion."""
        samples, positions = (self._samples(table, portion) for table in (SAMPLES, POSITIONS))
        names = sampled_names(samples, positions, self.tables["topics"])
        rows = hourly_loads(samples, positions, names, _numbered(portion.hours), self.tasks).localCheckpoint()
        cluster = self.warehouse.warehouse.cluster
        loads = partition_load(rows, cluster, _micros(self.stored_until))
        self.loads.add(loads)
        self.groups.add(group_load(rows, cluster))
        sums = replica_loads(
            loads, self.tables["partitions"], self._brokers(), ["hour"], are_nearest_read=self.are_nearest_read
        )
        self.broker_sums.append(sums.toArrow())

    def _samples(self, table: str, portion: Portion) -> DataFrame:
        rows = self.warehouse.read(table, None, *portion.filters)
        limits = (F.timestamp_micros(F.lit(_micros(value))) for _, _, value in portion.filters)
        samples = rows.where(F.col("sampled_at").between(*limits))
        if portion.buckets == 1:
            return samples
        return samples.where(F.pmod(topic_key(), F.lit(portion.buckets)) == portion.bucket)

    def _brokers(self) -> DataFrame:
        racks = racks_as_of(self.warehouse.warehouse, self.tables.snapshot).rack_of
        return self.warehouse.frame("brokers", [{"broker_id": broker, "rack": rack} for broker, rack in racks.items()])

    def store(self, hours: Sequence[datetime]) -> None:
        """Write all tables; a crash in between leaves older rows in the last one, and the hours are due again."""
        of_hours = hours_condition(hours)
        self.groups.replace(of_hours)
        sums = pa.concat_tables(self.broker_sums)
        metrics = self.warehouse.read("broker_metrics", None, ("sampled_at", ">=", hours[0]))
        whole = self.warehouse.arrow(sums, BROKER_SUMS).transform(add_up)
        rows = broker_load(whole, self.warehouse.warehouse.cluster, cpu_of_brokers(metrics))
        self.warehouse.warehouse.replace_by(BROKER_LOADS, self.warehouse.collect_arrow(BROKER_LOADS, rows), of_hours)
        self.loads.replace(f"method <> '{IMPORTED}' AND ({of_hours})")


def roll_up(settings: Settings, since: str | None = None) -> RolledUp:
    """Compute the hours that are due, and those since a time; raise UnreadableError if there are no samples."""
    start = None if since is None else parse_since("--since", since, datetime.now(UTC))
    warehouse = settings.warehouse
    snapshot = find_snapshot(warehouse)
    warehouse.ensure_tables()
    samples = sampled(warehouse)
    if not samples:
        raise UnreadableError(
            f"no samples of cluster {warehouse.cluster!r} in {warehouse.uri}",
            advice="`surveyor load sample --every 5m` takes them; two of them are an interval",
        )
    hours = due_hours(warehouse, samples, start)
    if not hours:
        return RolledUp(hours=0, stored_until=samples.newest)
    with progress("starting the engine"):
        session = start_session("surveyor load rollup", place=settings.place)
    tables = SnapshotTables(SparkWarehouse(session, warehouse), snapshot)
    cores = default_parallelism(session)
    parts = [*portions(hours, _counts(warehouse), MAX_CORE_ROWS * cores)]
    done: list[Portion] = []
    with TemporaryDirectory(prefix="surveyor-rollup-") as folder:
        loads, groups = (PendingRows(tables.spark_warehouse, table, Path(folder)) for table in (LOADS, GROUPS))
        rollup = Rollup(
            tables, samples.newest, _are_nearest_read(warehouse, snapshot), TASKS_PER_CORE * cores, loads, groups
        )
        with progress(f"computing {pluralise(len(hours), 'hour')}", lambda: Part(len(done), len(parts), "portions")):
            for part in parts:
                rollup.compute(part)
                done.append(part)
        with progress("writing loads"):
            rollup.store(hours)
    return RolledUp(
        hours=len(hours),
        first_hour=hours[0],
        last_hour=hours[-1],
        partition_rows=loads.count,
        group_rows=groups.count,
        stored_until=samples.newest,
    )


def _counts(warehouse: Warehouse) -> dict[datetime, float]:
    """Return the samples of each hour in the table that has more of them."""
    counts = sampled(warehouse).by_hour()
    for hour, count in sampled(warehouse, POSITIONS).by_hour().items():
        counts[hour] = max(count, counts.get(hour, 0.0))
    return counts


def _are_nearest_read(warehouse: Warehouse, snapshot: Snapshot) -> bool:
    """Return whether all brokers that reported a replica selector have the one by racks."""
    rows = rows_as_of(warehouse, snapshot, BrokerConfig, ("name", "=", REPLICA_SELECTOR))
    values = {row.value for row in rows if not row.assumed}
    return bool(values) and all(value is not None and value.endswith(RACK_AWARE) for value in values)


def _numbered(hours: Sequence[datetime]) -> range:
    """Return consecutive hours, counted from 1970."""
    return range(_micros(hours[0]) // HOUR_MICROSECONDS, _micros(hours[-1]) // HOUR_MICROSECONDS + 1)


def _micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def report_rollup(settings: Settings, since: str | None = None) -> CommandResult:
    """Compute the hours that are due, and return a summary."""
    rolled = roll_up(settings, since)
    steps = [
        suggestion(settings, "show the load of brokers", "show", "load"),
        suggestion(settings, "compute the windows that plans use", "load", "profile"),
    ]
    if newest_window(settings.warehouse) is None:
        steps = [
            suggestion(settings, "take more samples: load is known between two", "load", "sample", "--every", "5m")
        ]
    if not rolled.hours:
        line = f"no hour of {settings.cluster} is due: no sample is newer than {rolled.stored_until:%Y-%m-%d %H:%M} UTC"
        return CommandResult(rolled.json, line, steps=steps)
    rows = f"{pluralise(rolled.partition_rows, 'row')} of partitions, {rolled.group_rows} of groups"
    period = f"from {rolled.first_hour:%Y-%m-%d %H:00} to {rolled.last_hour:%Y-%m-%d %H:00} UTC"
    line = f"load of {settings.cluster}: {pluralise(rolled.hours, 'hour')} {period}, {rows}"
    return CommandResult(rolled.json, line, steps=steps)
