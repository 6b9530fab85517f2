"""Output of `surveyor show load`: the loads of a window by broker, rack, topic, partition or group.

The rows of a million partitions stay in Arrow. Only those that are printed become Python objects.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.stored_tables import displayed_columns
from jobs.core.arrow_rows import StoredRows, places_of, values_of
from jobs.core.units import age_seconds, format_age, format_bytes
from jobs.measurement.load_summary import (
    SUMMED,
    LoadSummary,
    partitions_without_load,
    read_leaders_partitions,
    read_load_summary,
    without_load_text,
)
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.loads import (
    DAY,
    HOUR,
    NEWER_LOADS,
    NOW,  # noqa: F401 - for the doctests
    PEAK,
    Accuracy,
    LoadWindow,
    find_window,
    group_loads,
    partition_growth,
    partition_means,
    profiled_cpu,
    read_assignment,
    traffic,
    with_assignment,
)
from jobs.repositories.racks import rack_of_each
from jobs.repositories.snapshots import last_snapshot, rows_as_of
from jobs.runtime.cli_enums import LoadGrouping
from jobs.runtime.console import Line, table, warnings_in_json, wrapped
from jobs.runtime.output import show, stream
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.load.findings import hottest_partitions, unevenness, used_by, with_leader_share
from planner.load.resources import RESOURCES
from schemas.rows import Broker, BrokerLoad, Row, Snapshot
from schemas.text import partition_name

ROWS_SHOWN: Final = 20
"""Rows of the text output without --top."""

STALE_SECONDS: Final = 2 * 3600.0
"""Age of the newest hour above which the output says that it is old."""

_UNITS: Final = {
    "bytes per second": (
        *("bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks", "max_5min", "growth"),
    ),
    "records per second": ("records_in", "records_out"),
    "bytes": ("size_bytes",),
    "records": ("lag",),
    "percent of all cores": ("cpu",),
    "ratio": (*(f"{resource}_share" for resource in RESOURCES), "leader_share", "skew"),
}

UNITS: Final = {column: unit for unit, columns in _UNITS.items() for column in columns}
"""The unit of each column with one, as in the JSON."""

_NAMES: Final = {
    "bytes_in": "in",
    "replication_in": "from_leaders",
    "bytes_out": "to_readers",
    "replication_out": "to_followers",
    "size_bytes": "size",
    "records_in": "records",
    "records_out": "records",
}
"""Headings of columns in the text output, where they are shorter than the column."""

_TEXT_COLUMNS: Final[Mapping[LoadGrouping, tuple[str, ...]]] = {
    LoadGrouping.BROKER: (
        *("broker_id", "rack", "bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks"),
        *("size_bytes", "growth", "disk_full", "cpu", "of_capacity", "hottest"),
    ),
    LoadGrouping.RACK: (
        *("rack", "brokers", "bytes_in", "replication_in", "bytes_out", "replication_out", "across_racks"),
        *("size_bytes", "growth", "cpu", "of_capacity"),
    ),
    LoadGrouping.TOPIC: (
        *("topic", "partitions", "bytes_in", "bytes_out", "replication_out", "size_bytes", "growth", "cpu", "skew"),
        *("largest", "methods", "flags"),
    ),
    LoadGrouping.PARTITION: (
        *("topic", "partition", "leader", "bytes_in", "bytes_out", "replication_out", "max_5min", "size_bytes"),
        *("growth", "cpu", "of_leader", "method", "flags"),
    ),
    LoadGrouping.GROUP: ("group_id", "topics", "records_out", "bytes_out", "lag"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """The rows of one grouping, the most traffic first, and what is known of all of them."""

    rows: list[Row] | StoredRows
    total: Row
    accuracy: Accuracy | None = None
    growth_source: str | None = None
    cpu_source: str | None = None
    unevenness: list[Row] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def first(self, count: int) -> list[Row]:
        """Return some of the rows."""
        return self.rows[:count] if isinstance(self.rows, list) else self.rows.first(count)


def show_load(settings: Settings, by: LoadGrouping, window_text: str, top: int | None) -> None:
    """Show the loads of a window by `by`, or the `top` ones with most traffic; raise UnreadableError without loads."""
    warehouse = settings.warehouse
    window = find_window(warehouse, window_text)
    snapshot = last_snapshot(warehouse)
    with progress(f"reading the loads of {len(window.hours) or 1} hours"):
        view = _VIEWS[by](settings, window, snapshot)
    rows = view.rows if top is None else view.first(top)
    about = {"by": by.value, "window": window_text, **_about(window, view, view.first(1))}
    stream(settings, about | warnings_in_json(), {"rows": rows})
    if settings.for_people:
        place = f"{settings.cluster} by {by.value}, {window_name(window_text, window)}"
        notes = [*_notes(view), *_age_note(window_text, window)]
        for line in wrapped(": ".join(filter(None, [f"load of {place}", _total_text(view.total)])), ""):
            show(line)
        for part in _parts(settings, by, view, view.first(top or ROWS_SHOWN)):
            show(part)
        for line in (line for note in notes for line in wrapped(note, "")):
            show(line)


def _about(window: LoadWindow, view: LoadView, rows: list[Row]) -> Row:
    """Return the members of the JSON object that describe the rows."""
    return {
        "hours": list(window.hours),
        "span_hours": window.span,
        "age_seconds": None if window.newest is None else age_seconds(window.newest + HOUR),
        "units": {name: UNITS[name] for row in rows for name in row if name in UNITS},
        "total": view.total,
        "methods": view.accuracy.methods if view.accuracy else {},
        "flags": view.accuracy.flags if view.accuracy else {},
        "growth_from": view.growth_source,
        "cpu_from": view.cpu_source,
        "unevenness": view.unevenness,
    }


def _parts(settings: Settings, by: LoadGrouping, view: LoadView, rows: list[Row]) -> Iterator[Line]:
    """Return the table of some rows, without columns that are empty in each, and how many rows it lacks."""
    if not rows:
        return
    texts = [_readable(row) for row in rows]
    key = _TEXT_COLUMNS[by][:2]
    columns = [
        name
        for name in displayed_columns(settings, _TEXT_COLUMNS[by], texts)
        if name in key or any(row.get(name) not in (None, "") for row in texts)
    ]
    headings = [_NAMES.get(name, name) for name in columns]
    yield table("", headings, [dict(zip(headings, map(row.get, columns), strict=True)) for row in texts])
    if (more := len(view.rows) - len(rows)) > 0:
        yield f"... and {more:,} more; --top N shows more, --json gives all"


def window_name(text: str, window: LoadWindow) -> str:
    """Name the hours of a window.

    >>> from datetime import UTC, datetime
    >>> hours = [datetime(2026, 11, 30, hour, tzinfo=UTC) for hour in (20, 21, 23)]
    >>> window_name(NOW, LoadWindow((hours[0],))), window_name("4h", LoadWindow(tuple(hours), 4))
    ('2026-11-30 20:00 to 21:00 UTC', 'mean of 3 of the 4 hours up to 2026-12-01 00:00 UTC')
    >>> window_name(PEAK, LoadWindow((hours[0],))), window_name(NOW, LoadWindow())
    ('peak of 7 days, 2026-11-30 20:00 to 21:00 UTC', 'imported for every hour')
    """
    if window.newest is None:
        return "imported for every hour"
    end = window.newest + HOUR
    if window.span > 1:
        of = f"{len(window.hours)} of the " * (len(window.hours) < window.span)
        return f"mean of {of}{'' if of else 'the '}{window.span} hours up to {end:%Y-%m-%d %H:%M} UTC"
    peak = "peak of 7 days, " * (text == PEAK)
    return f"{peak}{window.newest:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"


def _total_text(total: Row) -> str:
    """Format the sums of all rows.

    >>> _total_text({"bytes_in": 2048.0, "bytes_out": 3072.0, "size_bytes": None, "lag": 7})
    'in 2.0 KiB/s, out 3.0 KiB/s, lag 7 records'
    """
    texts = {
        "bytes_in": "in {}",
        "bytes_out": "out {}",
        "size_bytes": "size {}",
        "lag": "lag {} records",
    }
    known = {name: total[name] for name in texts if total.get(name) is not None}
    return ", ".join(texts[name].format(_readable_value(name, value)) for name, value in known.items())


def _readable(row: Row) -> Row:
    """Return the texts of a row for people."""
    texts = {name: _readable_value(name, value) for name, value in row.items()}
    shares = {name: row[f"{name}_share"] for name in RESOURCES if row.get(f"{name}_share") is not None}
    if "disk_share" in row:
        most = max(shares, key=shares.__getitem__, default=None)
        texts["of_capacity"] = "" if most is None else f"{most} {shares[most]:.0%}"
    texts["disk_full"] = first_full(row.get("filling_disks") or ())
    if hottest := row.get("hottest"):
        name = partition_name(hottest["topic"], hottest["partition"])
        texts["hottest"] = f"{name} {hottest['share']:.0%} of {hottest['resource']}"
    if "leader_share" in row:
        share = row["leader_share"]
        texts["of_leader"] = "" if share is None else f"{share:.1%} of {row['leader_resource']}"
    return texts


def first_full(disks: Sequence[Row]) -> str:
    """Return when the first disk of a broker is full, with its log dirs; empty if none grows.

    >>> from datetime import datetime
    >>> first_full([{"full_at": datetime(2026, 12, 3, 14, 20), "log_dirs": ["/d1", "/d2"]}])
    '2026-12-03 14:20 UTC /d1 /d2'
    """
    if not disks:
        return ""
    full_at = disks[0]["full_at"]
    return " ".join(["now" if full_at is None else f"{full_at:%Y-%m-%d %H:%M} UTC", *disks[0]["log_dirs"]])


def _readable_value(name: str, value: Any) -> Any:  # noqa: ANN401 - a value of any column
    """Format a value in the unit of its column.

    >>> [_readable_value(*cell) for cell in (("bytes_in", 2048.0), ("growth", 1024.0), ("lag", 5), ("in_share", 0.5))]
    ['2.0 KiB/s', '84.4 MiB/day', 5, '50%']
    >>> [_readable_value(*cell) for cell in (("records_in", 1234.5), ("skew", 2.04), ("methods", ["a", "b"]))]
    ['1,234/s', '2.0', 'a, b']
    """
    readable = _FORMATS.get(name) or _FORMATS.get(UNITS.get(name, ""))
    return value if value is None or readable is None else readable(value)


SECOND: Final = timedelta(seconds=1)

_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "methods": ", ".join,
    "flags": ", ".join,
    "growth": lambda rate: f"{format_bytes(rate * (DAY / SECOND))}/day",
    "skew": lambda ratio: f"{ratio:.1f}",
    "bytes per second": lambda rate: f"{format_bytes(rate)}/s",
    "bytes": format_bytes,
    "records per second": lambda rate: f"{rate:,.0f}/s",
    "ratio": lambda share: f"{share:.0%}",
    "percent of all cores": lambda percent: f"{percent:.0f}%",
}
"""How values are written for people, by column or by unit."""


def _notes(view: LoadView) -> Iterator[str]:
    """Return what must be known to judge the numbers."""
    if view.accuracy and (methods := view.accuracy.methods):
        flagged = f"; flagged {_percentages(flags)}" if (flags := view.accuracy.flags) else ""
        yield f"bytes by method: {_percentages(methods)}{flagged}"
    if view.unevenness:
        worst = (f"{row['resource']} {row['ratio']:.2f} (broker {row['broker_id']})" for row in view.unevenness)
        yield f"worst broker as a multiple of its share: {', '.join(worst)}"
    if view.growth_source:
        yield f"growth: {view.growth_source}"
    if view.cpu_source:
        yield f"cpu: {view.cpu_source}"
    yield from view.notes


def _age_note(text: str, window: LoadWindow) -> Iterator[str]:
    """Say that a window that should end now does not."""
    if window.newest is None or text == PEAK:
        return
    if age_seconds(window.newest + HOUR) > STALE_SECONDS:
        age = format_age(window.newest + HOUR)
        yield f"the newest hour is {age} old: {NEWER_LOADS}"


def _percentages(shares: Mapping[str, float]) -> str:
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered)


def _by_broker(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadView:
    summary, cpu_source = _with_cpu(settings.warehouse, read_load_summary(settings, window, snapshot))
    partitions = read_leaders_partitions(settings.warehouse, window, snapshot)
    hottest = {hot.broker_id: msgspec.to_builtins(hot) for hot in hottest_partitions(partitions, summary.loads)}
    racks = _racks(settings.warehouse, snapshot)
    filling = summary.filling_by_broker
    rows = [
        {"broker_id": load.broker_id, "rack": racks.get(load.broker_id), **_amounts(summary, [load])}
        | {"filling_disks": filling.get(load.broker_id, []), "hottest": hottest.get(load.broker_id)}
        for load in summary.loads
    ]
    return _of_brokers(summary, rows, partitions, "broker_id", cpu_source)


def _by_rack(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadView:
    summary, cpu_source = _with_cpu(settings.warehouse, read_load_summary(settings, window, snapshot))
    racks = _racks(settings.warehouse, snapshot)
    members: dict[str | None, list[BrokerLoad]] = {}
    for load in summary.loads:
        members.setdefault(racks.get(load.broker_id), []).append(load)
    rows = [{"rack": rack, "brokers": len(loads), **_amounts(summary, loads)} for rack, loads in members.items()]
    partitions = read_leaders_partitions(settings.warehouse, window, snapshot)
    return _of_brokers(summary, rows, partitions, "rack", cpu_source)


def _with_cpu(warehouse: Warehouse, summary: LoadSummary) -> tuple[LoadSummary, str | None]:
    """Return the loads with modelled CPU if that of no broker was measured, and where CPU is from."""
    if any(load.cpu is not None for load in summary.loads):
        return summary, "measured"
    profiled = profiled_cpu(warehouse)
    if profiled is None:
        return summary, None
    if not profiled.model.is_modelled:
        return summary, profiled.source
    modelled = [msgspec.structs.replace(load, cpu=profiled.model.of_broker(load)) for load in summary.loads]
    return replace(summary, loads=modelled), profiled.source


def _of_brokers(
    summary: LoadSummary, rows: list[Row], partitions: pa.Table, key: str, cpu_source: str | None
) -> LoadView:
    """Return the view of rows that are made of the loads of brokers."""
    rows.sort(key=lambda row: (-sum(row[name] or 0 for name in _NETWORK), row[key] is None, row[key]))
    has_capacity = any(row[f"{resource}_share"] is not None for row in rows for resource in RESOURCES)
    return LoadView(
        rows=rows,
        total=_sums(summary.loads),
        accuracy=Accuracy().add(partitions),
        growth_source="sizes of the last 7 days" if summary.growth else None,
        cpu_source=cpu_source,
        unevenness=[msgspec.to_builtins(one) for one in unevenness(summary.shared, summary.capacities)],
        notes=(*_unknown(summary.without_load), *summary.notes, *(() if has_capacity else (NO_CAPACITY,))),
    )


_NETWORK: Final = ("bytes_in", "replication_in", "bytes_out", "replication_out")

NO_CAPACITY: Final = (
    "no capacity is known: `surveyor sizes` records that of disks, `surveyor load import --capacity FILE` others"
)


def _amounts(summary: LoadSummary, loads: list[BrokerLoad]) -> Row:
    """Return the columns of one or more brokers: sums, the mean CPU, and shares of capacities that are known of all."""
    growth = [summary.growth[load.broker_id] for load in loads if load.broker_id in summary.growth]
    cpu = [load.cpu for load in loads if load.cpu is not None]
    return {
        "leaders": sum(load.leaders for load in loads),
        "replicas": sum(load.replicas for load in loads),
        **_sums(loads),
        "growth": sum(growth) if growth else None,
        "cpu": sum(cpu) / len(cpu) if cpu else None,
        **{f"{resource}_share": _share(summary, loads, resource) for resource in RESOURCES},
    }


def _sums(loads: Iterable[BrokerLoad]) -> Row:
    known = {name: [getattr(load, name) for load in loads if getattr(load, name) is not None] for name in SUMMED}
    return {name: sum(amounts) if amounts else None for name, amounts in known.items()}


def _share(summary: LoadSummary, loads: list[BrokerLoad], resource: str) -> float | None:
    """Return the share that brokers use of their capacity; None unless both are known of each."""
    used = [used_by(load).get(resource) for load in loads]
    capacity = [summary.capacities.get(load.broker_id, {}).get(resource) for load in loads]
    known = [amount for amount in used if amount is not None]
    amounts = [one.amount for one in capacity if one is not None]
    is_known = len(known) == len(amounts) == len(loads) and sum(amounts) > 0
    return sum(known) / sum(amounts) if is_known else None


def _racks(warehouse: Warehouse, snapshot: Snapshot | None) -> dict[int, str | None]:
    """Return the rack of each broker of a snapshot, also of those that are gone."""
    if snapshot is None:
        return {}
    return rack_of_each(rows_as_of(warehouse, snapshot, Broker), brokers_last_seen(warehouse, snapshot))


def _by_partition(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadView:
    partitions = _partitions(settings.warehouse, window, snapshot)
    shared = with_leader_share(partitions.rows, read_load_summary(settings, window, snapshot).loads)
    return partitions.view(shared, "topic", "partition")


def _by_topic(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadView:
    partitions = _partitions(settings.warehouse, window, snapshot)
    return partitions.view(_grouped_by_topic(partitions.rows), "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partitions:
    """The partitions of a window with replication, growth and the CPU of their leaders, and the sources of these."""

    rows: pa.Table
    accuracy: Accuracy
    growth_source: str | None
    cpu_source: str | None
    without_load: int

    def view(self, rows: pa.Table, *key: str) -> LoadView:
        """Return a view of rows that are made of the partitions."""
        order = [("traffic", "descending"), *((name, "ascending") for name in key)]
        ordered = rows.append_column("traffic", traffic(rows)).sort_by(order).drop_columns("traffic")
        summed = ("bytes_in", "replication_out", "bytes_out", "size_bytes", "growth")
        return LoadView(
            rows=StoredRows(ordered),
            total=_totals(self.rows, summed),
            accuracy=self.accuracy,
            growth_source=self.growth_source,
            cpu_source=self.cpu_source,
            notes=_unknown(self.without_load),
        )


def _unknown(partitions: int) -> tuple[str, ...]:
    return (without_load_text(partitions),) if partitions else ()


def _partitions(warehouse: Warehouse, window: LoadWindow, snapshot: Snapshot | None) -> _Partitions:
    means = partition_means(warehouse, window)
    rows = with_assignment(means.rows, read_assignment(warehouse, snapshot))
    growth, cpu = partition_growth(warehouse, window), profiled_cpu(warehouse)
    grown = used = pa.nulls(rows.num_rows, pa.float64())
    if growth is not None:
        grown = growth.rows["growth"].take(places_of(rows, growth.rows))
    if cpu is not None and cpu.model.is_modelled:
        used = cpu.model.of_leaders(rows)
    return _Partitions(
        rows=rows.append_column("growth", grown).append_column("cpu", used),
        accuracy=means.accuracy,
        growth_source=None if growth is None else growth.source,
        cpu_source=None if cpu is None else cpu.source,
        without_load=partitions_without_load(snapshot, rows.num_rows),
    )


def _grouped_by_topic(rows: pa.Table) -> pa.Table:
    """Add up partitions by topic; `skew` is the largest partition by bytes in, as a multiple of the mean."""
    summed = ("bytes_in", "bytes_out", "replication_out", "size_bytes", "growth", "cpu")
    how = [("partition", "count"), *((name, "sum") for name in summed), ("bytes_in", "max"), ("bytes_in", "mean")]
    grouped = rows.group_by("topic").aggregate([*how, ("method", "distinct")])
    names = ["topic", "partitions", *summed, "most", "mean", "methods"]
    topics = grouped.rename_columns(names)
    skew = pc.divide(topics["most"], pc.if_else(pc.greater(topics["mean"], 0.0), topics["mean"], None))
    of_topic = pc.index_in(rows["topic"], topics["topic"].combine_chunks())
    is_largest = pc.fill_null(pc.equal(rows["bytes_in"], topics["most"].take(of_topic)), False)  # noqa: FBT003 - Arrow's
    largest = rows.filter(is_largest).group_by("topic").aggregate([("partition", "min")])
    at = pc.index_in(topics["topic"], largest["topic"].combine_chunks())
    flags = _flags_by_topic(rows)
    listed = [sorted(flags.get(topic, ())) for topic in topics["topic"].to_pylist()]
    return (
        topics.drop_columns(["most", "mean"])
        .append_column("skew", skew)
        .append_column("largest", largest["partition_min"].take(at))
        .append_column("flags", pa.array(listed, pa.list_(pa.string())))
    )


def _flags_by_topic(rows: pa.Table) -> dict[str, set[str]]:
    flagged = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows["flags"]), 0), 0))
    topics = flagged["topic"].take(pc.list_parent_indices(flagged["flags"]))
    pairs = pa.table({"topic": topics, "flag": pc.list_flatten(flagged["flags"])})
    found: dict[str, set[str]] = {}
    for topic, flag in values_of(pairs.group_by(["topic", "flag"]).aggregate([]), "topic", "flag"):
        found.setdefault(topic, set()).add(flag)
    return found


def _totals(rows: pa.Table, columns: Iterable[str]) -> Row:
    return {name: pc.sum(rows[name]).as_py() for name in columns}


def _by_group(settings: Settings, window: LoadWindow, snapshot: Snapshot | None) -> LoadView:
    del snapshot
    rows = group_loads(settings.warehouse, window)
    order = [("bytes_out", "descending"), ("records_out", "descending"), ("group_id", "ascending")]
    none = (
        "no load of groups is known: `surveyor load sample` records their offsets, `surveyor load rollup` adds them up"
    )
    return LoadView(
        rows=StoredRows(rows.sort_by(order)),
        total=_totals(rows, ("records_out", "bytes_out", "lag")),
        notes=() if rows.num_rows else (none,),
    )


_VIEWS: Final[Mapping[LoadGrouping, Callable[[Settings, LoadWindow, Snapshot | None], LoadView]]] = {
    LoadGrouping.BROKER: _by_broker,
    LoadGrouping.RACK: _by_rack,
    LoadGrouping.TOPIC: _by_topic,
    LoadGrouping.PARTITION: _by_partition,
    LoadGrouping.GROUP: _by_group,
}
