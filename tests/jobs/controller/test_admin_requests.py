"""Requests in /admin and automatic balancing, carried out cycle by cycle until they complete."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import TransactionRequest
from kazoo.exceptions import ConnectionLoss
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import commit
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller import ResidentController
from jobs.controller.controller_context import partition_notification
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import DueWork
from jobs.controller.zk_watches import ZkWatches
from jobs.runtime.pace import Pace
from schemas.enums import LEADER_DURING_DELETE, WITHDRAWALS, OperationKind
from schemas.notices import STOP_REPLICA
from schemas.znode_codecs import Assignment, State, TopicPartition, encode_assignment, encode_partitions, encode_state
from tests.jobs.controller.model.network import ModelResponse
from tests.jobs.support.controllers.hooked_reader import Hooks
from tests.jobs.support.controllers.resident import (
    drain_watches,
    initialize,
    put_assignment,
    put_isr,
    requests_to,
    run_until_quiet,
)
from tests.jobs.support.zookeeper.fenced_writes import Multis
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

REASSIGN, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"


def recorded_withdrawals(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """Rows of `commits` for withdrawn requests: action, topic, partition, outcome, message."""
    about = {*WITHDRAWALS, OperationKind.DELETE_TOPIC}
    rows = [row for row in warehouse.rows("commits") if row["action"] in about]
    named = ("action", "topic", "partition", "outcome", "message")
    return sorted((tuple(row[name] for name in named) for row in rows), key=str)


MOVES = [
    TopicPartition("orders", 0, [1, 2]),
    TopicPartition("orders", 1, [9, 2]),
    TopicPartition("orders", 5, [1]),
]
"""Requests to move a partition, to move one to a dead broker, and to move an unknown partition."""


def test_requested_moves_begin_end_and_wait_for_their_targets(
    tree: KafkaTree, controller: ResidentController, warehouse: Warehouse
) -> None:
    """The source is stopped after the target was sent its leader; the move to a dead broker begins as it registers."""
    controller.log.start()
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    initialize(controller)
    tree.client.create(REASSIGN, encode_partitions(MOVES))
    run_until_quiet(controller)
    topic = tree.assignment("orders")
    assert (topic.partitions[0], topic.adding_replicas, topic.removing_replicas) == ([1, 2, 0], {0: [2]}, {0: [0]})
    sent_as_new = {broker: requests_to(tree, broker, "leader_and_isr")["orders", 0].is_new for broker in (1, 2)}
    assert sent_as_new == {1: False, 2: True}
    # the request for the unknown partition is withdrawn; the one for a dead broker waits
    assert tree.client.get(REASSIGN)[0] == encode_partitions(MOVES[:2])

    assert tree.brokers is not None
    received = tree.brokers.in_order("orders")
    put_isr(tree, "orders", [0, 1, 2])
    run_until_quiet(controller)
    assert received[:5].count((0, "update_metadata")) == 1
    assert {(1, "leader_and_isr"), (2, "leader_and_isr")} < {*received[:5]}
    assert received[5] == (0, "stop_replica")  # as in Kafka
    assert requests_to(tree, 0, "stop_replica")["orders", 0].delete_partition
    assert requests_to(tree, 2, "leader_and_isr")["orders", 0].replicas == (1, 2)
    topic, state = tree.assignment("orders"), tree.state("orders")
    assert (topic.partitions, topic.removing_replicas) == ({0: [1, 2], 1: [1, 2]}, {})
    assert (state.leader, state.isr, state.leader_epoch) == (1, [1, 2], 8)
    assert tree.client.get(REASSIGN)[0] == encode_partitions(MOVES[1:2])

    tree.register(9)
    drain_watches(controller)
    run_until_quiet(controller)
    assert tree.assignment("orders").adding_replicas == {1: [9]}
    put_isr(tree, "orders", [1, 2, 9], partition=1)
    run_until_quiet(controller)
    controller.log.close()
    assert tree.assignment("orders").partitions[1] == [9, 2]
    assert tree.client.exists(REASSIGN) is None
    kind = "withdraw_reassignment"
    assert recorded_withdrawals(warehouse) == [
        (kind, "orders", 0, "applied", "requested replicas [1, 2]: partition is already assigned as requested"),
        (kind, "orders", 1, "applied", "requested replicas [9, 2]: partition is already assigned as requested"),
        (kind, "orders", 5, "applied", "requested replicas [1]: no such partition"),
    ]


@pytest.mark.parametrize("asked", ["move", "deletion"])
def test_request_for_a_topic_created_during_the_cycle_is_kept(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch, hooks: Hooks, asked: str
) -> None:
    """The topic and then the request are created after a cycle has read topics, and before it reads requests."""
    initialize(controller)
    made: list[str] = []

    def create_during_read(read: Callable[[DueWork], None], changes: DueWork) -> None:
        if not made:
            made.append(asked)
            tree.add_topic("new", {0: [0, 1]}, topic_id=None)
            if asked == "move":
                tree.client.create(REASSIGN, encode_partitions([TopicPartition("new", 0, [1, 0])]))
            else:
                tree.client.create("/admin/delete_topics/new", b"")
        read(changes)

    hooks["_requests"] = create_during_read
    with monkeypatch.context() as responses:
        responses.setattr(ZkWatches, "drain", lambda _: set())
        controller.cycle()
    assert tree.client.exists(REASSIGN if asked == "move" else "/admin/delete_topics/new")
    run_until_quiet(controller)

    if asked == "move":
        assert tree.assignment("new").partitions == {0: [1, 0]}
    else:
        assert tree.client.exists("/brokers/topics/new") is None


@pytest.mark.parametrize("is_done", [True, False])
def test_withdrawal_without_a_response_is_unknown(
    tree: KafkaTree,
    controller: ResidentController,
    warehouse: Warehouse,
    multis: Multis,
    *,
    is_done: bool,
) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    answers: list[object] = []

    def lose_first(multi: TransactionRequest) -> list[object]:
        if answers:
            return commit(multi)
        answers.append(commit(multi) if is_done else None)
        raise ConnectionLoss

    tree.client.create(REASSIGN, encode_partitions([TopicPartition("orders", 5, [1])]))
    multis.commit = lose_first
    controller.log.start()
    run_until_quiet(controller)
    controller.log.close()

    assert tree.client.exists(REASSIGN) is None
    assert [row[3] for row in recorded_withdrawals(warehouse)] == ["applied", "unknown"][is_done:]


def test_too_large_move_does_not_block_others(
    tree: KafkaTree, controller: ResidentController, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("large", {p: [0, 1] for p in range(8)}, topic_id=None)
    tree.add_topic("small", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    clock = [0.0]  # time stands still, as cycles take seconds on a busy machine
    controller.writer.pace = Pace(SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("jobs.adapters.zookeeper.multi_failure.ZNODE_LIMIT", 130)

    tree.write(REASSIGN, encode_partitions([TopicPartition("large", 0, [0, 2]), TopicPartition("small", 0, [1, 0])]))
    drain_watches(controller)
    assert controller.cycle()

    assert (tree.assignment("large").partitions[0], tree.assignment("small").partitions[0]) == ([0, 1], [1, 0])
    assert tree.version("large") == 0
    assert any("1 start_reassignment failed" in line for line in log)
    run_until_quiet(controller)
    assert len([line for line in log if "large-0: cannot set" in line]) == 1

    clock[0] += 5
    run_until_quiet(controller)  # it is tried again without success, and waits longer
    assert len([line for line in log if "failed" in line or "cannot set" in line]) == 2
    assert controller.summary.stale == 2

    monkeypatch.setattr("jobs.adapters.zookeeper.multi_failure.ZNODE_LIMIT", 1_000)
    run_until_quiet(controller)
    assert tree.assignment("large").partitions[0] == [0, 1]
    clock[0] += 9
    run_until_quiet(controller)
    assert tree.assignment("large").partitions[0] == [0, 2, 1]


def test_late_response_to_a_deletion_is_ignored(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    stands = partition_notification(controller.context.partitions["orders", 0], None, STOP_REPLICA, (0,))
    deleted = replace(stands, leader_epoch=LEADER_DURING_DELETE, delete_partition=True)

    controller.responses.receive(
        ModelResponse(controller.context.brokers[0], 1, STOP_REPLICA, [deleted], b"", 3, codes=(0,))
    )
    controller.cycle()

    assert not controller.context.stopped


def remaining_znodes(tree: KafkaTree, topic: str) -> list[str]:
    """The znodes of a topic and of the request to delete it that still exist."""
    paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
    return [path for path in paths if tree.client.exists(path)]


def test_topic_is_deleted_after_its_replicas(
    tree: KafkaTree, controller: ResidentController, warehouse: Warehouse
) -> None:
    controller.log.start()
    tree.add_topic("old", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    initialize(controller)
    tree.unregister(2)
    tree.client.create("/admin/delete_topics/old")
    tree.client.create("/admin/delete_topics/unknown")
    run_until_quiet(controller)
    assert tree.client.exists("/brokers/topics/old")  # a replica is unreachable
    assert tree.client.get_children("/admin/delete_topics") == ["old"]

    tree.register(2)
    run_until_quiet(controller)
    controller.log.close()

    assert remaining_znodes(tree, "old") == []
    assert requests_to(tree, 0, "update_metadata")["old", 0].leader == LEADER_DURING_DELETE
    assert requests_to(tree, 2, "stop_replica")["old", 1].delete_partition
    assert recorded_withdrawals(warehouse) == [
        ("delete_topic", "old", None, "applied", "every broker has confirmed it"),
        ("withdraw_deletion", "unknown", None, "applied", "topic does not exist"),
    ]


def test_topic_of_a_deleted_name_starts_at_leader_epoch_0(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    tree.client.create("/admin/delete_topics/old")
    run_until_quiet(controller)

    put_assignment(tree, "old", {0: [0, 1]})
    run_until_quiet(controller)

    assert tree.state("old").leader_epoch == 0


def test_partly_deleted_topic_is_deleted(tree: KafkaTree, controller: ResidentController) -> None:
    """DeleteTopicTest: testDeletingPartiallyDeletedTopic, after a controller that died while it deleted znodes."""
    tree.add_topic("old", {0: [0, 1], 1: [1, 2]})
    tree.client.delete("/brokers/topics/old/partitions/0", recursive=True)
    tree.client.create("/admin/delete_topics/old")
    initialize(controller)
    run_until_quiet(controller)

    assert remaining_znodes(tree, "old") == []
    assert all(requests_to(tree, b, "stop_replica")["old", p].delete_partition for b, p in ((0, 0), (1, 0), (2, 1)))


def test_moving_topic_without_state_is_deleted(tree: KafkaTree, controller: ResidentController) -> None:
    """Kafka's controllers resign over it one after another; that move would never end."""
    assigned = Assignment({0: [0, 1]}, {0: [1]}, {}, None)
    tree.write("/brokers/topics/unborn", encode_assignment(assigned))
    tree.client.create("/admin/delete_topics/unborn")

    initialize(controller)
    run_until_quiet(controller)

    assert remaining_znodes(tree, "unborn") == []


def test_unknown_children_of_a_topic_are_deleted(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("odd", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    for path in ("extra/deep", "partitions/0/state/child", "partitions/7/state"):
        tree.client.create(f"/brokers/topics/odd/{path}", b"x", makepath=True)
    tree.client.create("/admin/delete_topics/odd")

    run_until_quiet(controller)

    assert remaining_znodes(tree, "odd") == []


def test_undeletable_notification_does_not_block_others(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    changed = encode_partitions([TopicPartition("orders", 0)])
    for name in ("isr_change_0000000001", "isr_change_0000000002", "isr_change_0000000003"):
        tree.client.create(f"/isr_change_notification/{name}", changed)
    tree.client.create("/isr_change_notification/isr_change_0000000002/child")

    drain_watches(controller)
    controller.cycle()

    assert tree.client.get_children("/isr_change_notification") == ["isr_change_0000000002"]


def isr_change(tree: KafkaTree, controller: ResidentController) -> None:
    """Broker 2 leads orders-1 in place of broker 1, and notifies the controller of the ISR."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    initialize(controller)
    tree.client.set(state_path("orders", 1), encode_state(State(1, 2, 6, [2, 1])))
    tree.client.create(
        "/isr_change_notification/isr_change_0000000007", encode_partitions([TopicPartition("orders", 1)])
    )
    run_until_quiet(controller)


def test_isr_changes_are_sent_to_all_brokers(tree: KafkaTree, controller: ResidentController) -> None:
    isr_change(tree, controller)

    assert requests_to(tree, 0, "update_metadata")["orders", 1].isr == (2, 1)
    assert tree.client.get_children("/isr_change_notification") == []


def test_requested_preferred_elections_are_attempted(
    tree: KafkaTree, controller: ResidentController, warehouse: Warehouse
) -> None:
    controller.log.start()
    isr_change(tree, controller)

    elections = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("nothing", 0)]
    tree.client.create(ELECTION, encode_partitions(elections))
    run_until_quiet(controller)
    controller.log.close()

    state = tree.state("orders", 1)
    assert (state.leader, state.isr, state.leader_epoch) == (1, [2, 1], 7)
    assert tree.version("orders", 0) == 0
    assert tree.client.exists(ELECTION) is None
    kind = "withdraw_election"
    assert recorded_withdrawals(warehouse) == [
        (kind, "nothing", 0, "applied", "no such partition in the snapshot"),
        (kind, "orders", 0, "applied", "already led by its preferred replica 0"),
        (kind, "orders", 1, "applied", "the election was attempted"),
    ]


def led_by_others(tree: KafkaTree, controller: ResidentController) -> None:
    """Two partitions of three brokers that are led by their second replicas."""
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 0]}, topic_id=None)
    for partition, state in ((0, State(7, 1, 9, [0, 1, 2])), (1, State(7, 0, 9, [1, 0]))):
        tree.write(state_path("orders", partition), encode_state(state))
    initialize(controller)


def test_election_that_waits_for_a_change_is_kept(tree: KafkaTree, controller: ResidentController) -> None:
    led_by_others(tree, controller)
    tree.unregister(2)
    tree.client.create(ELECTION, encode_partitions([TopicPartition("orders", 0), TopicPartition("orders", 1)]))

    drain_watches(controller)
    controller.cycle()
    assert tree.state("orders", 0).isr == [0, 1]
    assert tree.client.get(ELECTION)[0] == encode_partitions([TopicPartition("orders", 0)])
    run_until_quiet(controller)

    assert [tree.state("orders", partition).leader for partition in range(2)] == [0, 1]
    assert tree.client.exists(ELECTION) is None


def test_outdated_election_is_retried_in_the_next_cycle(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_by_others(tree, controller)
    tree.write(state_path("orders", 0), encode_state(State(7, 1, 9, [0, 1])))
    tree.client.create(ELECTION, encode_partitions([TopicPartition("orders", 0)]))
    with monkeypatch.context() as once:
        once.setattr(
            MetadataReader, "refresh_partitions", lambda *_: set()
        )  # as if its leader wrote it right after the read
        drain_watches(controller)
        controller.cycle()
    assert (tree.state("orders").leader, controller.summary.stale) == (1, 1)
    run_until_quiet(controller)

    assert (tree.state("orders").leader, tree.state("orders").isr) == (0, [0, 1])
    assert tree.client.exists(ELECTION) is None


def test_election_of_an_unwritable_partition_is_dropped(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka; the request would block all others."""
    monkeypatch.setattr("jobs.adapters.zookeeper.multi_failure.ZNODE_LIMIT", 40)
    led_by_others(tree, controller)
    tree.client.create(REASSIGN, encode_partitions([TopicPartition("orders", 0, [2, 1])]))
    tree.client.create(ELECTION, encode_partitions([TopicPartition("orders", 0)]))
    for _ in range(2):
        drain_watches(controller)
        controller.cycle()

    assert tree.client.exists(ELECTION) is None
    assert tree.client.exists(REASSIGN) is not None


def test_isr_change_during_the_first_read_is_noticed(
    tree: KafkaTree, controller: ResidentController, hooks: Hooks
) -> None:
    """Old notifications are deleted before anything is read, as in Kafka; those written in the meantime are kept."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    happened: list[bool] = []

    def then_changed(read: Callable[..., None], changes: DueWork, reread: Collection[str]) -> None:
        read(changes, reread)
        if happened:
            return
        happened.append(True)
        put_isr(tree, "orders", [0])
        changed = encode_partitions([TopicPartition("orders", 0)])
        tree.client.create("/isr_change_notification/isr_change_", changed, sequence=True)

    hooks["_topics"] = then_changed
    initialize(controller)

    assert requests_to(tree, 2, "update_metadata")["orders", 0].isr == (0,)
    assert tree.client.get_children("/isr_change_notification") == []


@pytest.mark.parametrize(
    ("path", "data", "action", "is_legible"),
    [
        (REASSIGN, b'{"version":1,"partitions":[]}', "withdraw_reassignment", True),
        (REASSIGN, b"{nonsense", "withdraw_reassignment", False),
        (ELECTION, b'{"version":1,"partitions":[]}', "withdraw_election", True),
        (ELECTION, b"", "withdraw_election", True),
        ("/isr_change_notification/isr_change_0000000001", b"{nonsense", "discard_notification", False),
        ("/log_dir_event_notification/log_dir_event_0000000001", b"[]", "discard_notification", False),
    ],
)
def test_empty_or_unreadable_requests_are_removed(  # noqa: PLR0913 - a table
    tree: KafkaTree,
    controller: ResidentController,
    warehouse: Warehouse,
    *,
    path: str,
    data: bytes,
    action: str,
    is_legible: bool,
) -> None:
    controller.log.start()
    initialize(controller)
    tree.client.create(path, data)

    run_until_quiet(controller)

    assert tree.client.exists(path) is None
    controller.log.close()
    ((recorded, outcome, reason),) = [
        (row["action"], row["outcome"], row["message"]) for row in warehouse.rows("commits")
    ]
    assert (recorded, outcome) == (action, "applied")
    assert reason.startswith(f"{path}: ")
    assert (reason == f"{path}: it is empty") is is_legible


def test_leadership_is_balanced_automatically(tree: KafkaTree, controller: ResidentController) -> None:
    """`checkAndTriggerAutoLeaderRebalance` elects without a request, and an existing request is not withdrawn."""
    tree.add_topic("orders", {0: [0, 1], 1: [0, 2], 2: [1, 0]}, topic_id=None)
    initialize(controller)
    for partition, leader in ((0, 1), (1, 2)):
        tree.write(state_path("orders", partition), encode_state(State(7, leader, 9, [leader, 0])))
    controller.watches.signal("/brokers/topics/orders")
    run_until_quiet(controller)
    assert [tree.state("orders", partition).leader for partition in range(3)] == [1, 2, 1]

    controller.auto_rebalance = AutoLeaderRebalance(3600.0, 0.1, _next_check=0.0)
    run_until_quiet(controller)

    assert [tree.state("orders", partition).leader for partition in range(3)] == [0, 0, 1]
    assert tree.state("orders").leader_epoch == 10
    assert requests_to(tree, 1, "leader_and_isr")["orders", 0].leader == 0
