"""`surveyor metrics`: metrics for Prometheus, printed, written to a file for node_exporter, or served over HTTP.

The name of every metric family starts with `surveyor_`, and every sample has the label `cluster`. Metrics that are
unknown before the first snapshot are omitted, so that they are not mistaken for zero.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.addresses import parse_address
from jobs.core.errors import ExitCode, SurveyorError, UsageError
from jobs.core.logs import fleet_cluster_scope
from jobs.repositories.plans.commit_log import Outcomes, read_outcomes
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.warehouse_status import WarehouseStatus, read_warehouse_status
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import CommandResult, log
from jobs.runtime.fleet import worst_code
from jobs.runtime.metrics_server import MetricsCollector, MetricsServer
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from jobs.snapshots.fleet_health import health_at
from jobs.snapshots.health import Health
from schemas.enums import Outcome


class MetricFamilies:
    """Makes the metrics of one cluster."""

    __slots__ = ()
    cluster: str

    def gauge(self, name: str, text: str, value: float | None) -> Metric:
        """Return a gauge with one value, or with no sample if it is None."""
        return self.by("", name, text, {} if value is None else {"": value})

    def by(
        self,
        label: str,
        name: str,
        text: str,
        values: Mapping[Any, float],
        family: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
    ) -> Metric:
        """Return a metric with a sample for each key of `values`."""
        metric = family(f"surveyor_{name}", text, labels=["cluster", *([label] if label else [])])
        for key, value in values.items():
            metric.add_metric([self.cluster, *([str(key)] if label else [])], value)
        return metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures(MetricFamilies):
    """The data of one cluster from which metrics are computed."""

    cluster: str
    now: datetime
    recent: WarehouseStatus
    health: Health | None
    """Health at the last snapshot; None before the first."""
    outcomes: Outcomes

    def seconds_since(self, moment: datetime | None) -> float | None:
        return None if moment is None else round((self.now - moment).total_seconds(), 3)


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
    return ClusterFigures(
        cluster=settings.cluster,
        now=now,
        recent=recent,
        health=None if recent.snapshot is None else health_at(warehouse, recent.snapshot, threshold, drained),
        outcomes=read_outcomes(warehouse),
    )


def families(figures: ClusterFigures) -> Iterator[Metric]:
    """Return the metric families of one cluster."""
    for group in GROUPS:
        yield from group(figures)


def _of_snapshot(figures: ClusterFigures) -> Iterator[Metric]:
    last = figures.recent.snapshot
    number, taken_at, seconds = (None, None, None) if last is None else (last.snapshot_id, last.taken_at, last.seconds)
    yield figures.gauge("has_snapshot", "Whether the cluster has a snapshot, 0 or 1.", int(last is not None))
    yield figures.gauge("snapshot_id", "Id of the last snapshot.", number)
    yield figures.gauge(
        "last_snapshot_timestamp_seconds",
        "Start time of the last snapshot.",
        None if taken_at is None else taken_at.timestamp(),
    )
    yield figures.gauge(
        "last_snapshot_age_seconds",
        "Age of the last snapshot when these metrics were computed.",
        figures.seconds_since(taken_at),
    )
    yield figures.gauge("last_snapshot_duration_seconds", "Duration of the last snapshot.", seconds)


def _of_partitions(figures: ClusterFigures) -> Iterator[Metric]:
    if (health := figures.health) is None:
        return
    yield figures.gauge("topics", "Topics.", health.topics)
    yield figures.gauge("partitions", "Partitions.", health.partitions)
    for name, text in PARTITIONS.items():
        yield figures.gauge(f"{name}_partitions", text, getattr(health, name))
    yield figures.gauge("quarantined_znodes", QUARANTINED, health.quarantined)
    yield figures.gauge("blocking_znodes", "Znodes that prevent a part of Kafka from starting.", len(health.blocking))
    yield figures.gauge("topic_configs_not_understood", CONFIGS_NOT_UNDERSTOOD, health.configs_not_understood)


BROKERS: Final = "Brokers: live, gone (unregistered but in use by partitions), not_understood (live as well)."
CONFIGS_NOT_UNDERSTOOD: Final = "Topics whose config could not be decoded completely; it allows no unclean election."
QUARANTINED: Final = "Znodes, or in KRaft responses, that are not understood."

PARTITIONS: Final[Mapping[str, str]] = {
    "offline": "Partitions without a live leader.",
    "under_replicated": "Partitions with a replica that is not in sync.",
    "under_min_isr": "Partitions with fewer in-sync replicas than min.insync.replicas.",
    "moving": "Partitions with a running or requested reassignment.",
    "without_state": "Partitions with an assignment that never had a leader.",
    "leader_outside_isr": "Partitions led by a live broker that is not in the ISR; Kafka does not change them.",
    "not_understood": "Partitions that are not understood; they may be moving, but have no other state.",
    "repairable": "Partitions that `plan reconcile` can repair without data loss.",
    "offline_without_isr": "Offline partitions without an in-sync replica that can lead.",
    "led_by_drained": "Partitions led by a drained broker, because no other replica was in sync.",
}
"""Counts of Health with a metric family each."""


def _of_brokers(figures: ClusterFigures) -> Iterator[Metric]:
    if (health := figures.health) is None:
        return
    brokers = {"live": len(health.live), "gone": len(health.gone), "not_understood": len(health.not_understood_brokers)}
    yield figures.by("status", "brokers", BROKERS, brokers)
    yield figures.by("broker", "gone_broker_partitions", "Partitions that refer to a broker that is gone.", health.gone)
    yield figures.gauge("controller_id", "Id in /controller, -1 for none.", health.controller_id)
    yield figures.gauge("controller_epoch", "Number in /controller_epoch.", health.controller_epoch)
    yield figures.gauge("drained_brokers", "Drained brokers.", len(figures.recent.drained))
    for name, column, text in IMBALANCE:
        values = {row.broker_id: getattr(row, column) for row in health.imbalance}
        yield figures.by("broker", name, text, values)


IMBALANCE: Final = (
    ("preferred_partitions", "preferred_partitions", "Partitions whose preferred leader is this broker."),
    (
        "preferred_partitions_not_led",
        "not_led",
        "Partitions whose preferred replica is this broker but that it does not lead.",
    ),
    (
        "imbalance_ratio",
        "ratio",
        "Share of the partitions whose preferred replica is this broker that it does not lead.",
    ),
)


def _of_plans(figures: ClusterFigures) -> Iterator[Metric]:
    outcomes = figures.outcomes
    yield figures.by("status", "plans", "Plans by status, without the cycles of `surveyor control`.", outcomes.plans)
    done = {outcome: count for outcome, count in outcomes.rows.items() if outcome != Outcome.PENDING}
    yield figures.by(
        "outcome",
        "commit_rows_total",
        "Rows of plans processed by commits, by outcome.",
        done,
        CounterMetricFamily,
    )
    yield figures.gauge(
        "commit_rows_pending",
        "Rows with a recorded intent to write and no recorded outcome.",
        outcomes.rows[Outcome.PENDING],
    )
    last = outcomes.last_commit_at
    yield figures.gauge(
        "last_commit_timestamp_seconds",
        "Time of the last record of a commit.",
        None if last is None else last.timestamp(),
    )
    yield figures.gauge(
        "last_commit_age_seconds",
        "Age of the last record of a commit when these metrics were computed.",
        figures.seconds_since(last),
    )


GROUPS: Final[tuple[Callable[[ClusterFigures], Iterator[Metric]], ...]] = (
    _of_snapshot,
    _of_partitions,
    _of_brokers,
    _of_plans,
)
