"""Loads of brokers, partitions and groups by hour, as `surveyor load rollup` and `surveyor load import` store them.

Table `broker_load` has a row for each broker and hour, so it tells which hours have loads. A window is some of these
hours. Other tables are read for these hours only, because a million partitions have as many rows in each. Imported
loads of every hour are in `partition_load` alone, and those of brokers are added up from them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.arrow_rows import partition_numbers, places_of, values_of
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.units import parse_period
from jobs.repositories.snapshots import table_as_of
from planner.load.broker_sums import loads_of_brokers
from planner.load.cpu_model import MODEL_COLUMNS, CpuModel, model_text, stored_model
from schemas.enums import IMPORTED
from schemas.rows import BrokerLoad, GroupLoad, PartitionLoad, PartitionSample, ProfiledLoad, Snapshot

NOW: Final = "now"
"""The window of the newest hour of which at least COVERED_SECONDS were sampled."""

PEAK: Final = "peak"
"""The window of the hour with most bytes in and out during the last WEEK."""

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)

COVERED_SECONDS: Final = 1800.0
"""Sampled seconds from which on the load of an hour is complete enough to be shown."""

SPARSE_HOURS: Final = 3
"""Hours that are examined for one that is complete enough; else the first of them is shown."""

RATES: Final = ("records_in", "bytes_in", "bytes_out")
"""Columns of PARTITION_LOAD whose mean over the hours of a window is shown."""

_AT_THE_END: Final = ("leader", "size_bytes", "samples", "method", "flags")
"""Columns of PARTITION_LOAD whose value in the newest hour of a window is shown."""

_KEY: Final = ("topic", "partition")

_READ: Final = (*_KEY, *RATES, "max_5min", *_AT_THE_END)

_AVERAGED: Final = (*_KEY, *RATES, "max_5min", "method", "flags")

MAX_FILTERED_TOPICS: Final = 100
"""Number of topics up to which only their partitions are read from a snapshot."""

NEWER_LOADS: Final = "`surveyor load sample` and `surveyor load rollup` measure newer ones, or import them"
"""What helps if loads are old."""

_MIN_GROWTH: Final = timedelta(hours=6)
"""Time between two sizes of a log from which on their difference is its growth: segments are deleted as a whole."""


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """The hours whose loads count, the oldest first; none for imported loads of every hour."""

    hours: tuple[datetime, ...] = ()
    span: int = 1
    """Hours from the start of the window to its end; `hours` lacks those without loads."""

    @property
    def newest(self) -> datetime | None:
        return self.hours[-1] if self.hours else None

    @property
    def filters(self) -> list[Filter]:
        """The filters of the rows of these hours."""
        if not self.hours:
            return [("hour", "is", None)]
        return [("hour", ">=", self.hours[0]), ("hour", "<=", self.hours[-1])]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The bytes in and out of partitions by the method that measured them, and by flag."""

    by_method: Counter[str] = field(default_factory=Counter)
    by_flag: Counter[str] = field(default_factory=Counter)
    """A partition may have several flags."""

    def add(self, rows: pa.Table) -> "Accuracy":
        """Add the bytes of partitions."""
        weighed = rows.append_column("bytes", traffic(rows))
        self.by_method.update(_sums(weighed, "method"))
        self.by_flag.update(_sums(_flagged(weighed), "flag"))
        return self

    @property
    def methods(self) -> dict[str, float]:
        """The share of the bytes by method."""
        return self._shares(self.by_method)

    @property
    def flags(self) -> dict[str, float]:
        """The share of the bytes by flag."""
        return self._shares(self.by_flag)

    def _shares(self, by: Counter[str]) -> dict[str, float]:
        total = sum(self.by_method.values())
        return {name: by[name] / total for name in sorted(by)} if total else {}


@dataclass(frozen=True, slots=True)
class PartitionMeans:
    """The loads of partitions in a window, and how they were found."""

    rows: pa.Table
    """`topic`, `partition`, RATES as means, the most of `max_5min`, and of the newest hour `leader`, `size_bytes`,
    `samples`, `method` and `flags`.
    """
    accuracy: Accuracy


@dataclass(frozen=True, slots=True)
class PartitionGrowth:
    """The bytes per second by which logs grow."""

    source: str
    rows: pa.Table
    """`topic`, `partition`, `growth`."""


def find_window(warehouse: Warehouse, text: str = NOW) -> LoadWindow:
    """Return the hours of NOW, of PEAK, or of a period that ends with the newest hour, as 24h or 7d.

    Raise UsageError for another text, and UnreadableError if there is no load.
    """
    period = window_period(text)
    if _table_of_hours(warehouse) is None:
        raise no_loads(warehouse)
    hours = recorded_hours(warehouse, max(period, WEEK))
    if not hours:
        return LoadWindow()
    if text == PEAK:
        busiest = sorted(hours, key=lambda hour: (-hours[hour], hour))
        return LoadWindow((_first_complete(warehouse, busiest),))
    newest = _first_complete(warehouse, [*reversed(hours)])
    if text == NOW:
        return LoadWindow((newest,))
    return LoadWindow(tuple(hour for hour in hours if newest - period < hour <= newest), period // HOUR)


def newest_window(warehouse: Warehouse, until: datetime | None = None) -> LoadWindow | None:
    """Return the newest hour that is complete enough, of those that start before `until`; None without loads."""
    table = _table_of_hours(warehouse)
    if table is None:
        return None
    newest = _newest_hour(warehouse, table, until)
    if newest is None:
        return LoadWindow() if until is None or _newest_hour(warehouse, table) is None else None
    hours = [newest - number * HOUR for number in range(SPARSE_HOURS)]
    return LoadWindow((_first_complete(warehouse, hours),))


def window_period(text: str) -> timedelta:
    """Return the period of a window, 0 for NOW and PEAK; raise UsageError for another text.

    >>> window_period("peak"), window_period("24h")
    (datetime.timedelta(0), datetime.timedelta(days=1))
    """
    if text in {NOW, PEAK}:
        return timedelta(0)
    try:
        period = parse_period("--window", text)
    except UsageError:
        period = timedelta(0)
    if period < HOUR:
        raise UsageError(
            f"--window {text!r} is no window: expected {NOW}, {PEAK}, or hours, days or weeks that end with the newest "
            "hour, as 24h or 7d"
        )
    return period


def recorded_hours(warehouse: Warehouse, period: timedelta, until: datetime | None = None) -> dict[datetime, float]:
    """Return the hours with loads, the oldest first, with the bytes in and out of all brokers.

    They are those of the period that ends with the newest hour, or the newest that starts before `until`.
    """
    table = _table_of_hours(warehouse)
    newest = None if table is None else _newest_hour(warehouse, table, until)
    if table is None or newest is None:
        return {}
    in_period: list[Filter] = [("hour", ">", newest - period), ("hour", "<=", newest)]
    rows = warehouse.read(table, *in_period, columns=["hour", "bytes_in", "bytes_out"])
    traffic_of = rows.append_column("bytes", traffic(rows)).group_by("hour").aggregate([("bytes", "sum")])
    return dict(values_of(traffic_of.sort_by("hour"), "hour", "bytes_sum"))


def _table_of_hours(warehouse: Warehouse) -> str | None:
    """Return the table that tells the hours with loads, None if there are no loads."""
    tables = (BrokerLoad.TABLE, PartitionLoad.TABLE)
    return next((table for table in tables if warehouse.has(table) and _has_rows(warehouse, table)), None)


def _has_rows(warehouse: Warehouse, table: str) -> bool:
    of_every_hour: Filter = ("hour", "is", None)
    is_of_hours = warehouse.latest(table, "hour") is not None
    return is_of_hours or bool(warehouse.read(table, of_every_hour, columns=["hour"]).num_rows)


def _newest_hour(warehouse: Warehouse, table: str, until: datetime | None = None) -> datetime | None:
    newest = warehouse.latest(table, "hour")
    if newest is None or until is None or newest < until:
        return newest
    before: list[Filter] = [("hour", ">=", until - WEEK), ("hour", "<", until)]
    hour: datetime | None = pc.max(warehouse.read(table, *before, columns=["hour"])["hour"]).as_py()
    return hour


def _first_complete(warehouse: Warehouse, hours: Sequence[datetime]) -> datetime:
    """Return the first of SPARSE_HOURS that is complete enough; the first one if none is, or nothing tells."""
    return next((hour for hour in hours[:SPARSE_HOURS] if _is_complete(warehouse, hour)), hours[0])


def _is_complete(warehouse: Warehouse, hour: datetime) -> bool:
    """Return whether enough of an hour was sampled, or it was imported."""
    rows = warehouse.read(PartitionLoad.TABLE, ("hour", "=", hour), columns=["covered_seconds"])
    mean = pc.mean(rows["covered_seconds"]).as_py()
    return bool(rows.num_rows) and (mean is None or mean >= COVERED_SECONDS)


def no_loads(warehouse: Warehouse) -> UnreadableError:
    """Return the error of a command that needs loads."""
    if not warehouse.exists():
        return no_warehouse(warehouse.uri, "run `surveyor load sample` first")
    where = f"of cluster {warehouse.cluster!r} in {warehouse.uri}"
    if newest_sample(warehouse) is not None:
        return UnreadableError(f"no loads {where}; run `surveyor load rollup`, which computes them from the samples")
    return UnreadableError(
        f"no loads {where}; run `surveyor load sample --every 5m` for an hour and `surveyor load rollup` then, or "
        "`surveyor load import FILE`, or check --cluster"
    )


def newest_sample(warehouse: Warehouse) -> datetime | None:
    """Return when the newest sample of partitions was taken, None if there is none."""
    return warehouse.latest(PartitionSample.TABLE, "sampled_at") if warehouse.has(PartitionSample.TABLE) else None


def broker_loads(warehouse: Warehouse, window: LoadWindow, snapshot: Snapshot | None) -> list[BrokerLoad]:
    """Return the mean load of each broker in a window, by broker; sizes and counts are those of its newest hour.

    Loads that were only imported are added up by the replicas of the snapshot.
    """
    if rows := decode_rows(BrokerLoad, _broker_means(warehouse.read(BrokerLoad.TABLE, *window.filters))):
        return rows
    partitions = partition_means(warehouse, window).rows
    if not partitions.num_rows:
        return []
    return loads_of_brokers(with_assignment(partitions, read_assignment(warehouse, snapshot)))


def _broker_means(rows: pa.Table) -> pa.Table:
    means = ("bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks", "cpu")
    names = [name for name in schema_of(BrokerLoad.TABLE).names if name != "broker_id"]
    how = [(name, "mean" if name in means else "last") for name in names]
    ordered = rows.sort_by([("hour", "ascending"), ("broker_id", "ascending")])
    grouped = ordered.group_by("broker_id", use_threads=False).aggregate(how)  # "last" is ordered without threads
    return grouped.rename_columns(["broker_id", *names]).sort_by("broker_id")


def hourly_loads(warehouse: Warehouse, hours: Sequence[datetime]) -> list[BrokerLoad]:
    """Return the load of each broker in some hours, by hour and broker."""
    if not hours:
        return []
    rows = warehouse.read(BrokerLoad.TABLE, ("hour", "in", list(hours)))
    return decode_rows(BrokerLoad, rows.sort_by([("hour", "ascending"), ("broker_id", "ascending")]))


def loads_of_week(warehouse: Warehouse, newest: datetime) -> pa.Table:
    """Return `hour`, `broker_id` and the rates of brokers in the WEEK that ends with an hour, by hour."""
    columns = ["hour", "broker_id", "bytes_in", "replication_in", "bytes_out", "replication_out"]
    in_week: list[Filter] = [("hour", ">", newest - WEEK), ("hour", "<=", newest)]
    return warehouse.read(BrokerLoad.TABLE, *in_week, columns=columns).sort_by("hour")


def partition_means(warehouse: Warehouse, window: LoadWindow) -> PartitionMeans:
    """Return the load of each partition of the newest hour of a window, in the memory of two hours."""
    *earlier, newest = window.hours or (None,)
    rows = partitions_of(warehouse, newest)
    accuracy = Accuracy().add(rows)
    if earlier:
        rows = _averaged(rows, _weighed(warehouse, earlier, accuracy))
    return PartitionMeans(rows, accuracy)


def _weighed(warehouse: Warehouse, hours: Sequence[datetime], accuracy: Accuracy) -> Iterator[pa.Table]:
    """Yield the loads of hours one by one, and add their bytes to the accuracy."""
    for hour in hours:
        rows = partitions_of(warehouse, hour, _AVERAGED)
        accuracy.add(rows)
        yield rows


def _averaged(newest: pa.Table, earlier: Iterable[pa.Table]) -> pa.Table:
    """Return the newest loads with the means of RATES, and the most of `max_5min`, in these and the earlier loads."""
    topics = pc.unique(newest["topic"])
    numbers = partition_numbers(newest, topics)
    means = {name: _Mean.of(newest[name]) for name in RATES}
    most = newest["max_5min"]
    for rows in earlier:
        at = pc.index_in(numbers, partition_numbers(rows, topics))
        for name, mean in means.items():
            mean.add(rows[name].take(at))
        most = pc.max_element_wise(most, rows["max_5min"].take(at))
    for name, values in {**{name: mean.values for name, mean in means.items()}, "max_5min": most}.items():
        newest = newest.set_column(newest.column_names.index(name), name, values)
    return newest


@dataclass(slots=True)
class _Mean:
    """The mean of some columns, row by row, without nulls."""

    sums: pa.ChunkedArray
    counts: pa.ChunkedArray

    @classmethod
    def of(cls, values: pa.ChunkedArray) -> "_Mean":
        return cls(pc.fill_null(values, 0.0), pc.is_valid(values).cast(pa.int64()))

    def add(self, values: pa.ChunkedArray) -> None:
        self.sums = pc.add(self.sums, pc.fill_null(values, 0.0))
        self.counts = pc.add(self.counts, pc.is_valid(values).cast(pa.int64()))

    @property
    def values(self) -> pa.ChunkedArray:
        return pc.divide(self.sums, pc.if_else(pc.greater(self.counts, 0), self.counts, None))


def partitions_of(
    warehouse: Warehouse, hour: datetime | None, columns: Sequence[str] = _READ, *filters: Filter
) -> pa.Table:
    """Return the loads of an hour, or those of every hour, that pass all filters; each partition has one row.

    Of a partition that was both sampled and imported the sampled row counts.
    """
    of_hour: Filter = ("hour", "is", None) if hour is None else ("hour", "=", hour)
    rows = warehouse.read(PartitionLoad.TABLE, of_hour, *filters, columns=list(columns))
    is_imported = pc.equal(rows["method"], IMPORTED)
    if pc.sum(is_imported).as_py() in {None, 0, rows.num_rows}:
        return rows
    imported, sampled = rows.filter(is_imported), rows.filter(pc.invert(is_imported))
    return pa.concat_tables([sampled, imported.filter(pc.is_null(places_of(imported, sampled)))])


def traffic(rows: pa.Table) -> pa.ChunkedArray:
    """Return the bytes in and out of partitions."""
    return pc.add(pc.fill_null(rows["bytes_in"], 0.0), pc.fill_null(rows["bytes_out"], 0.0))


def _sums(rows: pa.Table, column: str) -> dict[str, float]:
    return dict(values_of(rows.group_by(column).aggregate([("bytes", "sum")]), column, "bytes_sum"))


def _flagged(rows: pa.Table) -> pa.Table:
    """Return a row for each flag of each partition, with the bytes of the partition."""
    flagged = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows["flags"]), 0), 0))
    at = pc.list_parent_indices(flagged["flags"])
    return pa.table({"flag": pc.list_flatten(flagged["flags"]), "bytes": flagged["bytes"].take(at)})


def read_assignment(warehouse: Warehouse, snapshot: Snapshot | None, topics: Sequence[str] | None = None) -> pa.Table:
    """Return `topic`, `partition`, `leader` and `replicas` of the partitions of a snapshot, or those of some topics."""
    columns = ["topic", "partition", "leader", "replicas"]
    if snapshot is None:
        return schema_of("partitions", *columns).empty_table()
    of_topics = [("topic", "in", list(topics))] if topics is not None and len(topics) <= MAX_FILTERED_TOPICS else []
    return table_as_of(warehouse, snapshot, "partitions", *of_topics, columns=columns)


def with_assignment(rows: pa.Table, assignment: pa.Table) -> pa.Table:
    """Add `replicas`, and `replication_out`, the bytes to followers; null if the assignment lacks the partition.

    The leader of the assignment counts where the load has none.
    """
    at = places_of(rows, assignment)
    replicas = assignment["replicas"].take(at)
    followers = pc.subtract(pc.list_value_length(replicas), 1)
    leader = pc.coalesce(rows["leader"], assignment["leader"].take(at))
    return (
        rows.set_column(rows.column_names.index("leader"), "leader", leader)
        .append_column("replicas", replicas)
        .append_column("replication_out", pc.multiply(rows["bytes_in"], followers))
    )


def partition_growth(warehouse: Warehouse, window: LoadWindow) -> PartitionGrowth | None:
    """Return the growth of logs by the newest profile, else by the sizes of the newest hour and of a day before.

    None if neither is known.
    """
    return _growth_of_profile(warehouse) or _growth_of_sizes(warehouse, window)


def _growth_of_profile(warehouse: Warehouse) -> PartitionGrowth | None:
    newest = _newest_profile(warehouse, "window")
    if newest is None:
        return None
    first = pc.min(newest.rows["window"]).as_py()  # the growth is the same in each
    in_window: Filter = ("window", "=", first)
    rows = warehouse.read(ProfiledLoad.TABLE, newest.filter, in_window, columns=[*_KEY, "growth"])
    known = rows.filter(pc.is_valid(rows["growth"]))
    return PartitionGrowth(newest.title, known) if known.num_rows else None


@dataclass(frozen=True, slots=True)
class _NewestProfile:
    filter: Filter
    rows: pa.Table

    @property
    def title(self) -> str:
        return f"profile {self.rows['profile'][0]}, version {self.rows['version'][0]}"


def _newest_profile(warehouse: Warehouse, *columns: str) -> _NewestProfile | None:
    """Read columns of the profile that was computed last, None without one."""
    created_at = warehouse.latest(ProfiledLoad.TABLE, "created_at") if warehouse.has(ProfiledLoad.TABLE) else None
    if created_at is None:
        return None
    newest: Filter = ("created_at", ">=", created_at)
    rows = warehouse.read(ProfiledLoad.TABLE, newest, columns=["profile", "version", *columns])
    return _NewestProfile(newest, rows)


@dataclass(frozen=True, slots=True)
class ProfiledCpu:
    """The CPU model of the newest profile."""

    profile: str
    model: CpuModel

    @property
    def source(self) -> str:
        return f"{model_text(self.model)} ({self.profile})"


def profiled_cpu(warehouse: Warehouse) -> ProfiledCpu | None:
    """Return the CPU model of the profile that was computed last; None if CPU of brokers was not known to it."""
    newest = _newest_profile(warehouse, *MODEL_COLUMNS)
    model = None if newest is None else stored_model(newest.rows)
    return None if newest is None or model is None else ProfiledCpu(newest.title, model)


def _growth_of_sizes(warehouse: Warehouse, window: LoadWindow) -> PartitionGrowth | None:
    if window.newest is None:
        return None
    hours = recorded_hours(warehouse, DAY + HOUR, window.newest + HOUR)
    before = min(hours)
    if window.newest - before < _MIN_GROWTH:
        return None
    columns = [*_KEY, "size_bytes", "method"]
    now, then = (
        rows.filter(pc.is_valid(rows["size_bytes"]))
        for rows in (partitions_of(warehouse, hour, columns) for hour in (window.newest, before))
    )
    grown = pc.subtract(now["size_bytes"], then["size_bytes"].take(places_of(now, then)))
    growth = pc.divide(grown.cast(pa.float64()), (window.newest - before).total_seconds())
    rows = now.select(list(_KEY)).append_column("growth", growth)
    known = rows.filter(pc.is_valid(rows["growth"]))
    return PartitionGrowth(f"sizes since {before:%Y-%m-%d %H:%M} UTC", known) if known.num_rows else None


def group_loads(warehouse: Warehouse, window: LoadWindow) -> pa.Table:
    """Return `group_id`, `topics`, `records_out`, `bytes_out` of each group; its `lag` is that of the newest hour."""
    if not window.hours or not warehouse.has(GroupLoad.TABLE):
        return _no_groups()
    rows = warehouse.read(GroupLoad.TABLE, *window.filters)
    of_topic = rows.group_by(["group_id", "topic"]).aggregate([("records_out", "mean"), ("bytes_out", "mean")])
    summed = of_topic.group_by("group_id").aggregate(
        [("topic", "count"), ("records_out_mean", "sum"), ("bytes_out_mean", "sum")]
    )
    named = summed.rename_columns(_no_groups().column_names[:-1])
    at_the_end = rows.filter(pc.equal(rows["hour"], pa.scalar(window.newest, rows["hour"].type)))
    lags = at_the_end.group_by("group_id").aggregate([("lag", "sum")])
    at = pc.index_in(named["group_id"].cast(pa.string()), lags["group_id"].cast(pa.string()).combine_chunks())
    return named.append_column("lag", lags["lag_sum"].take(at))


def _no_groups() -> pa.Table:
    return pa.table(
        {
            "group_id": pa.array([], pa.string()),
            "topics": pa.array([], pa.int64()),
            "records_out": pa.array([], pa.float64()),
            "bytes_out": pa.array([], pa.float64()),
            "lag": pa.array([], pa.int64()),
        }
    )
