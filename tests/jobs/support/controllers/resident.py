"""Drives a resident controller in tests: cycles until nothing is due, and the requests that brokers received."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.protocol.states import Callback

from jobs.controller.controller import ResidentController
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path


def run_until_quiet(controller: ResidentController) -> None:
    """Run cycles until nothing is due and all brokers have responded."""
    for _ in range(30):
        drain_watches(controller)
        busy = controller.cycle()
        assert eventually(lambda: not controller.broker_requests.channels.busy)
        drain_watches(controller)
        if not busy and controller.responses.is_quiet and not controller.watches.wakeup.is_set():
            return
    raise AssertionError("the controller did not become quiet")


def drain_watches(controller: ResidentController) -> None:
    """Wait until the watches of everything written so far have been called."""
    client = controller.control.client
    with suppress(KazooException):  # the session has ended, and so have its watches
        client.sync("/")  # ZooKeeper sends events before the answers that follow them
        called = threading.Event()
        client.handler.dispatch_callback(Callback("watch", called.set, ()))  # Kazoo calls in the order of the events
        assert called.wait(20)


def initialize(controller: ResidentController) -> None:
    controller.initialize()
    run_until_quiet(controller)


def put_assignment(tree: KafkaTree, topic: str, replicas: dict[int, list[int]]) -> None:
    """Write a topic as brokers do when they create one themselves."""
    tree.write(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))


def put_isr(tree: KafkaTree, topic: str, isr: Sequence[int], partition: int = 0) -> None:
    """Let followers join the ISR, as their leader writes it."""
    before = tree.state(topic, partition)
    now = State(
        controller_epoch=before.controller_epoch, leader=before.leader, leader_epoch=before.leader_epoch, isr=[*isr]
    )
    tree.client.set(state_path(topic, partition), encode_state(now))


def requests_to(tree: KafkaTree, broker: int, api: str) -> dict[tuple[str, int], Any]:
    """The last state that a broker received by an API, by topic and partition."""
    assert tree.brokers is not None
    return {
        (topic.topic_name, state.partition_index): state
        for one in tree.brokers[broker].of(api)
        for topic in one.request.topic_states
        for state in topic.partition_states
    }


def assigned(tree: KafkaTree, topic: str) -> Assignment:
    return tree.assignment(topic)
