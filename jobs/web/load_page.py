"""What the report and the dashboard show of load: brokers by hour, shares of capacities, and the hottest partitions.

Both show the same figures, maps and tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.advice.load import RESOURCE_NAMES, load_steps
from jobs.console_output.loads import first_full
from jobs.core.units import format_age, format_bytes
from jobs.measurement.load_summary import (
    LoadFindings,
    LoadSummary,
    findings_of,
    read_leaders_partitions,
    read_load_summary,
    read_load_times,
)
from jobs.repositories.loads import HOUR, WEEK, loads_of_week
from jobs.runtime.settings import Settings
from jobs.web.charts import Chart, HourRow, hour_map
from jobs.web.embedded_table import EmbeddedTable
from jobs.web.render import Fact
from planner.load.findings import (
    UNEVEN_LOAD,
    hottest_partitions,
    shares_of,
    sum_of_known,
    unevenness,
    with_leader_share,
)
from planner.load.resources import DISK, IN, OUT, RESOURCES
from schemas.rows import Row, Snapshot

PARTITIONS_LISTED: Final = 100
"""Partitions of the table: those with the largest shares of their leaders' loads."""

BROKERS_DRAWN: Final = 300
"""Brokers of a map: those with the most load in an hour."""

MAPS: Final = {
    "Bytes in by broker and hour, from producers and leaders": ("bytes_in", "replication_in"),
    "Bytes out by broker and hour, to consumers and followers": ("bytes_out", "replication_out"),
}
"""The columns that each map adds up, by its title."""

_MIB: Final = 2**20
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class LoadMap:
    """A map of brokers by hour, in bytes per second."""

    chart: Chart
    cut: str
    """The brokers that are left out, empty if none are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPage:
    """What pages show of the load."""

    about: str
    """The hour of figures and tables."""
    facts: list[Fact]
    notes: list[str]
    """What a person must know."""
    maps: list[LoadMap]
    brokers: EmbeddedTable
    partitions: EmbeddedTable


def load_page(settings: Settings, snapshot: Snapshot, now: datetime, until: datetime | None = None) -> LoadPage | None:
    """Return what pages show of the loads of hours that start before `until`; None if there are none."""
    warehouse = settings.warehouse
    times = read_load_times(warehouse, until)
    if times.window is None:
        return None
    summary = read_load_summary(settings, times.window, snapshot)
    partitions = read_leaders_partitions(warehouse, times.window, snapshot)
    findings = findings_of(times, summary, hottest_partitions(partitions, summary.loads))
    week = None if times.hour is None else loads_of_week(warehouse, times.hour)
    return LoadPage(
        about=_about(times.hour, now),
        facts=list(_facts(summary, findings)),
        notes=[step.what for step in load_steps(findings, now)],
        maps=[
            _map(title, week, times.hour)
            for title, columns in MAPS.items()
            if week is not None and times.hour is not None and any(pc.count(week[name]).as_py() for name in columns)
        ],
        brokers=_brokers(summary, week),
        partitions=_partitions(with_leader_share(partitions, summary.loads)),
    )


def _about(hour: datetime | None, now: datetime) -> str:
    if hour is None:
        return "Imported loads, for every hour"
    end = hour + HOUR
    age = format_age(end, now)
    return f"Hour from {hour:%Y-%m-%d %H:%M} to {end:%H:%M} UTC, which ended {age} before this page was made"


def _facts(summary: LoadSummary, findings: LoadFindings) -> Iterator[Fact]:
    for name, column in (("bytes in", "bytes_in"), ("bytes out to consumers", "bytes_out")):
        total = sum_of_known(*(getattr(load, column) for load in summary.loads))
        yield Fact(name, "unknown" if total is None else f"{format_bytes(total)}/s")
    for worst in unevenness(summary.shared, summary.capacities):
        mood = "warn" if worst.ratio > UNEVEN_LOAD and worst.resource != DISK else ""
        yield Fact(
            f"broker {worst.broker_id}, most {RESOURCE_NAMES[worst.resource]}", f"{worst.ratio:.2f} of its share", mood
        )
    if summary.capacities:
        count = len(findings.above_limits)
        yield Fact("limits exceeded", str(count), "bad" if count else "good")
    if summary.growth:
        count = len(findings.full_soon)
        yield Fact("disks full within 7 days", str(count), "bad" if count else "good")


def _map(title: str, week: pa.Table, newest: datetime) -> LoadMap:
    """Draw the load of brokers in the week that ends with an hour."""
    hours = [newest - number * HOUR for number in reversed(range(WEEK // HOUR))]
    amounts = _known_sums(week, MAPS[title])
    brokers, rows = np.unique(week["broker_id"].to_numpy(), return_inverse=True)
    columns = (week["hour"].cast(pa.int64()).to_numpy() - int(hours[0].timestamp() * 1e6)) // int(HOUR / _MICROSECOND)
    cells = np.full((len(brokers), len(hours)), np.nan)
    cells[rows, columns] = amounts
    most = np.nanmax(cells, axis=1, initial=0.0)
    drawn = np.sort(np.argsort(-most, kind="stable")[:BROKERS_DRAWN])
    values = [[None if np.isnan(value) else float(value) for value in row] for row in cells[drawn]]
    named = [HourRow(f"broker {brokers[place]}", row) for place, row in zip(drawn.tolist(), values, strict=True)]
    cut = f"The map shows the {len(named)} of {len(brokers)} brokers with most load."
    chart = hour_map(title, named, hours, lambda rate: f"{format_bytes(rate)}/s")
    return LoadMap(chart, cut if len(named) < len(brokers) else "")


def _known_sums(week: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.float64]:
    """Add up the rates that are known, NaN if none is."""
    rates = np.array([week[name].to_numpy() for name in columns], dtype=np.float64)
    sums: npt.NDArray[np.float64] = np.where(np.isnan(rates).all(axis=0), np.nan, np.nansum(rates, axis=0))
    return sums


_MICROSECOND: Final = timedelta(microseconds=1)


def _brokers(summary: LoadSummary, week: pa.Table | None) -> EmbeddedTable:
    peaks = {} if week is None else _peaks(week)
    filling = summary.filling_by_broker
    rows: list[Row] = []
    for load in summary.loads:
        shares = shares_of(load, summary.capacities)
        peak = peaks.get(load.broker_id)
        rows.append(
            {
                "broker": str(load.broker_id),
                **{f"%_of_{RESOURCE_NAMES[one]}": _rounded(shares.get(one), 0.01) for one in RESOURCES},
                "disk_full_on": first_full(filling.get(load.broker_id, ())) or None,
                "MiB/s_in": _rounded(load.bytes_in, _MIB),
                "MiB/s_from_leaders": _rounded(load.replication_in, _MIB),
                "MiB/s_out": _rounded(load.bytes_out, _MIB),
                "MiB/s_to_followers": _rounded(load.replication_out, _MIB),
                "MiB/s_across_racks": _rounded(load.across_racks, _MIB),
                "GiB_on_disk": _rounded(load.size_bytes, _GIB),
                "GiB_more_a_day": _rounded(summary.growth.get(load.broker_id), _GIB / 86_400),
                "%_CPU": _rounded(load.cpu, 1),
                "busiest_hour": None if peak is None else peak[0],
                "MiB/s_then": None if peak is None else _rounded(peak[1], _MIB),
                "leaders": load.leaders,
                "replicas": load.replicas,
            }
        )
    return EmbeddedTable("load-brokers", "Load of brokers", _known(rows), brokers=("broker",))


def _known(rows: list[Row]) -> pa.Table:
    """Return a table without the columns of which nothing is known."""
    table = pa.Table.from_pylist(rows)
    return table.select([name for name in table.column_names if table[name].null_count < table.num_rows])


def _rounded(value: float | None, unit: float) -> float | None:
    return None if value is None else round(value / unit, 3)


def _peaks(week: pa.Table) -> Mapping[int, tuple[str, float]]:
    """Return the hour of a week in which each broker received and sent most, with the bytes per second."""
    rates = np.nansum([_known_sums(week, columns) for columns in MAPS.values()], axis=0)
    brokers = week["broker_id"].to_numpy()
    order = np.lexsort((np.arange(len(rates)), -rates, brokers))
    first = order[np.unique(brokers[order], return_index=True)[1]]
    hours = week["hour"].take(pa.array(first)).to_pylist()
    return {
        int(brokers[row]): (f"{hour:%a %Y-%m-%d %H:%M} UTC", float(rates[row]))
        for row, hour in zip(first.tolist(), hours, strict=True)
    }


def _partitions(partitions: pa.Table) -> EmbeddedTable:
    """Return the table of the hottest partitions."""
    order = [("leader_share", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    known = partitions.filter(pc.greater(partitions["leader_share"], 0.0))
    hottest = known.sort_by(order).slice(0, PARTITIONS_LISTED) if known.num_rows else known
    rows = [
        {
            "partition": f"{row['topic']}-{row['partition']}",
            "leader": str(row["leader"]),
            "%_of_its_leader": _rounded(row["leader_share"], 0.01),
            "of": _OF[row["leader_resource"]],
            "MiB/s_in": _rounded(row["bytes_in"], _MIB),
            "MiB/s_out": _rounded(row["bytes_out"], _MIB),
            "MiB/s_to_followers": _rounded(row["replication_out"], _MIB),
            "GiB": _rounded(row["size_bytes"], _GIB),
            "method": row["method"],
            "flags": ", ".join(row["flags"] or ()),
        }
        for row in hottest.to_pylist()
    ]
    more = "`surveyor show load --by partition` shows more"
    return EmbeddedTable("load-partitions", "Hottest partitions", _known(rows), ("leader",), ("method",), more)


_OF: Final = {IN: "bytes in", OUT: "bytes out"}
