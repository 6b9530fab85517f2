"""Moves while `surveyor control` is the controller: requests in /admin, added to those of other clients."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import IncompatibleBrokerVersion
from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.plan_submission import RESIDENT, announce_resident, read_resident_controller
from jobs.core.errors import RefusedError
from jobs.execution.admin import controller_client, resident_controller_client
from jobs.execution.admin.resident_controller_client import ResidentControllerClient
from jobs.repositories.actor import this_process
from schemas.enums import PlanKind, PlanStatus
from schemas.stored_plan import Plan
from schemas.znode_codecs import TopicPartition, encode_partitions
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import PREFERRED, REASSIGN, KafkaController
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

T = "t"
BEFORE = {0: [0, 1], 1: [1, 2]}
AFTER = {0: [3, 1], 1: [1, 3]}
DONE, REFUSED = 0, 23


@pytest.fixture
def kafka(tree: KafkaTree) -> KafkaTree:
    tree.register(3)
    tree.add_topic(T, BEFORE)
    assert announce_resident(tree.client, this_process("control"))
    return tree


@pytest.fixture
def plan(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    rows = [reassignment(kafka, T, partition, AFTER[partition]) for partition in BEFORE]
    return store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)


def run(surveyor: Surveyor, hosts: str, plan: Plan, *more: str) -> Any:  # noqa: ANN401
    return surveyor.run("commit", plan.plan_id, "--zookeeper", hosts, "--apply", "--wait", *more)


def order(targets: dict[int, list[int]]) -> bytes:
    return encode_partitions([TopicPartition(T, partition, replicas) for partition, replicas in targets.items()])


def test_requested_and_judged_by_the_result(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)]])
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert kafka.client.exists(REASSIGN) is None


def test_requests_of_other_clients_stay(kafka: KafkaTree, controller: KafkaController) -> None:
    """The other request was written after all checks had passed."""
    kafka.write(REASSIGN, order({0: [2, 1], 1: [2, 1]}))

    with ZooKeeperCluster(kafka.endpoint) as cluster:
        ResidentControllerClient(cluster).reassign({(T, 0): [3, 1]})

    assert kafka.client.get(REASSIGN)[0] == order({1: [2, 1], 0: [3, 1]})
    assert controller.waves == []


def stop(kafka: KafkaTree) -> None:
    kafka.client.delete(RESIDENT)


@pytest.mark.parametrize("change", [stop, lambda kafka: kafka.elect(1, 8)])
def test_refused_if_another_controller_would_not_read_it(
    kafka: KafkaTree, monkeypatch: pytest.MonkeyPatch, change: Callable[[KafkaTree], None]
) -> None:
    """Before it is read which controller there is, and after."""
    before = kafka.client.exists(REASSIGN)

    def changed(client: KazooClient) -> object:
        if change is stop:
            change(kafka)
        controller = read_resident_controller(client)
        if change is not stop:
            change(kafka)
        return controller

    monkeypatch.setattr(resident_controller_client, "read_resident_controller", changed)
    with (
        ZooKeeperCluster(kafka.endpoint) as cluster,
        pytest.raises(RefusedError, match="is no longer the controller"),
    ):
        ResidentControllerClient(cluster).reassign({(T, 0): [3, 1]})
    assert kafka.client.exists(REASSIGN) == before


def test_a_new_order_and_its_election(
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The elections have no answer: the cluster shows them."""
    elected = election(kafka, T, 0, leader=1, wave=1, replicas_before=[1, 0], replicas_after=[1, 0])
    plan = store_plan(warehouse, kafka, [reassignment(kafka, T, 0, [1, 0]), elected], kind=PlanKind.REASSIGN.value)

    def after_a_step(read: Callable[[], Any], *_: object) -> Any:  # noqa: ANN401 - any result
        controller.step()
        return read()

    monkeypatch.setattr(controller_client, "poll_until", after_a_step)

    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (kafka.state(T, 0).leader, controller.elected) == (1, [(T, 0)])
    assert kafka.client.exists(PREFERRED) is None


@pytest.mark.parametrize("deliver", [True, False])
def test_lost_connection_is_read_back(
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    proxy: ZooKeeperProxy,
    *,
    deliver: bool,
) -> None:
    loss = proxy.lose(Loss(MULTI, nth=1, deliver=deliver))

    done = run(surveyor, proxy.hosts, plan)

    assert loss.happened.is_set()
    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)]])


def test_throttle_needs_the_admin_api(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_broker(*_: object) -> Any:  # noqa: ANN401 - it never returns
        raise AdminUnavailableError("no broker answered")

    monkeypatch.setattr("jobs.execution.admin.connections.admin_of", no_broker)

    done = run(surveyor, kafka.hosts, plan, "--throttle", "1MB")

    assert (done.exit_code, controller.waves) == (REFUSED, [])
    assert (
        "--throttle needs the Admin API, also while `surveyor control` is the controller: no broker answered"
        in done.stderr
    )


class OldBrokers:
    """Brokers before 2.4."""

    def alter_partition_reassignments(self, _: object) -> Any:  # noqa: ANN401 - it never returns
        raise IncompatibleBrokerVersion("not known")

    list_partition_reassignments = lambda self: self.alter_partition_reassignments(None)  # noqa: E731


def test_brokers_without_the_reassignment_api() -> None:
    admin = Admin(OldBrokers())
    for ask in (admin.reassignments, lambda: admin.reassign({(T, 0): [1]})):
        with pytest.raises(RefusedError, match=r"\(Kafka 2\.4 or later\)"):
            ask()
