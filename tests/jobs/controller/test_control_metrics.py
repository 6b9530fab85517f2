"""Metrics and health of `surveyor control`, read over HTTP while it runs."""

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller import metrics as control_metrics
from jobs.controller.controller import ResidentController
from jobs.controller.metrics import ControllerMetrics, serve
from jobs.controller.write_behind import AuditEntry, WriteBehindLog
from schemas.enums import Step
from tests.jobs.support.controllers.resident import initialize, run_until_quiet
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

LABELS = {"cluster": "default"}


@pytest.fixture
def metrics() -> ControllerMetrics:
    return ControllerMetrics("default")


@pytest.fixture
def port(metrics: ControllerMetrics) -> Iterator[int]:
    with serve(("127.0.0.1", 0), metrics) as server:
        yield int(server.server_address[1])
        server.shutdown()


def get(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def samples(port: int) -> dict[tuple[str, str], float]:
    """Return the samples by name and by the label other than the cluster."""
    status, text = get(port, "/metrics")
    assert status == 200
    return {
        (sample.name, "".join(value for name, value in sample.labels.items() if name != "cluster")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_standby_is_well_and_inactive(port: int) -> None:
    assert samples(port)["surveyor_control_active", ""] == 0
    assert get(port, "/healthz") == (200, "ok\n")


def test_metrics_of_a_cluster(
    tree: KafkaTree, controller: ResidentController, metrics: ControllerMetrics, port: int
) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [2, 0]}, topic_id=None)
    metrics.begin(controller)
    initialize(controller)
    tree.unregister(2)
    tree.unregister(1)
    run_until_quiet(controller)

    read = samples(port)

    assert read["surveyor_control_active", ""] == 1
    assert read["surveyor_controller_epoch", ""] == controller.control.epoch
    assert (read["surveyor_partitions", ""], read["surveyor_brokers", ""]) == (2, 1)
    assert (read["surveyor_offline_partitions", ""], read["surveyor_under_replicated_partitions", ""]) == (0, 2)
    assert read["surveyor_control_changes_total", "elect"] == 1
    assert read["surveyor_control_queue_batches", "0"] == 0
    assert read["surveyor_control_cycle_seconds_count", ""] > 0
    assert read["surveyor_control_leader_epoch_max", ""] == 6


def test_a_stalled_controller_is_unhealthy(
    controller: ResidentController, metrics: ControllerMetrics, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.begin(controller)
    monkeypatch.setattr(control_metrics, "STALLED_SECONDS", 0.0)

    status, line = get(port, "/healthz")

    assert (status, line.startswith("no cycle has ended for")) == (503, True)


def test_the_lag_of_the_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Warehouse(str(tmp_path), "default")
    lay_tables(lake)
    log = WriteBehindLog(lake)
    monkeypatch.setattr("jobs.controller.write_behind.FLUSH_INTERVAL_SECONDS", 0.0)

    log.record(AuditEntry(Step.TAKE_OVER, "a test"))
    time.sleep(0.05)
    assert log.lag_seconds >= 0.05

    log.start()
    log.close()
    assert log.lag_seconds == 0.0
