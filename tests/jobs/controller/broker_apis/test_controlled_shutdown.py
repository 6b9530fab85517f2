"""ControlledShutdown: other replicas lead, and the broker joins no ISR until it has registered again."""

from concurrent.futures import Future
from typing import Any

import pytest

from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from tests.jobs.controller.broker_apis.asking import SECONDS, AskingBrokers, Proposed
from tests.jobs.support.controllers.resident import initialize, put_assignment, requests_to, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def started(tree: KafkaTree, controller: ResidentController, request_handler: RequestHandler) -> ResidentController:
    """Broker 1 leads orders-1, follows in orders-0, lags in orders-2, and alone has orders-3."""
    assert controller.request_handler is request_handler
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2], 2: [2, 1], 3: [1]})
    initialize(controller)
    return controller


def answer(controller: ResidentController, pending: Future[Any]) -> tuple[int, set[tuple[str, int]]]:
    """Run cycles; return the error code, and the partitions that remain."""
    run_until_quiet(controller)
    response = pending.result(SECONDS)
    remaining = {(partition.topic_name, partition.partition_index) for partition in response.remaining_partitions}
    return int(response.error_code), remaining


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_leaders_move_and_the_broker_leaves_the_isrs(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers, version: int
) -> None:
    assert answer(started, asking.controlled_shutdown(1, version=version)) == (0, set())

    states = [tree.state("orders", number) for number in range(4)]
    assert [(state.leader, state.isr) for state in states] == [(0, [0]), (2, [2]), (2, [2]), (1, [1])]
    assert [state.leader_epoch for state in states] == [6, 6, 6, 5]
    assert {("orders", 0), ("orders", 2)} <= requests_to(tree, 1, "stop_replica").keys()
    assert requests_to(tree, 2, "leader_and_isr")["orders", 1].leader == 2


def test_all_replicas_shut_down_one_after_another(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    """ControllerIntegrationTest: testControlledShutdown."""
    put_assignment(tree, "test", {0: [0, 1, 2]})
    run_until_quiet(started)
    states, remaining = [], []
    for broker in (2, 1, 0):
        remaining.append(answer(started, asking.controlled_shutdown(broker))[1] & {("test", 0)})
        states.append((tree.state("test").leader, tree.state("test").isr))

    assert states == [(0, [0, 1]), (0, [0]), (0, [0])]
    assert remaining == [set(), set(), {("test", 0)}]


def test_it_may_ask_again(tree: KafkaTree, started: ResidentController, asking: AskingBrokers) -> None:
    answer(started, asking.controlled_shutdown(1))
    versions = tree.versions("orders")

    assert answer(started, asking.controlled_shutdown(1)) == (0, set())
    assert tree.versions("orders") == versions


def test_what_no_other_can_lead_remains(tree: KafkaTree, started: ResidentController, asking: AskingBrokers) -> None:
    asking.alter(1, Proposed([1], partition=1))

    assert answer(started, asking.controlled_shutdown(1)) == (0, {("orders", 1)})
    assert tree.state("orders", 1).leader == 1


def test_two_brokers_at_once(tree: KafkaTree, started: ResidentController, asking: AskingBrokers) -> None:
    """No partition moves to the other one that shuts down."""
    pending = [asking.controlled_shutdown(broker) for broker in (1, 2)]
    answers = [answer(started, request) for request in pending]

    assert answers == [(0, {("orders", 1)}), (0, {("orders", 2)})]
    assert tree.state("orders", 0).isr == [0]


def test_it_joins_no_isr_until_it_has_registered_again(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    answer(started, asking.controlled_shutdown(1))
    state = tree.state("orders", 0)
    proposed = Proposed([0, 1], leader_epoch=state.leader_epoch, partition_epoch=tree.version("orders", 0))

    assert asking.alter(0, proposed)[0][0] == 107
    put_assignment(tree, "new", {0: [1, 0]})
    run_until_quiet(started)
    assert (tree.state("new").leader, tree.state("new").isr) == (0, [0])
    tree.bounce(1)
    run_until_quiet(started)
    state = tree.state("orders", 0)
    again = Proposed([0, 1], leader_epoch=state.leader_epoch, partition_epoch=tree.version("orders", 0))
    assert asking.alter(0, again)[0] == (0, [0, 1], tree.version("orders", 0))
    assert started.context.shutting_down == set()


def test_refusals(started: ResidentController, asking: AskingBrokers) -> None:
    assert answer(started, asking.controlled_shutdown(1, epoch=5)) == (77, set())
    assert answer(started, asking.controlled_shutdown(7, epoch=5)) == (8, set())
    pending = asking.controlled_shutdown(1)
    started.stop()
    assert int(pending.result(SECONDS).error_code) == 11  # another controller is asked
    assert int(asking.controlled_shutdown(1).result(SECONDS).error_code) == 11
