"""The load of brokers in the newest hour, and what a person must know of it, for status, metrics and pages."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.measurement.disks import read_disks
from jobs.repositories.capacities import broker_capacities
from jobs.repositories.drained_brokers import able_brokers, drained_brokers
from jobs.repositories.load_basis import has_sizes, plan_loads
from jobs.repositories.loads import (
    DAY,
    HOUR,
    LoadWindow,
    broker_loads,
    hourly_loads,
    newest_sample,
    newest_window,
    partitions_of,
    read_assignment,
    with_assignment,
)
from jobs.repositories.snapshots import live_brokers_as_of
from jobs.runtime.settings import Settings
from planner.load.disk_forecast import Disk, FillingDisk, filling_disks, growth_of
from planner.load.findings import (
    FULL_SOON_SECONDS,
    AboveLimit,
    HotPartition,
    Unevenness,
    above_limits,
    hidden_by_counts,
    hottest_partitions,
    is_hot,
    least_hot_rates,
)
from planner.load.resources import LIMIT_SHARE, REPLICAS, Capacities, Capacity
from schemas.rows import BrokerLoad, PartitionLoad, Row, Snapshot
from schemas.text import pluralise

_GROWTH_HOURS: Final = (*(number * 6 * HOUR for number in range(4)), *(number * DAY for number in range(1, 8)))
"""Ages of the sizes that the growth of a disk is computed from, before the newest hour: few of the week's hours."""

SUMMED: Final = ("bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks", "size_bytes")
"""Columns of BrokerLoad that are added up over brokers."""

_MAX_FOLLOWERS: Final = 9
"""Followers of a partition at most, for the partitions that are read as they may be hot."""

_PARTITION_COLUMNS: Final = ("topic", "partition", "leader", "bytes_in", "bytes_out", "size_bytes", "method", "flags")


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How new the loads and the samples are."""

    window: LoadWindow | None
    """The newest hour with loads; None without loads."""
    sampled_at: datetime | None

    @property
    def hour(self) -> datetime | None:
        return None if self.window is None else self.window.newest

    @property
    def are_imported(self) -> bool:
        """Whether no sample is as new as the newest loads."""
        of_every_hour = self.window is not None and self.hour is None
        return of_every_hour or self.sampled_at is None or (self.hour is not None and self.sampled_at < self.hour)

    def age(self, now: datetime) -> float | None:
        """Return the seconds since the end of the newest hour, None for loads of every hour."""
        return None if self.hour is None else max((now - self.hour - HOUR).total_seconds(), 0.0)

    def is_recent(self, now: datetime) -> bool:
        """Return whether there are loads that still describe the cluster."""
        return self.window is not None and (self.age(now) or 0.0) <= DAY / timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """The loads of brokers in a window, and their capacities."""

    window: LoadWindow
    loads: list[BrokerLoad]
    capacities: Capacities
    growth: Mapping[int, float]
    """Bytes per second by which the logs of each broker grow; without brokers of unknown growth."""
    disks: list[Disk]
    notes: list[str]
    """Statements about capacities that do not count."""
    sharing: frozenset[int]
    """The brokers that share the load; see `able_brokers`."""
    without_load: int = 0
    """Partitions of the snapshot without a load in the newest hour."""
    replicas: Mapping[int, int]
    """The replicas of each broker in the snapshot; only read if some broker has a limit of them."""

    @property
    def shared(self) -> list[BrokerLoad]:
        """The loads that are compared with their mean."""
        return [load for load in self.loads if load.broker_id in self.sharing]

    @property
    def by_broker(self) -> dict[int, BrokerLoad]:
        return {load.broker_id: load for load in self.loads}

    @property
    def filling_by_broker(self) -> dict[int, list[Row]]:
        """The disks of each broker that grow, as in the JSON, the one that is full first.

        `full_at` is None for loads of every hour, of which only disks that are full are known.
        """
        found = defaultdict[int, list[Row]](list)
        for disk in filling_disks(self.disks):
            row = _in_json(disk, self.window.newest)
            found[row.pop("broker_id")].append(row)
        return found


def _in_json(disk: FillingDisk, hour: datetime | None) -> Row:
    row: Row = msgspec.to_builtins(disk)
    seconds = timedelta(seconds=row.pop("seconds"))
    return row | {"full_at": None if hour is None else (hour + HOUR + seconds).replace(microsecond=0)}


def read_load_times(warehouse: Warehouse, until: datetime | None = None) -> LoadTimes:
    """Return the newest hour with loads, of those that start before `until`, and the time of the newest sample."""
    return LoadTimes(newest_window(warehouse, until), newest_sample(warehouse))


def read_load_summary(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadSummary:
    """Read the loads of a window; a broker that is not live uses no capacity."""
    loads = broker_loads(settings.warehouse, window, snapshot)
    live = sharing = {load.broker_id for load in loads}
    if snapshot is not None:
        registered = live_brokers_as_of(settings.warehouse, snapshot)
        live = {row.broker_id for row in registered}
        loads, sharing = _with_idle(loads, live), able_brokers(registered, drained_brokers(settings.warehouse))
    capacities = broker_capacities(settings, live)
    growth = broker_growth(settings.warehouse, window)
    return LoadSummary(
        window=window,
        loads=loads,
        capacities=summed_capacities(capacities.rows),
        notes=capacities.notes,
        growth=growth,
        disks=read_disks(
            settings.warehouse, window, [load for load in loads if load.broker_id in live], capacities.rows, growth
        ),
        sharing=frozenset(sharing),
        without_load=_without_load(settings.warehouse, window, snapshot),
        replicas=_replicas(settings.warehouse, snapshot, capacities.rows),
    )


def _replicas(warehouse: Warehouse, snapshot: Snapshot | None, capacities: pa.Table) -> dict[int, int]:
    if REPLICAS not in capacities["resource"].unique().to_pylist():
        return {}
    counts = pc.value_counts(pc.list_flatten(read_assignment(warehouse, snapshot)["replicas"]))
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def _with_idle(loads: Sequence[BrokerLoad], live: Collection[int]) -> list[BrokerLoad]:
    """Add live brokers without a row, which have nothing of what is known of others."""
    known = {name for load in loads for name in SUMMED if getattr(load, name) is not None}
    nothing: dict[str, Any] = dict.fromkeys(known, 0)
    idle = {*live}.difference(load.broker_id for load in loads) if loads else ()
    added = [BrokerLoad(broker_id=broker, leaders=0, replicas=0, **nothing) for broker in idle]
    return sorted([*loads, *added], key=lambda load: load.broker_id)


def _without_load(warehouse: Warehouse, window: LoadWindow, snapshot: Snapshot | None) -> int:
    """Count the partitions of a snapshot without a row in the newest hour of a window."""
    if snapshot is None or not snapshot.partitions:
        return 0
    newest = LoadWindow(window.hours[-1:])
    return partitions_without_load(snapshot, warehouse.count_where(PartitionLoad.TABLE, *newest.filters))


def partitions_without_load(snapshot: Snapshot | None, known: int) -> int:
    """Return how many partitions of a snapshot have no load if `known` partitions have one."""
    return 0 if snapshot is None else max(0, (snapshot.partitions or 0) - known)


def read_leaders_partitions(warehouse: Warehouse, window: LoadWindow, snapshot: Snapshot | None) -> pa.Table:
    """Read the partitions of the newest hour of a window, with the leaders and followers that a snapshot has."""
    partitions = partitions_of(warehouse, window.newest, _PARTITION_COLUMNS)
    return with_assignment(partitions, read_assignment(warehouse, snapshot))


def read_hot_partitions(warehouse: Warehouse, summary: LoadSummary, snapshot: Snapshot | None) -> list[HotPartition]:
    """Return the hottest partition of each broker, the largest part of its load first.

    Only partitions with so much traffic that they may be hot are read.
    """
    least = zip(("bytes_in", "bytes_out"), least_hot_rates(summary.loads, _MAX_FOLLOWERS), strict=True)
    found = [
        partitions_of(warehouse, summary.window.newest, _PARTITION_COLUMNS, (column, ">=", rate))
        for column, rate in least
        if isfinite(rate)
    ]
    if not found:
        return []
    rows = pa.concat_tables(found)
    assignment = read_assignment(warehouse, snapshot, pc.unique(rows["topic"]).to_pylist())
    return hottest_partitions(with_assignment(rows, assignment), summary.loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFindings:
    """What a person must know of the load; nothing but the times if the loads are old."""

    times: LoadTimes
    above_limits: list[AboveLimit] = field(default_factory=list)
    full_soon: list[FillingDisk] = field(default_factory=list)
    hot_partitions: list[HotPartition] = field(default_factory=list)
    hidden_by_counts: Unevenness | None = None
    without_load: int = 0
    has_sizes: bool = True
    """Whether a plan by load knows what it copies; only read if one may be advised."""

    @property
    def needs_plan(self) -> bool:
        """Whether a plan by load may help."""
        return bool(self.above_limits or self.full_soon or self.hidden_by_counts)

    @property
    def json(self) -> Row:
        found: Row = msgspec.to_builtins(
            {
                "above_limits": self.above_limits,
                "hot_partitions": self.hot_partitions,
                "hidden_by_counts": self.hidden_by_counts,
                "without_load": self.without_load,
            }
        )
        full_soon = [_in_json(disk, self.times.hour) for disk in self.full_soon]
        return {"hour": self.times.hour, "sampled_at": self.times.sampled_at, "full_soon": full_soon, **found}


def read_load_findings(settings: Settings, snapshot: Snapshot | None, now: datetime) -> LoadFindings:
    """Read what a person must know of the load at `now`; followers of partitions are those of the snapshot."""
    times = read_load_times(settings.warehouse)
    if times.window is None or not times.is_recent(now):
        return LoadFindings(times=times, above_limits=_above_replicas(settings, snapshot))
    summary = read_load_summary(settings, times.window, snapshot)
    found = findings_of(times, summary, read_hot_partitions(settings.warehouse, summary, snapshot))
    is_known = not found.needs_plan or has_sizes(settings.warehouse, plan_loads(settings.warehouse))
    return replace(found, has_sizes=is_known)


def _above_replicas(settings: Settings, snapshot: Snapshot | None) -> list[AboveLimit]:
    """Return the brokers with more replicas than they may have, which is known without loads."""
    live = [] if snapshot is None else [row.broker_id for row in live_brokers_as_of(settings.warehouse, snapshot)]
    rows = broker_capacities(settings, live).rows
    return above_limits((), summed_capacities(rows), _replicas(settings.warehouse, snapshot, rows))


def findings_of(times: LoadTimes, summary: LoadSummary, hottest: list[HotPartition]) -> LoadFindings:
    """Return what a person must know of a load; `hottest` are the hottest partitions of brokers, or only hot ones."""
    return LoadFindings(
        times=times,
        above_limits=above_limits(summary.loads, summary.capacities, summary.replicas),
        full_soon=[disk for disk in filling_disks(summary.disks) if disk.seconds <= FULL_SOON_SECONDS],
        hot_partitions=[
            partition for partition in hottest if is_hot(partition, summary.by_broker[partition.broker_id])
        ],
        hidden_by_counts=hidden_by_counts(summary.shared, summary.capacities),
        without_load=summary.without_load,
    )


def without_load_text(partitions: int) -> str:
    """Say that partitions have no load.

    >>> without_load_text(2)
    '2 partitions have no load in the hours shown and count as none'
    """
    count = "no load in the hours shown and count"
    return pluralise(partitions, "partition", f"has {count}s as none", f"have {count} as none")


def read_capacities(settings: Settings, brokers: Collection[int]) -> Capacities:
    """Return the known capacities by broker and resource."""
    return summed_capacities(broker_capacities(settings, brokers).rows)


def summed_capacities(capacities: pa.Table) -> Capacities:
    """Return rows of `broker_capacities` by broker and resource; the capacity of a broker's log dirs is their sum."""
    found = defaultdict[int, dict[str, Capacity]](dict)
    columns = ("broker_id", "resource", "capacity", "limit_share")
    for broker, resource, amount, limit_share in values_of(capacities, *columns):
        share = LIMIT_SHARE if limit_share is None else limit_share
        before = found[broker].get(resource, Capacity(0.0, share))
        found[broker][resource] = Capacity(before.amount + amount, min(before.limit_share, share))
    return found


def broker_growth(warehouse: Warehouse, window: LoadWindow) -> dict[int, float]:
    """Return the bytes per second by which the logs of brokers grow; without brokers of unknown growth."""
    newest = window.newest
    if newest is None:
        return {}
    sizes = defaultdict[int, dict[float, float]](dict)
    for load in hourly_loads(warehouse, [newest - age for age in _GROWTH_HOURS]):
        if load.hour is not None and load.size_bytes is not None:
            sizes[load.broker_id][load.hour.timestamp()] = load.size_bytes
    growth = {broker: growth_of(of_broker) for broker, of_broker in sizes.items()}
    return {broker: rate for broker, rate in growth.items() if rate is not None}
