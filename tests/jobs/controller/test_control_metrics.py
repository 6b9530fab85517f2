"""Metrics and health of `surveyor control`, read over HTTP while it runs."""

import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl
from prometheus_client.parser import text_string_to_metric_families

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.controller import ResidentController
from jobs.controller.metrics import ControllerMetrics, serve
from jobs.controller.write_behind import WriteBehindLog
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.snapshots.health import health_of
from schemas.enums import Step
from tests.jobs.support.controllers.resident import initialize, run_until_quiet
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.support.zookeeper.live_view import live_view

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

    expected = {
        ("surveyor_control_active", ""): 1,
        ("surveyor_controller_epoch", ""): controller.control.epoch,
        ("surveyor_partitions", ""): 2,
        ("surveyor_brokers", "live"): 1,
        ("surveyor_brokers", "gone"): 2,
        ("surveyor_brokers", "not_understood"): 0,
        ("surveyor_offline_partitions", ""): 0,
        ("surveyor_under_replicated_partitions", ""): 2,
        ("surveyor_control_changes_total", "elect"): 1,
        ("surveyor_control_queue_batches", "0"): 0,
        ("surveyor_control_leader_epoch_max", ""): 6,
    }
    assert {sample: read[sample] for sample in expected} == expected
    assert read["surveyor_control_cycle_seconds_count", ""] > 0


ONLY_BROKERS = [make_digest_acl("broker", "secret", all=True)]


def forbid(path: str) -> Callable[[KafkaTree], None]:
    def set_acls(tree: KafkaTree) -> None:
        tree.client.ensure_path(path)
        tree.client.set_acls(path, ONLY_BROKERS)

    return set_acls


def write(path: str, data: bytes) -> Callable[[KafkaTree], None]:
    return lambda tree: tree.write(path, data)


def counts(metrics: ControllerMetrics) -> dict[str, float]:
    """Return the samples by name and by the label other than the cluster, without HTTP."""
    return {
        " ".join([sample.name.removeprefix("surveyor_"), *sample.labels.values()]).replace(" default", ""): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


MOVE = b'{"version":2,"partitions":{"0":[0,1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}'
REQUEST = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[0,2]}]}'


@pytest.mark.parametrize(
    ("changes", "concerned"),
    [
        ([], {}),
        ([forbid("/brokers/ids/1")], {"brokers not_understood": 1, "quarantined_znodes": 1}),
        ([write("/brokers/ids/1", b"hello")], {"brokers not_understood": 1, "quarantined_znodes": 1}),
        ([lambda tree: tree.unregister(1)], {"brokers live": 2, "brokers gone": 1, "offline_partitions": 2}),
        ([forbid("/config/topics/orders")], {"topic_configs_not_understood": 1, "quarantined_znodes": 1}),
        ([write("/config/topics/orders", b'{"config":{"a":5}}')], {"topic_configs_not_understood": 1}),
        ([forbid(state_path("orders", 0))], {"not_understood_partitions": 1, "quarantined_znodes": 1}),
        ([write(state_path("orders", 0), b"hello")], {"not_understood_partitions": 1, "quarantined_znodes": 1}),
        ([forbid("/brokers/topics/orders")], {"not_understood_partitions": 2, "quarantined_znodes": 1}),
        ([write("/brokers/topics/orders", b"hello")], {"not_understood_partitions": 2, "quarantined_znodes": 1}),
        ([write("/brokers/topics/empty", b"hello")], {"not_understood_partitions": 0, "quarantined_znodes": 1}),
        ([forbid("/admin/reassign_partitions")], {"quarantined_znodes": 1}),
        ([write("/admin/reassign_partitions", b"hello")], {"quarantined_znodes": 1}),
        ([write("/admin/reassign_partitions", b'{"version":1,"partitions":[]}')], {"quarantined_znodes": 0}),
        ([write("/admin/reassign_partitions", REQUEST)], {"moving_partitions": 1}),
        ([write("/brokers/topics/clicks", MOVE)], {"moving_partitions": 1, "under_replicated_partitions": 1}),
        ([write("/brokers/topics/new", b'{"version":1,"partitions":{"0":[1,2]}}')], {"without_state_partitions": 1}),
        (
            [write("/admin/delete_topics/orders", b""), lambda tree: tree.unregister(1)],
            {"offline_partitions": 1, "partitions": 3},
        ),
    ],
)
def test_counts_agree_with_those_of_status(
    tree: KafkaTree,
    controller: ResidentController,
    metrics: ControllerMetrics,
    changes: list[Callable[[KafkaTree], None]],
    concerned: dict[str, int],
) -> None:
    """What is not understood counts as such, and a registered broker is live whatever its registration contains."""
    tree.add_topic("orders", {0: [1, 2], 1: [0, 1]}, topic_id=None)
    tree.add_topic("clicks", {0: [1, 0]}, topic_id=None)
    for change in changes:
        change(tree)
    controller.reader.load_all()
    metrics.begin(controller)

    counted = counts(metrics)
    health = health_of(live_view(tree.endpoint), default_min_isr=1, threshold=0.1)
    expected = {
        "brokers live": len(health.live),
        "brokers gone": len(health.gone),
        "brokers not_understood": len(health.not_understood_brokers),
        "partitions": health.partitions,
        "offline_partitions": health.offline,
        "without_state_partitions": health.without_state,
        "under_replicated_partitions": health.under_replicated,
        "moving_partitions": health.moving,
        "not_understood_partitions": health.not_understood,
        "topic_configs_not_understood": health.configs_not_understood,
        "quarantined_znodes": health.quarantined,
    }
    assert {name: counted[name] for name in expected} == expected
    assert {name: counted[name] for name in concerned} == concerned


def test_a_state_that_can_no_longer_be_parsed(
    tree: KafkaTree, controller: ResidentController, metrics: ControllerMetrics
) -> None:
    """The context keeps its last leader, which counts as neither online nor offline."""
    tree.add_topic("orders", {0: [1, 2]}, topic_id=None)
    controller.reader.load_all()
    metrics.begin(controller)
    tree.write(state_path("orders", 0), b"hello")
    tree.unregister(1)

    controller.reader.refresh_partitions([("orders", 0)])

    counted = counts(metrics)
    names = ("not_understood_partitions", "quarantined_znodes", "offline_partitions", "under_replicated_partitions")
    assert [counted[name] for name in names] == [1, 1, 0, 0]


def test_a_stalled_controller_is_unhealthy(
    controller: ResidentController, metrics: ControllerMetrics, port: int
) -> None:
    metrics.begin(controller)
    metrics.stalled_seconds = 0.0

    status, line = get(port, "/healthz")

    assert (status, line.startswith("no cycle has ended for")) == (503, True)


def test_the_lag_of_the_warehouse(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    lay_tables(warehouse)
    log = WriteBehindLog(warehouse, flush_interval_seconds=0.0)

    log.record(AuditEntry(Step.TAKE_OVER, "a test"))
    time.sleep(0.05)
    assert log.lag_seconds >= 0.05

    log.start()
    log.close()
    assert log.lag_seconds == 0.0
