"""`surveyor metrics`: metrics for Prometheus, printed, written to a file for node_exporter, or served over HTTP.

The name of every metric family starts with `surveyor_`, and every sample has the label `cluster`. Metrics that are
unknown before the first snapshot are omitted, so that they are not mistaken for zero. It needs no JVM.
"""

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import Metric, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer

from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.errors import SurveyorError, UsageError
from jobs.repositories.plans.commit_log import Outcomes, read_outcomes
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.warehouse_status import WarehouseStatus, default_min_isr_of, read_warehouse_status
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import emit_result, log
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import Health, health_of
from schemas.enums import Outcome

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"

LOOPBACK: Final = "127.0.0.1"
"""Where the metrics are served unless another address is given, since any client that connects can read them."""

REQUEST_TIMEOUT_SECONDS: Final = 10.0
"""Seconds after which an idle connection is closed."""

_ADDRESS: Final = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])?:)?(?P<port>[0-9]{1,5})", re.ASCII)
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The data of one cluster from which metrics are computed."""

    cluster: str
    now: datetime
    recent: WarehouseStatus
    health: Health | None
    """Health at the last snapshot; None before the first."""
    outcomes: Outcomes

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

    def seconds_since(self, moment: datetime | None) -> float | None:
        return None if moment is None else round((self.now - moment).total_seconds(), 3)


def write_metrics(settings: Settings, out: Path | None, listen: str | None) -> None:
    """Print the metrics, write them to a file, or serve them until interrupted."""
    if listen is None:
        _write(settings, out)
    elif out is not None or not settings.for_people:
        raise UsageError("--listen serves the metrics, while --out, --json and -o write them once; choose one of these")
    else:
        _serve(settings, listen)


def _write(settings: Settings, out: Path | None) -> None:
    if out is not None:
        refuse_unwritable(out)
    metrics = read_metrics(settings)
    result = {
        "samples": [
            {"name": sample.name, "type": metric.type, "labels": sample.labels, "value": sample.value}
            for metric in metrics
            for sample in metric.samples
        ]
    }
    text = generate_latest(MetricsCollector(lambda: metrics)).decode()
    if out is None:
        emit_result(settings, result)
        if settings.for_people:
            print(text, end="")  # noqa: T201 - the text that Prometheus reads
        return
    replace_file(out, text)
    emit_result(settings, result, f"{len(result['samples'])} samples written to {out}")


def _serve(settings: Settings, listen: str) -> None:
    """Serve the metrics; they are computed for each request.

    A read error at the start ends the command, because it is most likely a wrong option. Later errors may be temporary.
    """
    address = parse_address("--listen", listen)
    read_metrics(settings)
    with MetricsServer(address, lambda: read_metrics(settings)) as server:
        log(f"surveyor: metrics at {server.url}; press Ctrl-C to stop")
        server.serve_forever()


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT; the default host is the loopback address.

    >>> parse_address("--listen", "9308"), parse_address("--listen", "[::]:9308")
    (('127.0.0.1', 9308), ('::', 9308))
    """
    parts = _ADDRESS.fullmatch(text)
    if parts is None or int(parts["port"]) > _LAST_PORT:
        raise UsageError(f"{option} {text!r} is no address: expected HOST:PORT, or PORT on the loopback")
    return (parts["host"] or LOOPBACK).strip("[]"), int(parts["port"])


@dataclass(frozen=True, slots=True)
class MetricsCollector:
    """A collector of prometheus_client."""

    collect: Callable[[], list[Metric]]


def _no_fault() -> None:
    """Report that the process is well."""


class MetricsServer(ThreadingWSGIServer):
    """Serves the metrics that `read` returns at PATH, and answers an error with 503 and one line.

    At HEALTH_PATH it answers 200, or 503 with the `fault` of the process.
    """

    def __init__(
        self, address: tuple[str, int], read: Callable[[], list[Metric]], fault: Callable[[], str | None] = _no_fault
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _RequestHandler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]} ({error.strerror or error}); give another port, or an "
                "address of this machine",
            ) from None
        self.set_app(_application(read, fault))

    @property
    def url(self) -> str:
        """The URL of the metrics; for port 0 with the port that was chosen."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}{PATH}"


class _RequestHandler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_SECONDS

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base has it
        """Log no requests: they come every few seconds."""


def _application(read: Callable[[], list[Metric]], fault: Callable[[], str | None]) -> "WSGIApplication":
    metrics_application: WSGIApplication = make_wsgi_app(MetricsCollector(read))
    lock = Lock()

    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        try:
            if environ["PATH_INFO"] == PATH:
                with lock:  # the tables are read for one request at a time
                    return metrics_application(environ | {"QUERY_STRING": ""}, start_response)
            if environ["PATH_INFO"] == HEALTH_PATH:
                why = fault()
                status, line = (HTTPStatus.OK, "ok") if why is None else (HTTPStatus.SERVICE_UNAVAILABLE, why)
            else:
                status, line = HTTPStatus.NOT_FOUND, f"only {PATH} and {HEALTH_PATH} exist here"
        except SurveyorError as error:
            status, line = HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        except Exception as error:  # noqa: BLE001 - the server must answer each request
            status, line = HTTPStatus.SERVICE_UNAVAILABLE, f"unexpected {type(error).__name__}: {error}"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [f"{line}\n".encode()]

    return application


def read_metrics(settings: Settings) -> list[Metric]:
    """Return the metrics of all clusters that have samples; a single cluster must have a snapshot.

    A name may occur only once, so metrics of several clusters are merged by name.
    """
    if not settings.fleet:
        find_snapshot(settings.lake)
    merged: dict[str, Metric] = {}
    for cluster in settings.fleet or (settings,):
        for metric in families(read_figures(cluster, datetime.now(UTC))):
            merged.setdefault(metric.name, metric)
            if merged[metric.name] is not metric:
                merged[metric.name].samples += metric.samples
    return [metric for metric in merged.values() if metric.samples]


def read_figures(settings: Settings, now: datetime) -> Figures:
    """Read the data of one cluster; raise UnreadableError if there is no warehouse."""
    lake = settings.lake
    if not lake.exists():
        raise no_warehouse(settings.warehouse, "take a `surveyor snapshot` first")
    recent = read_warehouse_status(lake)
    return Figures(
        cluster=settings.cluster,
        now=now,
        recent=recent,
        health=None if recent.snapshot is None else _health(settings, recent),
        outcomes=read_outcomes(lake),
    )


def _health(settings: Settings, recent: WarehouseStatus) -> Health:
    assert recent.snapshot is not None  # noqa: S101 - the caller checks it
    return health_of(
        view_of(settings.lake, recent.snapshot),
        default_min_isr=default_min_isr_of(settings.lake, recent.snapshot),
        threshold=settings.conf.imbalance_threshold,
        drained=[row.broker_id for row in recent.drained],
    )


def families(figures: Figures) -> Iterator[Metric]:
    """Return the metric families of one cluster."""
    for group in GROUPS:
        yield from group(figures)


def _of_snapshot(figures: Figures) -> Iterator[Metric]:
    last = figures.recent.snapshot
    number, taken_at, seconds = (None, None, None) if last is None else (last.snapshot_id, last.taken_at, last.seconds)
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


def _of_partitions(figures: Figures) -> Iterator[Metric]:
    if (health := figures.health) is None:
        return
    yield figures.gauge("topics", "Topics.", health.topics)
    yield figures.gauge("partitions", "Partitions.", health.partitions)
    for name, text in PARTITIONS.items():
        yield figures.gauge(f"{name}_partitions", text, getattr(health, name))
    yield figures.gauge("quarantined_znodes", "Znodes that could not be parsed.", health.quarantined)
    yield figures.gauge("blocking_znodes", "Znodes that prevent a part of Kafka from starting.", len(health.blocking))
    yield figures.gauge(
        "topic_configs_not_understood",
        "Topics whose config could not be parsed completely; it allows no unclean election.",
        health.configs_not_understood,
    )


PARTITIONS: Final[Mapping[str, str]] = {
    "offline": "Partitions without a live leader.",
    "under_replicated": "Partitions with a replica that is not in sync.",
    "under_min_isr": "Partitions with fewer in-sync replicas than min.insync.replicas.",
    "moving": "Partitions with a running or requested reassignment.",
    "without_state": "Partitions with an assignment that never had a leader.",
    "leader_outside_isr": "Partitions led by a live broker that is not in the ISR; Kafka does not change them.",
    "not_understood": "Partitions with a znode that could not be parsed; they count in no other metric.",
    "mendable": "Partitions that `plan reconcile` can repair without data loss.",
    "stuck": "Offline partitions without an in-sync replica that can lead.",
    "led_by_drained": "Partitions led by a drained broker, because no other replica was in sync.",
}
"""Counts of Health with a metric family each."""


def _of_brokers(figures: Figures) -> Iterator[Metric]:
    if (health := figures.health) is None:
        return
    brokers = {"live": len(health.live), "gone": len(health.gone), "not_understood": len(health.not_understood_brokers)}
    yield figures.by(
        "status", "brokers", "Brokers: live, gone (unregistered but in use by partitions), not_understood.", brokers
    )
    yield figures.by("broker", "gone_broker_partitions", "Partitions that refer to a broker that is gone.", health.gone)
    yield figures.gauge("controller_id", "Id in /controller, -1 for none.", health.controller_id)
    yield figures.gauge("controller_epoch", "Number in /controller_epoch.", health.controller_epoch)
    yield figures.gauge("drained_brokers", "Drained brokers.", len(figures.recent.drained))
    for name, column, text in IMBALANCE:
        values = {row["broker_id"]: row[column] for row in health.imbalance}
        yield figures.by("broker", name, text, values)


IMBALANCE: Final = (
    ("preferred_partitions", "preferred_partitions", "Partitions whose preferred leader is this broker."),
    (
        "preferred_partitions_not_led",
        "not_led",
        "Partitions whose preferred leader is this broker but that it does not lead.",
    ),
    ("imbalance_ratio", "ratio", "Share of its preferred partitions that a broker does not lead."),
)


def _of_plans(figures: Figures) -> Iterator[Metric]:
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


GROUPS: Final[tuple[Callable[[Figures], Iterator[Metric]], ...]] = (
    _of_snapshot,
    _of_partitions,
    _of_brokers,
    _of_plans,
)
