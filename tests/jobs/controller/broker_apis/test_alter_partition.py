"""AlterPartition: ISRs are written at once under the fence, and every broker learns of them."""

from concurrent.futures import wait
from functools import partial
from typing import Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.controllership import take_over
from jobs.controller.broker_apis.isr_writer import IsrWriter
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from schemas.znode_codecs import State, TopicPartition, encode_partitions, encode_state
from tests.jobs.controller.broker_apis.asking import SECONDS, AskingBrokers, Proposed
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import initialize, put_assignment, put_isr, requests_to, run_until_quiet
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.fenced_writes import OURS, Multis
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path
from tests.planner.frames import broker_config

NOT_CONTROLLER: Final = 41
FENCED_LEADER_EPOCH: Final = 74
STALE_BROKER_EPOCH: Final = 77
INVALID_UPDATE_VERSION: Final = 95
UNKNOWN_TOPIC_ID: Final = 100
INELIGIBLE_REPLICA: Final = 107


@pytest.fixture
def started(tree: KafkaTree, controller: ResidentController, request_handler: RequestHandler) -> ResidentController:
    """A controller that knows orders-0 with replicas 0, 1 and 2."""
    assert controller.request_handler is request_handler
    tree.add_topic("orders", {0: [0, 1, 2]})
    initialize(controller)
    return controller


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_isr_is_written_before_the_next_cycle(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers, version: int
) -> None:
    epoch = started.control.epoch

    assert asking.alter(0, Proposed([0, 2]), version=version) == [(0, [0, 2], 1)]

    assert tree.state("orders") == State(controller_epoch=epoch, leader=0, leader_epoch=5, isr=[0, 2])
    assert started.context.partitions["orders", 0].isr == [0, 1, 2]  # the cycle takes it over
    started.cycle()
    assert (started.context.partitions["orders", 0].isr, tree.version("orders")) == ([0, 2], 1)


def test_every_broker_learns_of_an_isr(tree: KafkaTree, started: ResidentController, asking: AskingBrokers) -> None:
    asking.alter(0, Proposed([0, 2]))
    run_until_quiet(started)

    for broker in range(3):
        metadata = requests_to(tree, broker, "update_metadata")["orders", 0]
        assert (metadata.isr, metadata.zk_version) == ((0, 2), 1)
        assert requests_to(tree, broker, "leader_and_isr")["orders", 0].partition_epoch == 0  # its leader knows


def test_brokers_find_the_controller_before_anything_else(tree: KafkaTree, started: ResidentController) -> None:
    assert tree.brokers is not None
    first = tree.brokers[1].received[0]

    assert (first.api, first.partitions) == ("update_metadata", set())
    assert first.request.controller_id == started.control.controller_id == OURS
    endpoints = {
        live.id_: [(endpoint.host, endpoint.port) for endpoint in live.endpoints] for live in first.request.live_brokers
    }
    assert endpoints[OURS] == [("127.0.0.1", 9999)]
    assert endpoints.keys() == {0, 1, 2, OURS}


@pytest.mark.parametrize(
    ("protocol", "is_asked", "count"), [("3.9-IV0", False, 1), ("3.9-IV0", True, 0), ("2.6", False, 0)]
)
def test_brokers_that_never_ask_are_reported_once(  # noqa: PLR0913 - a table
    tree: KafkaTree,
    started: ResidentController,
    asking: AskingBrokers,
    log: RecordedLog,
    *,
    protocol: str,
    is_asked: bool,
    count: int,
) -> None:
    """Replica 2 is live and stays out of sync, as if its leader could not connect to the controller."""
    rows = [broker_config(broker, "inter.broker.protocol.version", protocol) for broker in range(3)]
    started.engine.set_broker_configs(rows)
    put_isr(tree, "orders", [0, 1])
    run_until_quiet(started)
    if is_asked:
        asking.alter(1, Proposed([1]))

    for _ in range(3):  # the second one knows what the first has read
        started.resync.begin_at_once()
        started._run_resync()  # noqa: SLF001 - what `run` does before each cycle
        while started.resync.is_under_way:
            started._run_resync()  # noqa: SLF001

    warnings = [line for line in log.warnings if "orders-0: live replicas are not in sync" in line]
    assert (len(warnings), ["connect to 127.0.0.1:9999" in line for line in warnings]) == (count, [True] * count)


def test_a_request_that_is_repeated_succeeds_again(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    assert asking.alter(0, Proposed([0, 2])) == asking.alter(0, Proposed([0, 2])) == [(0, [0, 2], 1)]
    started.cycle()
    assert asking.alter(0, Proposed([0, 2])) == [(0, [0, 2], 1)]
    assert tree.version("orders") == 1


def test_isrs_follow_each_other_without_a_cycle(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    for number, isr in enumerate([[0, 2], [0], [0, 1], [0, 1, 2]]):
        assert asking.alter(0, Proposed(isr, partition_epoch=number)) == [(0, isr, number + 1)]

    started.cycle()
    assert started.context.partitions["orders", 0].state_version == tree.version("orders") == 4


@pytest.mark.parametrize(
    ("proposed", "error"),
    [
        (Proposed([0, 2], leader_epoch=4), FENCED_LEADER_EPOCH),
        (Proposed([0, 2], leader_epoch=6), NOT_CONTROLLER),
        (Proposed([0, 2], partition_epoch=1), NOT_CONTROLLER),
        (Proposed([0, 7]), 42),
    ],
)
@pytest.mark.usefixtures("started")
def test_refusals(tree: KafkaTree, asking: AskingBrokers, proposed: Proposed, error: int) -> None:
    assert asking.alter(0, proposed) == [(error, [], 0)]
    assert tree.version("orders") == 0


@pytest.mark.usefixtures("started")
def test_a_broker_of_another_registration_is_stale(asking: AskingBrokers) -> None:
    assert asking.alter(0, Proposed([0, 2]), epoch=asking.epoch(0) - 1) == [(STALE_BROKER_EPOCH, [], 0)]
    assert asking.alter(8, Proposed([0, 2]), epoch=1) == [(STALE_BROKER_EPOCH, [], 0)]


@pytest.mark.usefixtures("started")
def test_unknown_topics(asking: AskingBrokers) -> None:
    assert asking.alter(0, Proposed([0]), topic_id="AAAAAAAAAAAAAAAAAAAAAg") == [(UNKNOWN_TOPIC_ID, [], 0)]
    assert asking.alter(0, Proposed([0]), topic="payments", version=1) == [(3, [], 0)]
    assert asking.alter(0, Proposed([0], partition=4)) == [(3, [], 0)]


def test_an_unnoticed_state_is_read_before_a_refusal(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    """The context is outdated; by it the leader would be refused, and wait for a LeaderAndIsr that never comes."""
    now = State(controller_epoch=started.control.epoch, leader=0, leader_epoch=6, isr=[0, 1, 2])
    tree.write(state_path("orders", 0), encode_state(now))

    assert asking.alter(0, Proposed([0, 1], leader_epoch=6, partition_epoch=1)) == [(0, [0, 1], 2)]
    started.cycle()
    assert started.context.partitions["orders", 0].leader_epoch == 6


def test_an_outdated_leader_is_refused_by_an_outdated_context(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers
) -> None:
    now = State(controller_epoch=started.control.epoch, leader=1, leader_epoch=6, isr=[1, 2])
    tree.write(state_path("orders", 0), encode_state(now))

    assert asking.alter(0, Proposed([0, 1])) == [(FENCED_LEADER_EPOCH, [], 0)]
    assert tree.state("orders") == now
    started.cycle()
    assert started.context.partitions["orders", 0].leader == 1


@pytest.mark.usefixtures("started")
def test_a_broker_that_died_unnoticed_does_not_join(tree: KafkaTree, asking: AskingBrokers) -> None:
    assert asking.alter(0, Proposed([0, 1])) == [(0, [0, 1], 1)]
    tree.unregister(2)

    [(error, isr, _)] = asking.alter(0, Proposed([0, 1, 2], partition_epoch=1))

    assert (error in {55, INELIGIBLE_REPLICA}, isr, tree.state("orders").isr) == (True, [], [0, 1])


def test_a_broker_that_dies_right_after_it_joined_leaves_the_isr(
    tree: KafkaTree, started: ResidentController, asking: AskingBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycle decides on its failure before the thread has filed the ISR that it had just written."""
    rows = [broker_config(broker, "inter.broker.protocol.version", "3.9-IV0") for broker in range(3)]
    started.engine.set_broker_configs(rows)
    assert asking.alter(0, Proposed([0, 1])) == [(0, [0, 1], 1)]
    run_until_quiet(started)
    with monkeypatch.context() as unfiled:
        unfiled.setattr(IsrWriter, "drain_written", lambda _: (set(), set()))
        assert asking.alter(0, Proposed([0, 1, 2], partition_epoch=1)) == [(0, [0, 1, 2], 2)]
        tree.unregister(2)
        run_until_quiet(started)
    assert (started.context.live, tree.state("orders").isr) == ([0, 1], [0, 1, 2])

    run_until_quiet(started)

    assert tree.state("orders").isr == [0, 1]


def test_the_next_controller_is_asked_after_a_take_over(
    tree: KafkaTree, client: KazooClient, started: ResidentController, asking: AskingBrokers
) -> None:
    """Another controller took over, and this one has not noticed: nothing is written under the former epoch."""
    assert started.control.epoch
    take_over(client, OURS, release_timeout=None)

    assert asking.alter(0, Proposed([0, 2])) == [(NOT_CONTROLLER, [], 0)]
    assert tree.version("orders") == 0


def test_a_process_that_is_not_the_controller_says_so(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]})
    assert asking.alter(0, Proposed([0, 2])) == [(NOT_CONTROLLER, [], 0)]
    initialize(controller)
    controller.stop()

    assert asking.alter(0, Proposed([0, 2])) == [(NOT_CONTROLLER, [], 0)]
    assert tree.version("orders") == 0


def test_many_leaders_at_once(tree: KafkaTree, controller: ResidentController, asking: AskingBrokers) -> None:
    """More states than a multi takes, of three leaders that ask side by side."""
    tree.add_topic("orders", {number: [number % 3, (number + 1) % 3] for number in range(1500)})
    initialize(controller)

    answers = [
        asking.alter_partition(
            broker, *(Proposed([broker], partition=number) for number in range(1500) if number % 3 == broker)
        )
        for broker in range(3)
    ]
    wait(answers, SECONDS)

    errors = {
        int(partition.error_code)
        for answer in answers
        for topic in answer.result().topics
        for partition in topic.partitions
    }
    assert errors == {0}
    assert {*tree.versions("orders").values()} == {1}
    controller.cycle()
    assert all(row.isr == [row.leader] for row in controller.context.partitions.values())


def test_one_bad_partition_spoils_no_other(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers
) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [0, 1], 2: [0, 1]})
    initialize(controller)
    tree.touch(state_path("orders", 1))

    answers = asking.alter(0, *(Proposed([0], partition=number) for number in range(3)))

    assert answers == [(0, [0], 1), (INVALID_UPDATE_VERSION, [], 0), (0, [0], 1)]


def test_joiners_that_died_unnoticed_spoil_no_other(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    initialize(controller)
    asking.alter(0, Proposed([0]), Proposed([0], partition=1))
    for broker in (1, 2):
        tree.unregister(broker)

    joining = [Proposed([0, broker], partition=broker - 1, partition_epoch=1) for broker in (1, 2)]
    answers = asking.alter(0, *joining, Proposed([0], partition=2))

    assert answers == [(INELIGIBLE_REPLICA, [], 0), (INELIGIBLE_REPLICA, [], 0), (0, [0], 1)]


def test_a_state_that_others_write_all_the_time_spoils_no_other(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers, multis: Multis
) -> None:
    """Its leader knows the version that the next write of the others makes."""
    tree.add_topic("orders", {0: [0, 1], 1: [0, 1], 2: [0, 1]})
    initialize(controller)

    multis.before(*[partial(tree.touch, state_path("orders", 1))] * 20)
    proposed = [Proposed([0], partition=number, partition_epoch=0) for number in range(3)]

    assert asking.alter(0, *proposed)[::2] == [(0, [0], 1), (0, [0], 1)]


@pytest.mark.usefixtures("started")
def test_the_last_of_two_proposals_for_a_partition_counts(tree: KafkaTree, asking: AskingBrokers) -> None:
    assert asking.alter(0, Proposed([0]), Proposed([0, 2])) == [(0, [0, 2], 1), (0, [0, 2], 1)]
    assert tree.version("orders") == 1


@pytest.mark.parametrize("topic", ["", ".", "..", "a/../b", "a\0b", "\ud7ff", "t" * 30_000, "orders/partitions"])
@pytest.mark.usefixtures("started")
def test_names_that_no_topic_has(asking: AskingBrokers, topic: str) -> None:
    assert asking.alter(0, Proposed([0]), topic=topic, version=1) == [(3, [], 0)]
    assert asking.alter(0, Proposed([0, 2]), version=1) == [(0, [0, 2], 1)]


def test_a_reassignment_ends_as_soon_as_its_target_is_in_sync(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers
) -> None:
    tree.add_topic("orders", {0: [0, 1]})
    initialize(controller)
    tree.write("/admin/reassign_partitions", encode_partitions([TopicPartition("orders", 0, [0, 2])]))
    assert eventually(lambda: controller.cycle() or bool(controller.context.moving), SECONDS)
    state = tree.state("orders")

    answers = asking.alter(
        0, Proposed([0, 1, 2], leader_epoch=state.leader_epoch, partition_epoch=tree.version("orders"))
    )
    run_until_quiet(controller)

    assert answers[0][:2] == (0, [0, 1, 2])
    assert controller.context.partitions["orders", 0].replicas == [0, 2]
    assert tree.state("orders").isr == [0, 2]


def test_a_replica_on_the_controller_is_replaced_before_the_first_state(
    tree: KafkaTree, started: ResidentController, log: list[str]
) -> None:
    put_assignment(tree, "auto", {0: [OURS, 1], 1: [2, OURS]})
    run_until_quiet(started)

    replicas = {key[1]: row.replicas for key, row in started.context.partitions.items() if key[0] == "auto"}
    assert OURS not in {broker for brokers in replicas.values() for broker in brokers}
    assert {len({*brokers}) for brokers in replicas.values()} == {2}
    assert {tree.state("auto", number).leader_epoch for number in (0, 1)} == {0}
    assert any("topic auto: moved 2 replicas from the controller's id" in line for line in log)


def test_topics_without_an_id_keep_none_while_the_protocol_is_unknown(
    tree: KafkaTree, controller: ResidentController, request_handler: RequestHandler
) -> None:
    assert controller.request_handler is request_handler
    tree.add_topic("orders", {0: [0]}, topic_id=None)
    tree.add_topic("payments", {0: [1]}, topic_id=TOPIC_ID)
    initialize(controller)

    assert controller.context.topic_id("orders") is None
    assert controller.context.topic_of_id(TOPIC_ID) == "payments"
