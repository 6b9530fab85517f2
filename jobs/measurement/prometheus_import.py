"""Imports weeks of broker and topic metrics from Prometheus into table `broker_metrics`, hour by hour.

A day is requested, and stored in one commit, at a time. An interrupted import continues where it stopped, because hours
that are stored are not requested again. A range that is too much for the server is requested in halves. Queries that
fail cost only their own rows, which a repeated import requests again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse, quote_literal
from jobs.adapters.prometheus.client import Prometheus, PrometheusError, Series
from jobs.core.arrow_rows import values_of
from jobs.core.errors import UnreadableError
from jobs.core.units import Part, hour_of
from jobs.measurement.broker_labels import BrokerHosts, BrokerLabel, differing_labels
from jobs.measurement.prometheus_queries import NAMES, Preset, Query, QueryFile, detected_presets
from jobs.repositories.capacities import Capacity, store_capacities
from jobs.repositories.loads import HOUR
from jobs.runtime.console import Result, log, warn
from jobs.runtime.progress import progress
from schemas.rows import Broker, BrokerMetric
from schemas.text import join_ids, pluralise

SOURCE: Final = "prometheus"

MAX_LAG: Final = timedelta(minutes=5)
"""Time after which Prometheus has the values of an hour."""

MAX_RESETS: Final = 12
"""Decreases of a counter in an hour above which it is none: a broker does not restart every five minutes."""

MAX_VALUES: Final = 1_000_000
"""Values of a response, by the number of brokers and topics; they take 400 MB of memory."""

MAX_NAMED: Final = 5
"""Labels and failures that a message names."""


class PrometheusOptions(Struct, frozen=True, kw_only=True):
    """What to request: from `since` on, by a file or presets; `matchers` are of labels, as `job="kafka"`."""

    since: datetime
    file: QueryFile | None = None
    path: Path | None = None
    """Path of `file`."""
    presets: Sequence[str] = ()
    matchers: str = ""
    broker_label: str | None = None
    overwrite: bool = False
    """Whether hours that are stored are requested again."""


class Failure(Struct, frozen=True):
    """A query that failed for some hours."""

    metric: str
    first_hour: datetime
    last_hour: datetime
    reason: str


class ImportedMetrics(Struct, kw_only=True):
    """Counts of the stored rows, fields as in the JSON."""

    url: str
    presets: list[str]
    """Presets, and the file of queries."""
    brokers: list[int] = []
    """Brokers with rows in this import."""
    first_hour: datetime
    last_hour: datetime
    hours: int = 0
    """Hours with rows in this import."""
    skipped_hours: int = 0
    """Hours that were stored before."""
    rows: dict[str, int] = {}
    """Rows by metric."""
    capacities: int = 0
    """Capacities that differ from those recorded before."""
    failed: list[Failure] = []

    @property
    def json(self) -> Result:
        fields: Result = msgspec.to_builtins(self)
        return fields

    @property
    def line(self) -> str:
        """The line for people."""
        before = f"{pluralise(self.skipped_hours, 'hour')} stored before"
        if not self.rows:
            return f"{self.url}: nothing new, {before}"
        of = f"of {pluralise(len(self.brokers), 'broker')} in {pluralise(self.hours, 'hour')}"
        rows = ", ".join(f"{metric} {count}" for metric, count in sorted(self.rows.items()))
        return f"{self.url}: {pluralise(sum(self.rows.values()), 'row')} {of}, {before}: {rows}"


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query whose results name brokers by a label, None to find it among the labels of the results."""

    query: Query
    label: BrokerLabel | None = None
    given_label: str | None = None
    """The label that the caller names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusImport:
    """An import whose presets and labels are known."""

    server: Prometheus
    options: PrometheusOptions
    until: datetime
    """End of the last hour."""
    hosts: BrokerHosts
    topics: int
    """Topics of the cluster."""
    sources: Sequence[str]
    """Names of presets, and the file of queries."""
    queries: Sequence[LabelledQuery]
    capacities: Sequence[LabelledQuery]
    """Queries of capacities; the resource is the metric."""

    def run(self, warehouse: Warehouse, now: datetime) -> ImportedMetrics:
        """Store the hours that are not stored yet; raise UnreadableError if Prometheus stops to respond."""
        warehouse.ensure_tables()
        days = list(_days(self.options.since, self.until))
        result = ImportedMetrics(
            url=self.server.url, presets=[*self.sources], first_hour=self.options.since, last_hour=self.until - HOUR
        )
        done = _Done()
        with progress(
            "asking Prometheus", lambda: Part(done.days, len(days), f"days, {sum(result.rows.values())} rows")
        ):
            for hours in days:
                self._import_day(warehouse, hours, result, done)
                done.days += 1
        result.capacities = store_capacities(warehouse, self._capacities(result), SOURCE, now)
        result.brokers = sorted(done.brokers)
        return result

    def _import_day(
        self, warehouse: Warehouse, hours: Sequence[datetime], result: ImportedMetrics, done: "_Done"
    ) -> None:
        stored = set() if self.options.overwrite else _stored_hours(warehouse, hours)
        tables, conditions, requested = [], [], set[datetime]()
        for labelled in self.queries:
            query = labelled.query
            missing = [hour for hour in hours if (query.metric, query.by_topic, hour) not in stored]
            if not missing:
                continue
            requested.update(missing)
            for first, last, series in self._request_all(labelled, missing[0], missing[-1], result):
                rows = metric_rows(warehouse.cluster, query, self._label_of(labelled, series), series)
                if rows.num_rows:
                    result.rows[query.metric] = result.rows.get(query.metric, 0) + rows.num_rows
                tables.append(rows)
                conditions.append(_condition(query, first, last))
        written = pa.concat_tables(tables) if tables else schema_of(BrokerMetric.TABLE).empty_table()
        if conditions:
            warehouse.replace_by(BrokerMetric.TABLE, written, " OR ".join(conditions))
        result.hours += pc.count_distinct(written["sampled_at"]).as_py()
        result.skipped_hours += len({*hours} - requested)
        done.brokers.update(pc.unique(written["broker_id"]).to_pylist())

    def _request_all(
        self, labelled: LabelledQuery, first: datetime, last: datetime, result: ImportedMetrics
    ) -> Iterator[tuple[datetime, datetime, list[Series]]]:
        """Yield ranges of hours with their series, of about MAX_VALUES values each."""
        series = len(self.hosts.ids) * (self.topics if labelled.query.by_topic else 1)
        length = max(1, MAX_VALUES // max(1, series)) * HOUR
        while first <= last:
            yield from self._request(labelled, first, min(last, first + length - HOUR), result)
            first += length

    def _request(
        self, labelled: LabelledQuery, first: datetime, last: datetime, result: ImportedMetrics
    ) -> Iterator[tuple[datetime, datetime, list[Series]]]:
        """Yield ranges of hours with their series; a query is evaluated at the end of each hour."""
        start, end = ((hour + HOUR).timestamp() for hour in (first, last))
        try:
            yield first, last, self.server.query_range(labelled.query.promql, start, end, HOUR.total_seconds())
        except PrometheusError as error:
            if error.is_down:
                raise UnreadableError(
                    f"{error}; stopped at {first:%Y-%m-%d}, earlier days are stored. The same command continues",
                    {"prometheus": result.json},
                ) from None
            if error.is_too_much and first < last:
                middle = first + (last - first) // HOUR // 2 * HOUR
                yield from self._request(labelled, first, middle, result)
                yield from self._request(labelled, middle + HOUR, last, result)
            else:
                result.failed.append(Failure(labelled.query.metric, first, last, str(error)))

    def _label_of(self, labelled: LabelledQuery, series: Sequence[Series]) -> BrokerLabel:
        if labelled.label is not None:
            return labelled.label
        found = self.hosts.label_among([one.metric for one in series], labelled.given_label)
        if found is None and series:
            warn(
                f"no label of {labelled.query.promql!r} names a broker: {_labels_text([one.metric for one in series])}"
            )
        return found or BrokerLabel("", {})

    def _capacities(self, result: ImportedMetrics) -> list[Capacity]:
        """Return the newest capacities; a query that fails has none."""
        found = {}
        for labelled in self.capacities:
            resource = labelled.query.metric
            try:
                series = self.server.query(labelled.query.promql, self.until.timestamp())
            except PrometheusError as error:
                result.failed.append(Failure(f"capacity of {resource}", self.until, self.until, str(error)))
                continue
            label = self._label_of(labelled, series)
            for one in series:
                broker = label.brokers.get(one.metric.get(label.name, ""))
                value = float(one.value[1]) if one.value else 0.0
                if broker is not None and 0 < value < np.inf:
                    found[broker, resource] = Capacity(broker, None, resource, value, None)
        return [*found.values()]


@dataclass(slots=True)
class _Done:
    """What an import has done so far."""

    days: int = 0
    brokers: set[int] = field(default_factory=set)


def _days(since: datetime, until: datetime) -> Iterator[list[datetime]]:
    """Yield the hours from `since` to before `until` by day."""
    hour, day = since, list[datetime]()
    while hour < until:
        day.append(hour)
        hour += HOUR
        if hour.hour == 0 or hour >= until:
            yield day
            day = []


def _stored_hours(warehouse: Warehouse, hours: Sequence[datetime]) -> set[tuple[str, bool, datetime]]:
    """Return the metrics and hours with rows of Prometheus, with whether they are by topic."""
    limits = (("source", "=", SOURCE), ("sampled_at", ">=", hours[0]), ("sampled_at", "<=", hours[-1]))
    rows = warehouse.read(BrokerMetric.TABLE, *limits, columns=["metric", "topic", "sampled_at"])
    marked = rows.set_column(1, "by_topic", pc.is_valid(rows["topic"]))
    distinct = marked.group_by(marked.column_names).aggregate([])
    return {*values_of(distinct, *marked.column_names)}


def _condition(query: Query, first: datetime, last: datetime) -> str:
    """Return the condition of the rows that a query replaces."""
    topic = "IS NOT NULL" if query.by_topic else "IS NULL"
    return (
        f"(source = {quote_literal(SOURCE)} AND metric = {quote_literal(query.metric)} AND topic {topic} "
        f"AND sampled_at >= '{first.isoformat()}' AND sampled_at <= '{last.isoformat()}')"
    )


def metric_rows(cluster: str, query: Query, label: BrokerLabel, series: Sequence[Series]) -> pa.Table:
    """Return rows of BROKER_METRICS for the series of known brokers; of two series of one broker the greater values.

    Values that are no numbers, or negative, are left out.
    """
    known = [
        (broker, topic or None, one.values)
        for one in series
        if (broker := label.brokers.get(one.metric.get(label.name, ""))) is not None
        and bool(topic := one.metric.get("topic", "") if query.by_topic else "") == query.by_topic
    ]
    counts = np.array([len(values) for _, _, values in known], dtype=np.int64)
    of_row = np.repeat(np.arange(len(known)), counts)
    points = list(chain.from_iterable(values for _, _, values in known))
    ends = np.array([end for end, _ in points], dtype=np.float64)
    values = np.array([value for _, value in points], dtype=np.float64)
    is_kept = np.isfinite(values) & (values >= 0)
    hours = (np.rint(ends).astype(np.int64) - int(HOUR.total_seconds())) * 1_000_000
    rows = pa.table(
        {
            "sampled_at": pa.array(hours[is_kept], pa.timestamp("us", "UTC")),
            "broker_id": pa.array([broker for broker, _, _ in known], pa.int32()).take(pa.array(of_row[is_kept])),
            "topic": pa.array([topic for _, topic, _ in known], pa.string()).take(pa.array(of_row[is_kept])),
            "value": pa.array(values[is_kept]),
        }
    )
    if len({(broker, topic) for broker, topic, _ in known}) < len(known):
        greatest = rows.group_by(["sampled_at", "broker_id", "topic"]).aggregate([("value", "max")])
        rows = greatest.rename_columns([name.removesuffix("_max") for name in greatest.column_names])
    constants = {"cluster": cluster, "metric": query.metric, "source": SOURCE}
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    schema = schema_of(BrokerMetric.TABLE)
    return rows.select(schema.names).cast(schema)


def prepared_import(
    server: Prometheus, options: PrometheusOptions, brokers: Sequence[Broker], topics: int, now: datetime
) -> PrometheusImport:
    """Find the presets and the labels of brokers; raise UnreadableError if there are none.

    `topics` is the number of topics.
    """
    until = hour_of(now - MAX_LAG)
    hosts = BrokerHosts(brokers)
    file, queries, capacities, sources = options.file, list[LabelledQuery](), list[LabelledQuery](), list[str]()
    if file is not None:
        label = file.broker_label or options.broker_label
        queries += [LabelledQuery(query, given_label=label) for query in file.queries]
        capacities += [LabelledQuery(Query(name, text), given_label=label) for name, text in file.capacity.items()]
        sources.append(str(options.path))
    if file is None or options.presets:
        for preset, found in _usable_presets(server, options, hosts, until):
            known = {(labelled.query.metric, labelled.query.by_topic) for labelled in queries}
            new = [query for query in preset.queries_by(found.name) if (query.metric, query.by_topic) not in known]
            if new:
                queries += [LabelledQuery(query, found) for query in new]
                stated = preset.capacities_by(found.name)
                capacities += [LabelledQuery(Query(name, text), found) for name, text in stated.items()]
                sources.append(preset.name)
                brokers_text = join_ids(sorted({*found.brokers.values()}))
                log(f"surveyor: preset {preset.name}: label {found.name} names brokers {brokers_text}")
    return PrometheusImport(
        server=server,
        options=options,
        until=until,
        hosts=hosts,
        topics=topics,
        sources=sources,
        queries=queries,
        capacities=capacities,
    )


def _usable_presets(
    server: Prometheus, options: PrometheusOptions, hosts: BrokerHosts, until: datetime
) -> list[tuple[Preset, BrokerLabel]]:
    """Return the presets with a series of a broker, and the label that names brokers."""
    period = options.since.timestamp(), until.timestamp()
    presets = detected_presets(server.metric_names(NAMES, *period), options.matchers, options.presets)
    usable, reasons = [], list[str]()
    for preset in presets:
        series = server.label_sets(preset.selector, *period)
        label = hosts.label_among(series, options.broker_label)
        if label is None:
            labels = f", and no label of its {len(series)} series names a broker: {_labels_text(series)}"
            reasons.append(f"{preset.name} has no series {preset.selector}" if not series else preset.name + labels)
        elif preset.is_counter and _is_gauge(server, preset.selector, until):
            reasons.append(f"{preset.name}: {preset.selector} is no counter; give queries for it by --queries")
        else:
            usable.append((preset, label))
            _warn_of_labels(preset, series, label, hosts)
    for reason in reasons if usable else ():
        log(f"surveyor: preset {reason}")
    if not usable:
        found = "; ".join(reasons) or f"it has none of the metrics {NAMES.removeprefix('(?i)')}"
        raise UnreadableError(
            f"{server.url} has no metrics of these brokers from {options.since:%Y-%m-%d} on: {found}; their hosts are "
            f"{_shortened(hosts.names)}",
            advice="give --broker-label or --selector, or queries of your own by --queries",
        )
    return usable


def _is_gauge(server: Prometheus, selector: str, until: datetime) -> bool:
    """Return whether the values of a series decrease too often for a counter."""
    resets = server.query(f"max(resets({selector}[1h]))", until.timestamp())
    return any(one.value is not None and float(one.value[1]) > MAX_RESETS for one in resets)


def _warn_of_labels(
    preset: Preset, series: Sequence[Mapping[str, str]], label: BrokerLabel, hosts: BrokerHosts
) -> None:
    differing = differing_labels(series, label)
    if differing:
        text = "; ".join(f"{name}: {_shortened(values)}" for name, values in differing.items())
        warn(
            f"preset {preset.name} has several series of one broker, with different {text}. The greatest values count; "
            "choose one cluster's series by --selector"
        )
    missing = hosts.ids - {*label.brokers.values()}
    if missing:
        others = [f"{value} ({reason})" for value, reason in label.others.items()]
        named = f"; values of {label.name} that name none: {_shortened(others)}" if others else ""
        warn(f"preset {preset.name} has no series of brokers {join_ids(sorted(missing))}{named}")


def _labels_text(series: Sequence[Mapping[str, str]]) -> str:
    """Return labels with an example of their values."""
    examples = {name: value for labels in series for name, value in labels.items() if name != "__name__"}
    return _shortened([f'{name}="{value}"' for name, value in sorted(examples.items())])


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
