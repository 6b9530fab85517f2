"""What is asked for in /admin, and what balance asks for, carried out cycle by cycle to its end."""

import time

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.lake import Lake
from jobs.cycle.balance import Balance
from jobs.cycle.control import Controller
from jobs.cycle.memory import notice_of
from schemas.names import LEADER_DURING_DELETE
from schemas.notices import STOP_REPLICA
from schemas.znodes import (
    State,
    TopicPartition,
    encode_partitions,
    encode_state,
)
from tests.jobs.cycle.model.network import Said
from tests.jobs.support.in_office import assigned, by_hand, follow, hear_watches, settle, take_up, told
from tests.jobs.support.kafka_tree import KafkaTree, state_path

REASSIGN = "/admin/reassign_partitions"


def test_a_reassignment_by_a_request_is_carried_out_to_its_end(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    take_up(controller)
    orders = [
        TopicPartition("orders", 0, [1, 2]),
        TopicPartition("orders", 1, [9, 2]),
        TopicPartition("orders", 5, [1]),
    ]
    tree.client.create(REASSIGN, encode_partitions(orders))

    settle(controller)
    found = assigned(tree, "orders")
    assert (found.partitions[0], found.adding_replicas, found.removing_replicas) == ([1, 2, 0], {0: [2]}, {0: [0]})
    assert told(tree, 2, "leader_and_isr")["orders", 0].is_new
    assert not told(tree, 1, "leader_and_isr")["orders", 0].is_new
    left = encode_partitions(orders[:1])
    assert tree.client.get(REASSIGN)[0] == left  # the dead broker's and the unknown one are withdrawn

    follow(tree, "orders", [0, 1, 2])
    settle(controller)

    assert assigned(tree, "orders").partitions == {0: [1, 2], 1: [1, 2]}
    assert assigned(tree, "orders").removing_replicas == {}
    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (1, [1, 2], 8)
    assert told(tree, 0, "stop_replica")["orders", 0].delete_partition
    assert told(tree, 2, "leader_and_isr")["orders", 0].replicas == (1, 2)
    assert tree.client.exists(REASSIGN) is None


def test_a_move_that_no_request_can_hold_is_not_sent_and_holds_up_no_other(
    tree: KafkaTree, controller: Controller, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("large", {p: [0, 1] for p in range(8)}, topic_id=None)
    tree.add_topic("small", {0: [0, 1]}, topic_id=None)
    take_up(controller)
    monkeypatch.setattr("jobs.execution.batch.topic_znodes.LIMIT", 130)

    tree.write(REASSIGN, encode_partitions([TopicPartition("large", 0, [0, 2]), TopicPartition("small", 0, [1, 0])]))
    hear_watches(controller)
    assert controller.cycle()

    assert (assigned(tree, "large").partitions[0], assigned(tree, "small").partitions[0]) == ([0, 1], [1, 0])
    assert tree.version("large") == 0
    assert any("1 start_reassignment failed" in line for line in said)
    settle(controller)
    assert len([line for line in said if "large-0: cannot set" in line]) == 1

    monkeypatch.setattr("jobs.cycle.writing.monotonic", lambda: time.monotonic() + 5)
    settle(controller)  # it is tried once more, in vain, and waits longer
    assert len([line for line in said if "failed" in line or "cannot set" in line]) == 2
    assert controller.done.stale == 2

    monkeypatch.setattr("jobs.execution.batch.topic_znodes.LIMIT", 1_000)
    settle(controller)
    assert assigned(tree, "large").partitions[0] == [0, 1]
    monkeypatch.setattr("jobs.cycle.writing.monotonic", lambda: time.monotonic() + 14)
    settle(controller)
    assert assigned(tree, "large").partitions[0] == [0, 2, 1]


def test_what_is_heard_of_a_deletion_once_it_is_over_counts_for_nothing(
    tree: KafkaTree, controller: Controller
) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    take_up(controller)
    stands = notice_of(controller.memory.partitions["orders", 0], None, STOP_REPLICA, (0,))
    deleted = replace(stands, leader_epoch=LEADER_DURING_DELETE, delete_partition=True)

    controller.ears.hear(Said(controller.memory.brokers[0], 1, STOP_REPLICA, [deleted], b"", 3, codes=(0,)))
    controller.cycle()

    assert not controller.memory.stopped


def test_a_topic_is_deleted_once_all_its_replicas_are(tree: KafkaTree, controller: Controller, lake: Lake) -> None:
    controller.behind.start()
    tree.add_topic("old", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    take_up(controller)
    tree.unregister(2)
    tree.client.create("/admin/delete_topics/old")
    tree.client.create("/admin/delete_topics/unknown")
    settle(controller)
    assert tree.client.exists("/brokers/topics/old")  # a replica is out of reach
    assert tree.client.get_children("/admin/delete_topics") == ["old"]

    tree.register(2)
    settle(controller)

    assert [tree.client.exists(path) for path in ("/brokers/topics/old", "/config/topics/old")] == [None, None]
    assert tree.client.get_children("/admin/delete_topics") == []
    assert told(tree, 0, "update_metadata")["old", 0].leader == -2
    assert told(tree, 2, "stop_replica")["old", 1].delete_partition
    by_hand(tree, "old", {0: [0, 1]})
    settle(controller)
    assert tree.state("old").leader_epoch == 0
    controller.behind.close()
    gone = [(row["topic"], row["outcome"]) for row in lake.rows("commits") if row["action"] == "delete_topic"]
    assert gone == [("old", "applied")]


def test_preferred_elections_and_isr_changes(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    take_up(controller)
    tree.client.set(state_path("orders", 1), encode_state(State(1, 2, 6, [2, 1])))
    tree.client.create(
        "/isr_change_notification/isr_change_0000000007", encode_partitions([TopicPartition("orders", 1)])
    )
    settle(controller)
    assert told(tree, 0, "update_metadata")["orders", 1].isr == (2, 1)
    assert tree.client.get_children("/isr_change_notification") == []

    wanted = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("nothing", 0)]
    tree.client.create("/admin/preferred_replica_election", encode_partitions(wanted))
    settle(controller)

    state = tree.state("orders", 1)
    assert (state.leader, state.isr, state.leader_epoch) == (1, [2, 1], 7)
    assert tree.version("orders", 0) == 0
    assert tree.client.exists("/admin/preferred_replica_election") is None


def test_leadership_is_balanced_by_itself(tree: KafkaTree, controller: Controller) -> None:
    """`checkAndTriggerAutoLeaderRebalance`: what nobody asked for, and a request meanwhile stays what it is."""
    tree.add_topic("orders", {0: [0, 1], 1: [0, 2], 2: [1, 0]}, topic_id=None)
    take_up(controller)
    for partition, leader in ((0, 1), (1, 2)):
        tree.write(state_path("orders", partition), encode_state(State(7, leader, 9, [leader, 0])))
    controller.watches.wake("/brokers/topics/orders")
    settle(controller)
    assert [tree.state("orders", partition).leader for partition in range(3)] == [1, 2, 1]

    controller.balance = Balance(3600.0, 0.1, _next=0.0)
    settle(controller)

    assert [tree.state("orders", partition).leader for partition in range(3)] == [0, 0, 1]
    assert tree.state("orders").leader_epoch == 10
    assert told(tree, 1, "leader_and_isr")["orders", 0].leader == 0
