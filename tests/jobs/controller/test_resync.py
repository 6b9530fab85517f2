"""The resync: it finds changes without a watch, part by part, and delays no other work."""

import time

import pytest

from jobs.controller.controller import ResidentController
from tests.jobs.support.controllers.resident import drain_watches, initialize, put_isr, requests_to, run_until_quiet
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TOPICS = ("a", "b", "c")


@pytest.fixture
def partwise_controller(tree: KafkaTree, controller: ResidentController) -> ResidentController:
    """An initialized controller, with topics that are read one by one."""
    controller.resync.partitions_per_cycle = 2
    for topic in TOPICS:
        tree.add_topic(topic, {0: [0, 1, 2], 1: [1, 2, 0]}, topic_id=None)
    initialize(controller)
    return controller


def test_resync_runs_in_parts_until_done(partwise_controller: ResidentController) -> None:
    resync = partwise_controller.resync
    assert resync.read_next_part() is None
    resync.monotonic = lambda: time.monotonic() + 301

    first_part = resync.read_next_part()
    parts = [resync.read_next_part() for _ in TOPICS]

    assert first_part is not None
    assert first_part.partitions == set()
    assert all(part is not None and part.partitions == set() for part in parts)
    assert (resync.is_under_way, resync.read_next_part()) == (False, None)


def test_change_without_notification_is_found(tree: KafkaTree, partwise_controller: ResidentController) -> None:
    """A leader removes a follower from its ISR, and its notification is lost."""
    for topic in TOPICS:
        put_isr(tree, topic, [0, 1])
    run_until_quiet(partwise_controller)
    assert requests_to(tree, 2, "update_metadata")["a", 0].isr == (0, 1, 2)

    partwise_controller.resync.begin_at_once()
    parts = [partwise_controller.resync.read_next_part() for _ in range(1 + len(TOPICS))]

    assert [changes.partitions for changes in parts if changes is not None] == [
        set(),
        {("a", 0)},
        {("b", 0)},
        {("c", 0)},
    ]


def test_lost_leader_does_not_wait_for_the_resync(tree: KafkaTree, partwise_controller: ResidentController) -> None:
    partwise_controller.resync.begin_at_once()
    partwise_controller._run_resync()  # noqa: SLF001 - what `run` does before each cycle
    partwise_controller._run_resync()  # noqa: SLF001
    assert partwise_controller.resync.is_under_way

    tree.unregister(0)
    run_until_quiet(partwise_controller)

    assert partwise_controller.resync.is_under_way
    assert {topic: tree.state(topic).leader for topic in TOPICS} == dict.fromkeys(TOPICS, 1)
    put_isr(tree, "c", [1], partition=1)
    while partwise_controller.resync.is_under_way:
        partwise_controller._run_resync()  # noqa: SLF001
    run_until_quiet(partwise_controller)
    assert requests_to(tree, 1, "update_metadata")["c", 1].isr == (1,)


def test_many_fired_topics_are_read_in_parts(tree: KafkaTree, partwise_controller: ResidentController) -> None:
    """As after a lost connection: a partition that loses its leader does not wait until all topics are read."""
    for topic in TOPICS:
        partwise_controller.watches.signal(f"/brokers/topics/{topic}")
    put_isr(tree, "b", [0, 1], partition=0)
    tree.unregister(2)
    drain_watches(partwise_controller)

    partwise_controller.cycle()
    assert partwise_controller.resync.is_under_way
    assert {topic: tree.state(topic, 1).isr for topic in TOPICS} == {topic: [1, 0] for topic in TOPICS}
    while partwise_controller.resync.is_under_way:
        partwise_controller._run_resync()  # noqa: SLF001 - what `run` does before each cycle
    assert all(partwise_controller.context.partitions[topic, 0].isr == tree.state(topic).isr for topic in TOPICS)
