"""Metrics of a running `surveyor control`, and its health for probes, served over HTTP.

Corresponds to the metrics of `ControllerStats`, `ControllerEventManager` and `ControllerChannelManager`. They are read
from the context in memory when they are asked for. A standby serves them as well, without a controllership.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Final

import pyarrow as pa
from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.core import CounterMetricFamily

from jobs.adapters.delta.table_schemas import schema_of
from jobs.controller.controller import ResidentController
from jobs.controller.controller_context import ControllerContext
from jobs.runtime.metric_families import HELP, MetricFamilies
from jobs.runtime.metrics_server import MetricsServer
from jobs.snapshots.health import arrays_of_table, unhealthy_masks
from planner.columns.partition_masks import partition_masks
from schemas.enums import RequestKind
from schemas.partition_info import PartitionInfo
from schemas.topic_configs import DEFAULT_MIN_ISR

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
"""Seconds of a cycle."""

RESPONSE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
"""Seconds until the response to AlterPartition; a leader waits 30 s."""


@dataclass(slots=True)
class ControllerMetrics(MetricFamilies):
    """Metrics of one process, over all its controllerships."""

    cluster: str
    controller: ResidentController | None = None
    """The present controllership; None while the process stands by."""
    stalled_seconds: float = 60.0
    """Seconds without the end of a cycle after which a controller counts as stalled."""
    _registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _cycle_seconds: Histogram = field(init=False)
    _response_seconds: Histogram = field(init=False)
    _last_cycle: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._cycle_seconds = self._histogram("control_cycle_seconds", BUCKETS)
        self._response_seconds = self._histogram("control_alter_partition_seconds", RESPONSE_BUCKETS)

    def _histogram(self, name: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"surveyor_{name}", HELP[name], ["cluster"], registry=self._registry, buckets=buckets)

    def observe_cycle(self, seconds: float) -> None:
        """Add a cycle that has ended."""
        self._cycle_seconds.labels(self.cluster).observe(seconds)
        self._last_cycle = time.monotonic()

    def observe_response(self, seconds: float) -> None:
        """Add a response to a leader."""
        self._response_seconds.labels(self.cluster).observe(seconds)

    def begin(self, controller: ResidentController) -> None:
        """Serve the metrics of this controllership from now on."""
        controller.on_cycle = self.observe_cycle
        controller.isr_changes.writer.on_response = self.observe_response
        self._last_cycle = time.monotonic()
        self.controller = controller

    def end(self) -> None:
        """Serve the metrics of a process without a controllership from now on."""
        self.controller = None

    def fault(self) -> str | None:
        """Return why the process should be restarted, None if it is well."""
        silence = time.monotonic() - self._last_cycle
        if self.controller is None or silence < self.stalled_seconds:
            return None
        return f"no cycle has ended for {silence:.0f} s"

    def collect(self) -> list[Metric]:
        """Return all metrics."""
        return [*self._registry.collect(), *self._families()]

    def _families(self) -> Iterator[Metric]:
        controller = self.controller
        yield self.gauge("control_active", float(controller is not None))
        if controller is None:
            return
        yield self.gauge("controller_epoch", controller.control.epoch, "Our controller epoch.")
        yield self.gauge("control_zookeeper_connected", float(bool(controller.control.client.connected)))
        yield from self._of_cluster(controller.context)
        yield from self._of_brokers(controller)
        written = controller.summary.by_action.copy()
        yield self.by("action", "control_changes_total", dict(written), CounterMetricFamily)
        yield self.gauge("control_stale_total", controller.summary.stale)
        yield self.gauge("control_unwritten_seconds", controller.log.lag_seconds)
        yield self.gauge("control_warehouse_failing", float(bool(controller.log.failed)))

    def _of_cluster(self, context: ControllerContext) -> Iterator[Metric]:
        rows = [*context.partitions.values()]  # the cycle's thread may add or remove some at any time
        brokers = [*context.brokers]
        requested = {row.key for row in context.of_kind(RequestKind.REASSIGN)}
        counts = _unhealthy(rows, brokers, context.topics_to_be_deleted)
        counts["moving"] = sum(row.is_being_reassigned or row.key in requested for row in rows)
        not_understood = len(context.not_understood)
        statuses = {"live": len(brokers), "gone": len(context.dead_brokers), "not_understood": not_understood}
        yield self.by("status", "brokers", statuses)
        yield self.gauge("partitions", len(rows))
        for name in _COUNTS:
            yield self.gauge(f"{name}_partitions", counts[name])
        configs = sum(topic.config is None or None in topic.config.values() for topic in [*context.topics.values()])
        yield self.gauge("topic_configs_not_understood", configs)
        yield self.gauge("quarantined_znodes", not_understood + configs + _quarantined(context, rows))
        epochs = (row.leader_epoch for row in rows if row.leader_epoch is not None)
        yield self.gauge("control_leader_epoch_max", max(epochs, default=0))

    def _of_brokers(self, controller: ResidentController) -> Iterator[Metric]:
        depths, ages = controller.broker_requests.channels.backlog()
        yield self.by("broker", "control_queue_batches", depths)
        yield self.by("broker", "control_queue_oldest_seconds", ages)
        yield self.by("broker", "control_refusals", controller.retries.refusals())


_COUNTS: Final = ("offline", "without_state", "under_replicated", "moving", "not_understood")
"""Counts of partitions, as `jobs.snapshots.health` has them of a snapshot."""

_HEALTH_SCHEMA: Final = schema_of("partitions", "topic", "replicas", "isr", "leader", "understood")
"""The fields of a partition that its health follows from."""


def _unhealthy(rows: Sequence[PartitionInfo], registered: Collection[int], deleting: Collection[str]) -> dict[str, int]:
    """Count the partitions that are not healthy, as `health_of` does.

    A registered broker is live, whether or not its registration could be decoded.
    """
    columns = [[getattr(row, name) for row in rows] for name in _HEALTH_SCHEMA.names]
    table = pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, _HEALTH_SCHEMA.types, strict=True)],
        schema=_HEALTH_SCHEMA,
    )
    arrays = arrays_of_table(table, {}, deleting, DEFAULT_MIN_ISR)
    masks = unhealthy_masks(arrays, partition_masks(arrays, registered))
    return {name: int(mask.sum()) for name, mask in masks.items()}


def _quarantined(context: ControllerContext, rows: Iterable[PartitionInfo]) -> int:
    """Count the assignments, partition states and requests that could not be decoded.

    A partition keeps its last leader when its state can no longer be decoded. It is not understood either if its entry
    in the assignment is not, or which replicas of its topic move.
    """
    topics = context.topics.copy()
    assignments = sum(not topic.assignment_understood for topic in topics.values())
    states = sum(
        not row.understood
        and row.state_version is not None
        and (row.leader is None or (bool(row.replicas) and row.topic in topics and topics[row.topic].moves_understood))
        for row in rows
    )
    not_understood_count = sum(request.fault is not None for request in context.empty_requests)
    return assignments + states + not_understood_count + len(context.forbidden_requests)


def serve(address: tuple[str, int], metrics: ControllerMetrics) -> MetricsServer:
    """Serve metrics and health in a thread of their own, until the server is closed."""
    server = MetricsServer(address, metrics.collect, metrics.fault)
    Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server
