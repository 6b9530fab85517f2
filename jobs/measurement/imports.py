"""`surveyor load import`: loads, capacities and metrics that other systems know, into the tables.

All files are read and checked, and Prometheus is asked for what it has, before anything is stored.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from msgspec import Struct

from jobs.adapters.prometheus.client import connect
from jobs.core.errors import SurveyorError, UsageError
from jobs.core.units import format_bytes, hour_of, parse_since
from jobs.measurement.capacity_files import read_capacity_file
from jobs.measurement.imported_loads import ImportedLoads, known_loads, store_loads
from jobs.measurement.load_files import read_load_file
from jobs.measurement.prometheus_import import (
    MAX_NAMED,
    ImportedMetrics,
    PrometheusImport,
    PrometheusOptions,
    prepared_import,
)
from jobs.measurement.prometheus_queries import PRESETS, read_query_file
from jobs.repositories.capacities import EVERY_BROKER, Capacity, broker_capacities, store_capacities
from jobs.repositories.loads import newest_window
from jobs.repositories.log_dirs import reported_log_dirs, total_bytes
from jobs.repositories.snapshots import find_snapshot, rows_as_of, with_age
from jobs.runtime.console import CommandResult, Result, log, warn
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from schemas.rows import Broker, Snapshot
from schemas.text import join_ids, pluralise

DEFAULT_WEEKS: Final = 4

FILE: Final = "file"
"""Source of the capacities in a file."""

MAX_DISK_DIFFERENCE: Final = 0.1
"""Share by which a stated disk may differ from a measured one without a warning: file systems reserve a part."""


class ImportSources(Struct, frozen=True, kw_only=True):
    """The files and the server that the caller names, as options of the command line."""

    file: Path | None = None
    capacity: Path | None = None
    prometheus: str | None = None
    prometheus_config: Path | None = None
    weeks: int | None = None
    since: str | None = None
    queries: Path | None = None
    presets: tuple[str, ...] = ()
    selector: str | None = None
    broker_label: str | None = None
    overwrite: bool = False
    skip_unknown: bool = False


class ImportedCapacities(Struct, frozen=True, kw_only=True):
    """Counts of the capacities of a file, fields as in the JSON."""

    file: str
    brokers: list[int]
    """-1 for every broker without a row of its own."""
    rows: int
    changed: int
    """Rows that differ from those recorded before."""
    unknown_brokers: list[int]
    """Brokers that the newest snapshot lacks; their capacities are stored."""

    @property
    def json(self) -> Result:
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @property
    def line(self) -> str:
        """The line for people."""
        own = len({*self.brokers} - {EVERY_BROKER})
        brokers = [pluralise(own, "broker")] * bool(own) + ["every other broker"] * (EVERY_BROKER in self.brokers)
        return f"{self.file}: {pluralise(self.rows, 'row')} of {' and '.join(brokers)}, {self.changed} of them new"


def report_import(settings: Settings, sources: ImportSources, now: datetime | None = None) -> CommandResult:
    """Import all sources, and return the counts by source."""
    moment = now or datetime.now(UTC)
    _refuse_options(sources)
    warehouse = settings.warehouse
    snapshot = find_snapshot(warehouse)
    loads = None if sources.file is None else _read_loads(settings, snapshot, sources.file, sources, moment)
    capacities = [] if sources.capacity is None else read_capacity_file(sources.capacity)
    metrics = None if sources.prometheus is None else _prepared(settings, snapshot, sources, moment)
    fields: Result = {}
    lines = []
    if loads is not None:
        rows, counts = loads
        store_loads(warehouse, snapshot, rows, counts.columns)
        if counts.rows_for_every_hour and (window := newest_window(warehouse)) and window.newest is not None:
            warn("some hours have loads: those of every hour count only in plans, where hours have none")
        fields["file"] = counts.json
        lines.append(counts.line)
        lines += [f"skipped {pluralise(counts.skipped, 'row')}: {', '.join(counts.unknown)}"] * bool(counts.skipped)
    if sources.capacity is not None:
        stored = _store_capacities(settings, sources.capacity, capacities, snapshot, moment)
        fields["capacity"] = stored.json
        lines.append(stored.line)
    if metrics is not None:
        try:
            imported = metrics.run(warehouse, moment)
        except SurveyorError as error:
            for line in lines:
                log(f"surveyor: {line}")
            error.result = fields | error.result
            raise
        fields["prometheus"] = imported.json
        lines.append(imported.line)
        _warn_of_failures(imported)
    return CommandResult(fields, *lines, steps=[*_steps(settings, sources)], warnings=())


def _refuse_options(sources: ImportSources) -> None:
    """Raise UsageError for options without what they belong to."""
    if sources.file is None and sources.capacity is None and sources.prometheus is None:
        raise UsageError("nothing to import: give a FILE of loads, --capacity FILE, or --prometheus URL")
    if sources.file is None and sources.skip_unknown:
        raise UsageError("--skip-unknown is for the partitions of a FILE of loads; give one")
    of_prometheus = (
        "weeks",
        "since",
        "queries",
        "presets",
        "selector",
        "broker_label",
        "overwrite",
    )
    given = [name for name in of_prometheus if getattr(sources, name)]
    if sources.prometheus is None and given:
        option = {"presets": "preset"}.get(given[0], given[0]).replace("_", "-")
        raise UsageError(f"--{option} is for an import by --prometheus URL; give it, too")
    if sources.weeks is not None and sources.since is not None:
        raise UsageError("--weeks and --since both say where an import begins: give one of the two")
    unknown = [preset for preset in sources.presets if preset not in PRESETS]
    if unknown:
        raise UsageError(f"--preset {unknown[0]!r} is not known; known are {', '.join(PRESETS)}")


def _read_loads(
    settings: Settings, snapshot: Snapshot, path: Path, sources: ImportSources, now: datetime
) -> tuple[pa.Table, ImportedLoads]:
    file = read_load_file(path, now)
    return known_loads(settings.warehouse, snapshot, file, skip_unknown=sources.skip_unknown)


def _prepared(settings: Settings, snapshot: Snapshot, sources: ImportSources, now: datetime) -> PrometheusImport:
    text = f"{sources.weeks or DEFAULT_WEEKS}w" if sources.since is None else sources.since
    since = parse_since("--since", text, now)
    if since >= now - timedelta(hours=1):
        raise UsageError(f"--since {sources.since} is less than an hour ago; expected an earlier time")
    options = PrometheusOptions(
        since=hour_of(since),
        file=None if sources.queries is None else read_query_file(sources.queries),
        path=sources.queries,
        presets=sources.presets,
        matchers=(sources.selector or "").strip().removeprefix("{").removesuffix("}"),
        broker_label=sources.broker_label,
        overwrite=sources.overwrite,
    )
    server = connect(str(sources.prometheus), sources.prometheus_config)
    brokers = rows_as_of(settings.warehouse, snapshot, Broker)
    return prepared_import(server, options, brokers, snapshot.topics or 0, now)


def _store_capacities(
    settings: Settings, path: Path, capacities: list[Capacity], snapshot: Snapshot, now: datetime
) -> ImportedCapacities:
    warehouse = settings.warehouse
    named = sorted({row.broker_id for row in capacities})
    known = {row.broker_id for row in rows_as_of(warehouse, snapshot, Broker)}
    unknown = sorted({*named} - known - {EVERY_BROKER})
    changed = store_capacities(warehouse, capacities, FILE, now)
    if unknown:
        warn(
            f"{path} has capacities of brokers {join_ids(unknown)}, which the newest snapshot lacks "
            f"({with_age(snapshot)}): they are stored, and count once the brokers exist"
        )
    different = _differences(capacities, total_bytes(reported_log_dirs(warehouse)))
    for difference in (*different, *broker_capacities(settings, known).notes):
        warn(f"{path}: {difference}")
    return ImportedCapacities(
        file=str(path), brokers=named, rows=len(capacities), changed=changed, unknown_brokers=unknown
    )


def _differences(capacities: list[Capacity], measured: dict[int, int]) -> Iterator[str]:
    """Yield the disks that differ from the measured ones; the file's count."""
    stated: dict[int, float] = {}
    for row in capacities:
        if row.resource == "disk" and row.capacity is not None:
            stated[row.broker_id] = stated.get(row.broker_id, 0.0) + row.capacity
    if EVERY_BROKER in stated:
        stated = dict.fromkeys(measured, stated[EVERY_BROKER]) | stated
    different = [
        f"the disk of broker {broker} is {format_bytes(stated[broker])}, and {format_bytes(size)} by `surveyor sizes`"
        for broker, size in sorted(measured.items())
        if broker in stated and abs(stated[broker] - size) > MAX_DISK_DIFFERENCE * size
    ]
    yield from different[:MAX_NAMED]
    if len(different) > MAX_NAMED:
        yield f"the disks of {len(different) - MAX_NAMED} more brokers differ, too"


def _warn_of_failures(imported: ImportedMetrics) -> None:
    for failure in imported.failed[:MAX_NAMED]:
        period = f"{failure.first_hour:%Y-%m-%d %H:00} to {failure.last_hour:%Y-%m-%d %H:00} UTC"
        warn(f"{failure.metric} is missing from {period}: {failure.reason}")
    more = len(imported.failed) - MAX_NAMED
    if more > 0:
        warn(f"{pluralise(more, 'other failure')}, which --json lists")


def _steps(settings: Settings, sources: ImportSources) -> Iterator[Suggestion]:
    if sources.file is not None:
        yield suggestion(settings, "compute what plans use", "load", "profile")
    if newest_window(settings.warehouse) is not None:
        yield suggestion(settings, "show the load of brokers", "show", "load", "--by", "broker")
