"""Unreadable znodes, and states that were not sent: they block nothing, and are sent once they are readable."""

from collections.abc import Callable

import pytest

from jobs.controller.controller import ResidentController
from schemas.enums import NO_LEADER
from schemas.znode_codecs import State, encode_config_change, encode_state
from tests.jobs.support.controllers.resident import initialize, put_assignment, requests_to, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

CONFIG, UNCLEAN = "/config/topics/orders", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'


def changed_config(tree: KafkaTree, data: bytes, topic: str = "orders") -> None:
    """Write a topic's settings and the notification of it, as Kafka's tools do."""
    tree.write(f"/config/topics/{topic}", data)
    tree.client.create("/config/changes/config_change_", encode_config_change(f"topics/{topic}"), sequence=True)


@pytest.fixture
def orders(tree: KafkaTree) -> KafkaTree:
    tree.client.ensure_path("/config/changes")
    tree.add_topic("orders", {0: [0, 1], 1: [1]}, topic_id=None)
    tree.add_topic("others", {0: [0, 1]}, topic_id=None)
    return tree


def test_unreadable_settings_block_nothing(orders: KafkaTree, controller: ResidentController) -> None:
    """Clean elections and first leaders need no settings, as in Kafka. Once readable, the settings count."""
    orders.write(CONFIG, b"{illegible")
    orders.write("/config/topics/new", b"{illegible")
    put_assignment(orders, "new", {0: [1, 2]})
    initialize(controller)

    orders.unregister(0)
    run_until_quiet(controller)
    assert (orders.state("orders").leader, orders.state("others").leader) == (1, 1)
    assert orders.state("new").leader == 1

    put_assignment(orders, "later", {0: [0, 2]})
    changed_config(orders, b'{"version":1,"config":{"unclean.leader.election.enable":true}}', "later")
    run_until_quiet(controller)
    assert orders.state("later").leader == 2
    orders.register(0)
    orders.unregister(2)
    run_until_quiet(controller)
    assert orders.state("later").leader == NO_LEADER  # a value that is not a string allows nothing

    changed_config(orders, UNCLEAN, "later")
    run_until_quiet(controller)
    assert orders.state("later").leader == 0


def test_unreadable_partition_does_not_affect_others(orders: KafkaTree, controller: ResidentController) -> None:
    """Kafka elects both. What is not understood is kept unchanged in the topic's znode."""
    data = b'{"version":2,"partitions":{"0":[0,1],"1":[65633,65633,65633],"2":[2,1]},"adding_replicas":{}}'
    orders.add_topic("clicks", {0: [0, 1], 1: [1, 2], 2: [2, 1]}, topic_id=None)
    orders.write("/brokers/topics/clicks", data)
    initialize(controller)

    orders.unregister(0)
    orders.unregister(2)
    run_until_quiet(controller)

    assert (orders.state("clicks", 0).leader, orders.state("clicks", 2).leader) == (1, 1)
    assert orders.state("clicks", 1).leader == 1


def test_partition_without_isr_is_elected_uncleanly_if_allowed(
    orders: KafkaTree, controller: ResidentController
) -> None:
    orders.write(state_path("orders", 0), encode_state(State(1, -1, 9, [])))
    initialize(controller)
    run_until_quiet(controller)
    assert orders.state("orders").leader == -1

    changed_config(orders, UNCLEAN)
    run_until_quiet(controller)

    assert (orders.state("orders").leader, orders.state("orders").isr) == (0, [0])


@pytest.mark.parametrize("trigger", ["watch", "audit"])
def test_allowed_unclean_election_happens(orders: KafkaTree, controller: ResidentController, trigger: str) -> None:
    initialize(controller)
    put_assignment(orders, "orders", {0: [0, 1], 1: [1, 2]})
    run_until_quiet(controller)
    orders.unregister(1)
    run_until_quiet(controller)
    assert orders.state("orders", 1).leader == -1

    if trigger == "watch":
        changed_config(orders, UNCLEAN)
    else:
        orders.write(CONFIG, UNCLEAN)
        controller.resync.begin_at_once()
        controller._run_resync()  # noqa: SLF001 - what `run` does before each cycle
        while controller.resync.is_under_way:
            controller._run_resync()  # noqa: SLF001
    run_until_quiet(controller)

    assert orders.state("orders", 1).leader == 2


def illegible_topic(tree: KafkaTree) -> Callable[[], None]:
    data = tree.client.get("/brokers/topics/orders")[0]
    tree.write("/brokers/topics/orders", b"{illegible")
    return lambda: tree.write("/brokers/topics/orders", data)


def illegible_state(tree: KafkaTree) -> Callable[[], None]:
    tree.write(state_path("orders", 0), b"{illegible")
    tree.touch("/brokers/topics/orders")
    return lambda: tree.write(state_path("orders", 0), encode_state(State(1, 0, 9, [0, 1])))


@pytest.mark.parametrize("corrupt", [illegible_topic, illegible_state])
def test_started_broker_is_sent_a_state_once_readable(
    orders: KafkaTree, controller: ResidentController, corrupt: Callable[[KafkaTree], Callable[[], None]]
) -> None:
    initialize(controller)
    mend = corrupt(orders)
    run_until_quiet(controller)
    assert orders.brokers is not None
    orders.brokers[1].received.clear()
    orders.bounce(1)
    run_until_quiet(controller)
    assert ("orders", 0) not in requests_to(orders, 1, "leader_and_isr")

    mend()
    run_until_quiet(controller)

    assert requests_to(orders, 1, "leader_and_isr")["orders", 0].leader == 0
    assert requests_to(orders, 1, "update_metadata")["orders", 0].leader == 0


def test_a_state_that_is_repaired_is_decided_on_at_once(orders: KafkaTree, controller: ResidentController) -> None:
    """No watch reports a state otherwise; until the next resync its partition would stay without a leader."""
    initialize(controller)
    mend = illegible_state(orders)
    run_until_quiet(controller)
    orders.unregister(0)
    run_until_quiet(controller)
    orders.write(state_path("orders", 0), b"{still illegible")
    run_until_quiet(controller)

    mend()
    run_until_quiet(controller)
    assert orders.state("orders").leader == 1

    before = len(controller.watches.drain())
    orders.touch(state_path("orders", 0))
    assert (before, controller.watches.drain()) == (0, set())  # it is no longer watched


def test_a_topic_of_that_name_is_no_state(tree: KafkaTree, controller: ResidentController) -> None:
    """The znode of a topic is watched again each time that its watch has fired."""
    tree.add_topic("state", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    for number in (1, 2):
        put_assignment(tree, "state", {p: [0, 1] for p in range(number + 1)})
        run_until_quiet(controller)

        assert tree.state("state", number).leader == 0


def test_restored_topic_is_sent_to_brokers(tree: KafkaTree, controller: ResidentController) -> None:
    """As from a copy of the znodes: nothing is due for it, and no broker has its state."""
    initialize(controller)
    tree.add_topic("restored", {0: [0, 1]}, topic_id=None)
    run_until_quiet(controller)

    assert tree.version("restored") == 0
    assert requests_to(tree, 1, "leader_and_isr")["restored", 0].leader_epoch == 5
    assert requests_to(tree, 2, "update_metadata")["restored", 0].leader == 0
