"""`--via zookeeper`: requests in /admin under the controller's epoch, one at a time, never over another request."""

from typing import Any

import pytest
from kafka.errors import IncompatibleBrokerVersion

from jobs.adapters.brokers.admin_client import Admin, AdminUnavailableError
from jobs.adapters.cluster_connections.zookeeper import ZooKeeperConnection
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper import admin_requests as orders
from jobs.adapters.zookeeper.admin_requests import RequestExistsError, ZnodeRequests, split_reassignments
from jobs.adapters.zookeeper.lease_znode import LEASE
from jobs.core.errors import RefusedError
from schemas.enums import PlanKind, PlanStatus
from schemas.plan import Plan
from schemas.znode_codecs import TopicPartition, encode_partitions
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.moving_controller import PREFERRED, REASSIGN, MovingController
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.operation_rows import alteration
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

T = "t"
BEFORE = {0: [0, 1], 1: [1, 2]}
AFTER = {0: [3, 1], 1: [1, 3]}
DONE, ERROR, REFUSED, RUNNING = 0, 1, 23, 25


@pytest.fixture
def kafka(tree: KafkaTree) -> KafkaTree:
    tree.register(3)
    tree.add_topic(T, BEFORE)
    return tree


@pytest.fixture
def plan(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    rows = [reassignment(kafka, T, partition, AFTER[partition]) for partition in BEFORE]
    return store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)


def run(surveyor: Surveyor, hosts: str, plan: Plan, *more: str) -> Any:  # noqa: ANN401
    return surveyor.run("commit", plan.plan_id, "--zookeeper", hosts, "--via", "zookeeper", "--apply", *more)


def order(targets: dict[int, list[int]]) -> bytes:
    return encode_partitions([TopicPartition(T, partition, replicas) for partition, replicas in targets.items()])


def test_requested_and_judged_by_the_result(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan
) -> None:
    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)]])
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert kafka.client.exists(REASSIGN) is None


def test_in_as_many_requests_as_necessary(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "MAX_REQUEST_BYTES", 80)

    run(surveyor, kafka.hosts, plan)

    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0)], [(T, 1)]])


def test_partition_that_lost_its_leader_is_not_requested(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "MAX_REQUEST_BYTES", 80)
    controller.events = [lambda: controller.set_state((T, 1), leader=-1)]

    done = run(surveyor, kafka.hosts, plan)

    assert "stale: t-1: no live leader is in its ISR (leader -1, ISR [1, 2])" in done.stdout
    assert (controller.replicas(T), controller.waves) == ({0: AFTER[0], 1: BEFORE[1]}, [[(T, 0)]])


def test_requests_stay_below_the_limit_of_zookeeper() -> None:
    targets = [TopicPartition("a-topic-of-some-length", number, [1, 2, 3]) for number in range(40_000)]

    made = list(split_reassignments(targets, orders.MAX_REQUEST_BYTES))

    assert [target for chunk in made for target in chunk] == targets
    assert max(len(encode_partitions(chunk)) for chunk in made) <= orders.MAX_REQUEST_BYTES
    assert len(made) == -(-len(encode_partitions(targets)) // orders.MAX_REQUEST_BYTES)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (order({1: [2, 1]}), r"of another client exists in /admin/reassign_partitions \(t-1\)"),
        (b"", "zookeeper-shell HOST:PORT delete /admin/reassign_partitions, then commit again"),
    ],
)
def test_never_over_an_existing_request(
    kafka: KafkaTree, controller: MovingController, request_: bytes, message: str
) -> None:
    """The other request was written after all checks had passed."""
    kafka.write(REASSIGN, request_)
    before = kafka.dump()

    with (
        ZooKeeperConnection(kafka.endpoint) as cluster,
        pytest.raises(RequestExistsError, match=message),
    ):
        ZnodeRequests(cluster, lambda: None).reassign({(T, 0): [3, 1]})
    assert (kafka.dump(), controller.waves) == (before, [])


def test_request_of_an_earlier_attempt_is_waited_for(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan
) -> None:
    """Killed after the first of two requests, before and after the controller has begun with it."""
    kafka.write(REASSIGN, order({0: AFTER[0]}))
    if plan.changes[0].partition == 0:
        controller.begin((T, 0), AFTER[0])

    done = run(surveyor, kafka.hosts, plan, "--wait")

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0)], [(T, 1)]])


@pytest.mark.parametrize("deliver", [True, False])
def test_lost_connection_is_read_back(
    controller: MovingController,
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


def test_another_controller_still_finds_the_request(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took over between the reading of the epoch and the writing of the request."""
    made = orders._creation  # noqa: SLF001 - to act in between
    epochs = iter([8])

    def taken_over(*given: Any) -> Any:  # noqa: ANN401 - kazoo is untyped
        multi = made(*given)
        for epoch in epochs:
            kafka.elect(1, epoch)
        return multi

    monkeypatch.setattr(orders, "_creation", taken_over)

    assert run(surveyor, kafka.hosts, plan).exit_code == DONE
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)]])


def test_refused_without_a_live_controller(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan
) -> None:
    kafka.client.delete("/controller")

    done = run(surveyor, kafka.hosts, plan)

    assert (done.exit_code, controller.waves) == (REFUSED, [])
    assert "no live broker is the controller" in done.stderr


def test_removed_without_being_carried_out(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller does so with requests that it cannot carry out."""
    monkeypatch.setattr("jobs.execution.admin.zk_controller_client.COMPLETION_SECONDS", 0.0)
    controller.events = [lambda: kafka.client.delete(REASSIGN)]

    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == ERROR
    assert "the controller removed the request, and its replicas are now [0, 1]" in done.stdout
    assert surveyor.status(plan.plan_id) == PlanStatus.PARTIAL


def test_no_longer_than_max_wait(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan
) -> None:
    controller.stuck = True
    stopped = run(surveyor, kafka.hosts, plan, "--max-wait", "0s")
    status = surveyor.status(plan.plan_id)
    controller.stuck = False

    again = run(surveyor, kafka.hosts, plan, "--wait")

    assert (stopped.exit_code, status) == (RUNNING, PlanStatus.PARTIAL)
    assert again.exit_code == DONE, again.stderr
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)]])


def test_an_election_is_judged_right_before_its_request(
    kafka: KafkaTree,
    controller: MovingController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader of the second partition changes while the request for the first is carried out."""
    monkeypatch.setattr(orders, "MAX_REQUEST_BYTES", 60)
    kafka.add_topic("led", {0: [1, 0, 2], 1: [1, 0, 2]})
    for partition in (0, 1):
        controller.set_state(("led", partition), leader=0)
    plan = store_plan(warehouse, kafka, [election(kafka, "led", partition, leader=1) for partition in (0, 1)])
    controller.events = [lambda: controller.set_state(("led", 1), leader=2)]

    done = run(surveyor, kafka.hosts, plan)

    assert controller.elected == [("led", 0)], done.stderr
    assert "stale: led-1: the leader is no longer 0" in done.stdout


@pytest.mark.parametrize("kind", ["elections", "reassignments"])
def test_requests_before_an_error_have_their_outcomes(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: MovingController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """The lease is lost while the first of two requests is carried out."""
    monkeypatch.setattr(orders, "MAX_REQUEST_BYTES", 60 if kind == "elections" else 80)
    if kind == "elections":
        kafka.add_topic("led", {0: [1, 0, 2], 1: [1, 0, 2]})
        for partition in (0, 1):
            controller.set_state(("led", partition), leader=0)
        plan = store_plan(warehouse, kafka, [election(kafka, "led", partition, leader=1) for partition in (0, 1)])
    controller.events = [lambda: kafka.client.delete(LEASE)]

    done = run(surveyor, kafka.hosts, plan)

    outcomes = [(row["partition"], row["outcome"]) for row in surveyor.commits(plan.plan_id)]
    assert (done.exit_code, controller.elected + controller.waves) == (
        RUNNING,
        [("led", 0)] if kind == "elections" else [[(T, 0)]],
    ), done.stderr
    assert sorted(row for row in outcomes if row[1] != "pending") == [(0, "applied"), (1, "skipped")]


def test_elections_by_request(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    kafka.add_topic("led", {0: [1, 0]})
    controller.set_state(("led", 0), leader=0)
    plan = store_plan(warehouse, kafka, [election(kafka, "led", 0, leader=1)])

    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert (kafka.state("led", 0).leader, controller.elected) == (1, [("led", 0)])
    assert kafka.client.exists(PREFERRED) is None


def test_actions_without_a_request_are_refused(kafka: KafkaTree, surveyor: Surveyor, warehouse: Warehouse) -> None:
    plan = alteration(warehouse, kafka, T, {"retention.ms": None}, {"retention.ms": "7"})

    done = run(surveyor, kafka.hosts, plan)

    assert done.exit_code == REFUSED
    assert "only reassignments and preferred elections have a request in /admin, not alter_config" in done.stderr


def test_throttle_needs_the_admin_api(
    kafka: KafkaTree, controller: MovingController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_broker(*_: object) -> Any:  # noqa: ANN401 - it never returns
        raise AdminUnavailableError("no broker answered")

    monkeypatch.setattr("jobs.execution.admin.connections.admin_of", no_broker)

    done = run(surveyor, kafka.hosts, plan, "--throttle", "1MB")

    assert (done.exit_code, controller.waves) == (REFUSED, [])
    assert "--throttle needs the Admin API, also with --via zookeeper: no broker answered" in done.stderr


class OldBrokers:
    """Brokers before 2.4."""

    def alter_partition_reassignments(self, _: object) -> Any:  # noqa: ANN401 - it never returns
        raise IncompatibleBrokerVersion("not known")

    list_partition_reassignments = lambda self: self.alter_partition_reassignments(None)  # noqa: E731


def test_brokers_without_the_reassignment_api() -> None:
    admin = Admin(OldBrokers())
    for ask in (admin.reassignments, lambda: admin.reassign({(T, 0): [1]})):
        with pytest.raises(RefusedError, match=r"\(Kafka 2\.4 or later\); use --via zookeeper"):
            ask()
