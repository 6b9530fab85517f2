"""`surveyor metrics`: metrics for Prometheus, printed, written to a file for node_exporter, or served over HTTP.

Metrics that are unknown before the first snapshot are omitted, so that they are not mistaken for zero.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily

from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.addresses import parse_address
from jobs.core.errors import ExitCode, SurveyorError, UsageError
from jobs.core.logs import fleet_cluster_scope
from jobs.core.units import age_seconds
from jobs.measurement.load_summary import LoadSummary, LoadTimes, read_load_summary, read_load_times
from jobs.repositories.loads import HOUR
from jobs.repositories.plans.commit_log import Outcomes, read_outcomes
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.warehouse_status import WarehouseStatus, read_warehouse_status
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import CommandResult, log
from jobs.runtime.fleet import worst_code
from jobs.runtime.metric_families import MetricFamilies
from jobs.runtime.metrics_server import MetricsCollector, MetricsServer
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from jobs.snapshots.fleet_health import health_at
from jobs.snapshots.health import Health
from planner.load.findings import shares_of, unevenness
from planner.load.resources import RESOURCES
from schemas.enums import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures(MetricFamilies):
    """The data of one cluster from which metrics are computed."""

    cluster: str
    now: datetime
    recent: WarehouseStatus
    health: Health | None
    """Health at the last snapshot; None before the first."""
    outcomes: Outcomes
    load_times: LoadTimes
    load: LoadSummary | None
    """Loads of the newest hour; None if there are none, or if they are older than a day."""

    def times(self, event: str, moment: datetime | None) -> Iterator[Metric]:
        """Return when an event happened last, and how long ago."""
        yield self.gauge(f"{event}_timestamp_seconds", None if moment is None else moment.timestamp())
        age = None if moment is None else round(age_seconds(moment, self.now), 3)
        yield self.gauge(f"{event}_age_seconds", age)


def write_metrics(settings: Settings, out: Path | None, listen: str | None) -> ExitCode:
    """Print the metrics, write them to a file, or serve them until interrupted; return the exit code."""
    if listen is None:
        return _write(settings, out)
    if out is not None or not settings.for_people:
        raise UsageError("--listen serves the metrics, while --out, --json and -o write them once; choose one of these")
    _serve(settings, listen)
    return ExitCode.DONE


def _write(settings: Settings, out: Path | None) -> ExitCode:
    if out is not None:
        refuse_unwritable(out)
    metrics, code = read_metrics(settings)
    result = {
        "samples": [
            {"name": sample.name, "type": metric.type, "labels": sample.labels, "value": sample.value}
            for metric in metrics
            for sample in metric.samples
        ]
    }
    text = generate_latest(MetricsCollector(lambda: metrics)).decode()
    if out is None:
        emit(settings, CommandResult(result))
        if settings.for_people:
            print(text, end="")  # noqa: T201 - the text that Prometheus reads
        return code
    replace_file(out, text)
    emit(settings, CommandResult(result, f"{len(result['samples'])} samples written to {out}"))
    return code


def _serve(settings: Settings, listen: str) -> None:
    """Serve the metrics; they are computed for each request.

    A read error at the start ends the command, because it is most likely a wrong option. Later errors may be temporary.
    """
    address = parse_address("--listen", listen)
    read_metrics(settings)
    with MetricsServer(address, lambda: read_metrics(settings)[0]) as server:
        log(f"surveyor: metrics at {server.url}; press Ctrl-C to stop")
        server.serve_forever()


def read_metrics(settings: Settings) -> tuple[list[Metric], ExitCode]:
    """Return the metrics of all clusters that have samples, and the worst exit code of clusters that failed.

    A single cluster must have a snapshot. Of several clusters, a failed one is logged and left out, unless all fail. A
    name may occur only once, so metrics of several clusters are merged by name.
    """
    if not settings.fleet:
        find_snapshot(settings.warehouse)
    merged: dict[str, Metric] = {}
    errors = dict[str, SurveyorError]()
    for cluster in settings.fleet or (settings,):
        try:
            cluster.refuse_invalid_section()
            figures = read_figures(cluster, datetime.now(UTC))
        except SurveyorError as error:
            errors[cluster.cluster] = error
            if len(errors) == (len(settings.fleet) or 1):
                raise
            continue
        for metric in families(figures):
            merged.setdefault(metric.name, metric)
            if merged[metric.name] is not metric:
                merged[metric.name].samples += metric.samples
    for name, failure in errors.items():
        with fleet_cluster_scope(name):
            log(f"surveyor: {failure}", logging.WARNING, exit_code=int(failure.exit_code))
    worst = worst_code(failure.exit_code for failure in errors.values())
    return [metric for metric in merged.values() if metric.samples], worst


def read_figures(settings: Settings, now: datetime) -> ClusterFigures:
    """Read the data of one cluster; raise UnreadableError if there is no warehouse."""
    warehouse = settings.warehouse
    if not warehouse.exists():
        raise no_warehouse(settings.warehouse_uri, "take a `surveyor snapshot` first")
    recent, threshold = read_warehouse_status(warehouse), settings.conf.imbalance_threshold
    drained = [row.broker_id for row in recent.drained]
    times = read_load_times(warehouse)
    return ClusterFigures(
        cluster=settings.cluster,
        now=now,
        recent=recent,
        health=None if recent.snapshot is None else health_at(warehouse, recent.snapshot, threshold, drained),
        outcomes=read_outcomes(warehouse),
        load_times=times,
        load=read_load_summary(settings, times.window, recent.snapshot)
        if times.window and times.is_recent(now)
        else None,
    )


def families(figures: ClusterFigures) -> Iterator[Metric]:
    """Return the metric families of one cluster."""
    last, outcomes = figures.recent.snapshot, figures.outcomes
    yield figures.gauge("has_snapshot", int(last is not None))
    yield figures.gauge("snapshot_id", None if last is None else last.snapshot_id)
    yield from figures.times("last_snapshot", None if last is None else last.taken_at)
    yield figures.gauge("last_snapshot_duration_seconds", None if last is None else last.seconds)
    if figures.health is not None:
        yield from _of_health(figures, figures.health)
    yield figures.by("status", "plans", outcomes.plans)
    done = {outcome: count for outcome, count in outcomes.rows.items() if outcome != Outcome.PENDING}
    yield figures.by("outcome", "commit_rows_total", done, CounterMetricFamily)
    yield figures.gauge("commit_rows_pending", outcomes.rows[Outcome.PENDING])
    yield from figures.times("last_commit", outcomes.last_commit_at)
    hour = figures.load_times.hour
    yield from figures.times("last_load", None if hour is None else hour + HOUR)
    yield from figures.times("last_load_sample", figures.load_times.sampled_at)
    yield from _of_load(figures, figures.load)


def _of_health(figures: ClusterFigures, health: Health) -> Iterator[Metric]:
    yield figures.gauge("topics", health.topics)
    yield figures.gauge("partitions", health.partitions)
    for name in PARTITION_COUNTS:
        yield figures.gauge(f"{name}_partitions", getattr(health, name))
    yield figures.gauge("quarantined_znodes", health.quarantined)
    yield figures.gauge("blocking_znodes", len(health.blocking))
    yield figures.gauge("topic_configs_not_understood", health.configs_not_understood)
    brokers = {"live": len(health.live), "gone": len(health.gone), "not_understood": len(health.not_understood_brokers)}
    yield figures.by("status", "brokers", brokers)
    yield figures.by("broker", "gone_broker_partitions", health.gone)
    yield figures.gauge("controller_id", health.controller_id)
    yield figures.gauge("controller_epoch", health.controller_epoch)
    yield figures.gauge("drained_brokers", len(figures.recent.drained))
    for name, column in IMBALANCE.items():
        yield figures.by("broker", name, {row.broker_id: getattr(row, column) for row in health.imbalance})


def _of_load(figures: ClusterFigures, load: LoadSummary | None) -> Iterator[Metric]:
    """Return the loads of brokers; a family has no samples where nothing is known."""
    loads = load.loads if load else []
    for name, column in BROKER_LOADS.items():
        known = {row.broker_id: getattr(row, column) for row in loads if getattr(row, column) is not None}
        yield figures.by("broker", f"broker_{name}", known)
    shares = {row.broker_id: shares_of(row, load.capacities) for row in loads} if load else {}
    for resource in RESOURCES:
        of_resource = {broker: share[resource] for broker, share in shares.items() if resource in share}
        yield figures.by("broker", f"broker_{resource}_used_ratio", of_resource)
    yield figures.by(
        ("broker", "log_dir"),
        "broker_disk_full_timestamp_seconds",
        {
            (broker, path): disk["full_at"].timestamp()
            for broker, disks in (load.filling_by_broker if load else {}).items()
            for disk in disks
            if disk["full_at"] is not None
            for path in disk["log_dirs"] or ("",)
        },
    )
    ratios = {one.resource: one.ratio for one in unevenness(load.shared, load.capacities)} if load else {}
    yield figures.by("resource", "load_worst_broker_ratio", ratios)
    yield figures.gauge("partitions_without_load", load.without_load if load else None)


PARTITION_COUNTS: Final = (
    *("offline", "under_replicated", "under_min_isr", "moving", "without_state", "leader_outside_isr"),
    *("not_understood", "repairable", "offline_without_isr", "led_by_drained"),
)
"""Counts of Health with a metric family each."""

IMBALANCE: Final = {
    "preferred_partitions": "preferred_partitions",
    "preferred_partitions_not_led": "not_led",
    "imbalance_ratio": "ratio",
}
"""The columns of the imbalance by metric family."""

BROKER_LOADS: Final = {
    **{name: name for name in ("bytes_in", "replication_in", "bytes_out", "replication_out", "size_bytes")},
    "cpu_percent": "cpu",
}
"""The columns of the load of a broker by metric family."""
