"""The load of brokers in the newest hour, and what a person must know of it, for status, metrics and pages."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.repositories.capacities import broker_capacities
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
from jobs.runtime.settings import Settings
from planner.load.disk_forecast import growth_of
from planner.load.findings import (
    FULL_SOON_SECONDS,
    LIMIT_SHARE,
    AboveLimit,
    Capacities,
    Capacity,
    FillingDisk,
    HotPartition,
    Unevenness,
    above_limits,
    filling_disks,
    hidden_by_counts,
    hottest_partitions,
    is_hot,
    least_hot_rates,
)
from schemas.rows import BrokerLoad, Row, Snapshot

_GROWTH_HOURS: Final = (*(number * 6 * HOUR for number in range(4)), *(number * DAY for number in range(1, 8)))
"""Ages of the sizes that the growth of a disk is computed from, before the newest hour: few of the week's hours."""

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

    @property
    def by_broker(self) -> dict[int, BrokerLoad]:
        return {load.broker_id: load for load in self.loads}


def read_load_times(warehouse: Warehouse, until: datetime | None = None) -> LoadTimes:
    """Return the newest hour with loads, of those that start before `until`, and the time of the newest sample."""
    return LoadTimes(newest_window(warehouse, until), newest_sample(warehouse))


def read_load_summary(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadSummary:
    """Read the loads of a window."""
    loads = broker_loads(settings.warehouse, window, snapshot)
    return LoadSummary(
        window=window,
        loads=loads,
        capacities=read_capacities(settings, {load.broker_id for load in loads}),
        growth=broker_growth(settings.warehouse, window),
    )


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

    @property
    def json(self) -> Row:
        found: Row = msgspec.to_builtins(
            {
                "above_limits": self.above_limits,
                "full_soon": self.full_soon,
                "hot_partitions": self.hot_partitions,
                "hidden_by_counts": self.hidden_by_counts,
            }
        )
        return {"hour": self.times.hour, "sampled_at": self.times.sampled_at, **found}


def read_load_findings(settings: Settings, snapshot: Snapshot | None, now: datetime) -> LoadFindings:
    """Read what a person must know of the load at `now`; followers of partitions are those of the snapshot."""
    times = read_load_times(settings.warehouse)
    if times.window is None or not times.is_recent(now):
        return LoadFindings(times=times)
    summary = read_load_summary(settings, times.window, snapshot)
    return findings_of(times, summary, read_hot_partitions(settings.warehouse, summary, snapshot))


def findings_of(times: LoadTimes, summary: LoadSummary, hottest: list[HotPartition]) -> LoadFindings:
    """Return what a person must know of a load; `hottest` are the hottest partitions of brokers, or only hot ones."""
    filling = filling_disks(summary.loads, summary.capacities, summary.growth)
    return LoadFindings(
        times=times,
        above_limits=above_limits(summary.loads, summary.capacities),
        full_soon=[disk for disk in filling if disk.seconds <= FULL_SOON_SECONDS],
        hot_partitions=[
            partition for partition in hottest if is_hot(partition, summary.by_broker[partition.broker_id])
        ],
        hidden_by_counts=hidden_by_counts(summary.loads),
    )


def read_capacities(settings: Settings, brokers: Collection[int]) -> Capacities:
    """Return the known capacities by broker and resource; that of a broker's log dirs is their sum."""
    found = defaultdict[int, dict[str, Capacity]](dict)
    columns = ("broker_id", "resource", "capacity", "limit_share")
    for broker, resource, amount, limit_share in values_of(broker_capacities(settings, brokers), *columns):
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
