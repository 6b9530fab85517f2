"""Znodes that an ACL forbids reading while a controller runs: what rests on them waits, and all else goes on."""

import json
import logging

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from jobs.controller.controller import ResidentController
from jobs.core.errors import UnreadableError
from tests.jobs.support.controllers.resident import initialize, put_assignment, requests_to, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration

UNREADABLE = [make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)]
BROKER_2 = "/brokers/ids/2"
REQUESTS = {
    "/admin/reassign_partitions": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    "/admin/preferred_replica_election": {"version": 1, "partitions": [{"topic": "orders", "partition": 0}]},
    "/isr_change_notification/isr_change_0000000001": {"version": 1, "partitions": []},
    "/log_dir_event_notification/log_dir_event_0000000001": {"version": 1, "broker": 1, "event": 1},
}


@pytest.fixture
def orders(tree: KafkaTree) -> KafkaTree:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    tree.add_topic("clicks", {0: [2, 0]}, topic_id=None)
    return tree


def live_brokers_sent_to(tree: KafkaTree, broker: int) -> set[int]:
    """Return the brokers that the last UpdateMetadata with brokers names."""
    assert tree.brokers is not None
    sent = [one.request.live_brokers for one in tree.brokers[broker].of("update_metadata")]
    return {int(row.id_) for row in [brokers for brokers in sent if brokers][-1]}


def test_a_broker_whose_registration_becomes_unreadable_stays_alive(
    orders: KafkaTree, controller: ResidentController, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partitions stay as they are, others name it as live, and it is elected for no other partition."""
    initialize(controller)
    before = orders.state("clicks")
    orders.client.set_acls(BROKER_2, UNREADABLE)

    with caplog.at_level(logging.WARNING):
        orders.unregister(1)
        put_assignment(orders, "new", {0: [2, 0]})
        run_until_quiet(controller)
        run_until_quiet(controller)

    assert caplog.text.count("cannot decode the registration of broker 2") == 1
    assert live_brokers_sent_to(orders, 0) == {0, 2}
    assert orders.state("clicks") == before
    assert orders.state("new").leader == 0


def test_a_registration_that_is_readable_again_is_no_restart(orders: KafkaTree, controller: ResidentController) -> None:
    initialize(controller)
    before = orders.state("clicks")
    orders.client.set_acls(BROKER_2, UNREADABLE)
    orders.unregister(1)
    run_until_quiet(controller)

    orders.client.set_acls(BROKER_2, OPEN_ACL_UNSAFE)
    run_until_quiet(controller)
    assert orders.state("clicks") == before
    assert not controller.context.not_understood

    orders.unregister(0)  # it can be elected again
    run_until_quiet(controller)
    assert orders.state("clicks").leader == 2


def test_a_registration_is_watched_again_after_it_was_unreadable(
    orders: KafkaTree, controller: ResidentController
) -> None:
    initialize(controller)
    assert orders.brokers is not None
    port = orders.brokers[2].port
    orders.client.set_acls(BROKER_2, UNREADABLE)
    orders.client.set(BROKER_2, b"{illegible")
    orders.unregister(1)
    run_until_quiet(controller)
    orders.client.set(BROKER_2, registration(port, "first"))
    orders.client.set_acls(BROKER_2, OPEN_ACL_UNSAFE)
    run_until_quiet(controller)

    orders.client.set(BROKER_2, registration(port, "second"))
    run_until_quiet(controller)

    assert controller.context.brokers[2].rack == "second"


def test_a_registration_that_is_overwritten_keeps_its_endpoints(
    orders: KafkaTree, controller: ResidentController
) -> None:
    initialize(controller)
    before, known = orders.state("clicks"), controller.context.brokers[2]

    orders.client.set(BROKER_2, b"{illegible")
    run_until_quiet(controller)

    assert controller.context.brokers[2] == known
    assert orders.state("clicks") == before


@pytest.mark.parametrize("path", REQUESTS)
def test_an_unreadable_request_waits(
    orders: KafkaTree, controller: ResidentController, log: list[str], path: str
) -> None:
    initialize(controller)
    before = orders.state("orders")
    orders.client.create(path, json.dumps(REQUESTS[path]).encode(), acl=UNREADABLE, makepath=True)

    run_until_quiet(controller)

    assert orders.client.exists("/admin/delete_topics") is not None
    assert path.rsplit("/", 1)[1] in orders.client.get_children(path.rsplit("/", 1)[0])
    assert orders.state("orders") == before
    assert not [line for line in log if "is removed" in line or "refused" in line]

    orders.client.set_acls(path, OPEN_ACL_UNSAFE)
    controller.resync.begin_at_once()
    run_until_quiet(controller)
    assert path.rsplit("/", 1)[1] not in orders.client.get_children(path.rsplit("/", 1)[0])


def test_a_folder_of_requests_that_becomes_unreadable_stops_nothing_else(
    orders: KafkaTree, controller: ResidentController
) -> None:
    """A topic that was queued stays so: its replicas are not started again."""
    orders.unregister(1)
    orders.client.create("/admin/delete_topics/orders")
    initialize(controller)
    assert orders.brokers is not None
    started = len(orders.brokers[0].of("leader_and_isr"))
    orders.client.set_acls("/admin/delete_topics", UNREADABLE)

    orders.unregister(2)
    run_until_quiet(controller)

    assert orders.state("clicks").leader == 0
    assert controller.context.is_queued("orders")
    assert ("orders", 0) not in {
        (topic.topic_name, state.partition_index)
        for one in orders.brokers[0].of("leader_and_isr")[started:]
        for topic in one.request.topic_states
        for state in topic.partition_states
    }


def test_no_controller_begins_without_knowing_what_is_deleted(
    orders: KafkaTree, controller: ResidentController
) -> None:
    orders.client.set_acls("/admin/delete_topics", UNREADABLE)

    with pytest.raises(UnreadableError, match="denies Surveyor permission to list /admin/delete_topics"):
        controller.initialize()
    assert not requests_to(orders, 0, "leader_and_isr")
