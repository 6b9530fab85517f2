"""The resident controller, cycle by cycle, on a real ZooKeeper and brokers that only listen."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, take_over
from jobs.controller.controller import ResidentController
from jobs.controller.metadata_reader import MetadataReader
from jobs.core.errors import FencedError
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.runtime.pace import Pace
from schemas.enums import Step
from schemas.rows import Change, Key
from schemas.stored_plan import RowOutcome
from schemas.znode_codecs import State, TopicPartition, encode_partitions, encode_state
from tests.jobs.support.controllers.hooked_reader import Hooks
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import (
    drain_watches,
    initialize,
    put_assignment,
    put_isr,
    requests_to,
    run_until_quiet,
)
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.fenced_writes import OURS
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

REASSIGN, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"


def test_take_over_sends_live_brokers_first_then_full_state(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    tree.client.create(
        "/isr_change_notification/isr_change_0000000001", encode_partitions([TopicPartition("orders", 0)])
    )

    initialize(controller)

    assert tree.brokers is not None
    for broker, held in ((0, {("orders", 0)}), (1, {("orders", 0), ("orders", 1)}), (2, {("orders", 1)})):
        requests = tree.brokers[broker].received
        assert [one.api for one in requests[:2]] == ["update_metadata", "leader_and_isr"]
        assert (requests[0].partitions, {live.id_ for live in requests[0].request.live_brokers}) == (set(), {0, 1, 2})
        assert requests_to(tree, broker, "leader_and_isr").keys() == held
        assert requests_to(tree, broker, "update_metadata").keys() == {("orders", 0), ("orders", 1)}
    assert tree.client.get_children("/isr_change_notification") == []
    assert tree.version("orders") == 0  # nothing was due


def test_new_topics_and_partitions_get_leaders(tree: KafkaTree, controller: ResidentController) -> None:
    initialize(controller)
    put_assignment(tree, "auto", {0: [1, 2], 1: [7, 0], 2: [7, 8]})
    run_until_quiet(controller)
    put_assignment(tree, "auto", {0: [1, 2], 1: [7, 0], 2: [7, 8], 3: [2, 1]})
    run_until_quiet(controller)

    states = {partition: tree.state("auto", partition) for partition in (0, 1, 3)}
    assert {p: (s.leader, s.isr, s.leader_epoch) for p, s in states.items()} == {
        0: (1, [1, 2], 0),
        1: (0, [0], 0),
        3: (2, [2, 1], 0),
    }
    assert tree.client.exists(state_path("auto", 2)) is None
    assert requests_to(tree, 1, "leader_and_isr")["auto", 3].is_new
    tree.register(8)
    run_until_quiet(controller)
    assert tree.state("auto", 2).leader == 8  # no replica was alive; tried again when a broker registered


ORDERS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}


def leaders_of_orders(tree: KafkaTree) -> dict[int, tuple[int, list[int], int]]:
    """Leader, ISR and leader epoch by partition."""
    states = {partition: tree.state("orders", partition) for partition in ORDERS}
    return {partition: (state.leader, state.isr, state.leader_epoch) for partition, state in states.items()}


def test_a_broker_fails_and_returns_and_another_one_bounces(
    tree: KafkaTree, controller: ResidentController, log: list[str]
) -> None:
    tree.add_topic("orders", ORDERS, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None

    tree.unregister(1)
    run_until_quiet(controller)
    assert leaders_of_orders(tree) == {0: (0, [0, 2], 6), 1: (2, [2, 0], 6), 2: (2, [2, 0], 6)}
    assert requests_to(tree, 0, "leader_and_isr")["orders", 1].leader == 2
    assert requests_to(tree, 2, "update_metadata")["orders", 0].offline_replicas == (1,)

    tree.brokers[1].received.clear()
    tree.register(1)
    run_until_quiet(controller)
    assert {state.leader_epoch for state in requests_to(tree, 1, "leader_and_isr").values()} == {6}
    assert {live.id_ for live in tree.brokers[0].of("update_metadata")[-1].request.live_brokers} == {0, 1, 2}
    assert "  broker 1 has registered" in log

    tree.brokers[0].received.clear()
    tree.bounce(0)
    run_until_quiet(controller)
    assert leaders_of_orders(tree) == dict.fromkeys(ORDERS, (2, [2], 7))
    requests = requests_to(tree, 0, "leader_and_isr")
    assert {place: state.leader_epoch for place, state in requests.items()} == {("orders", p): 7 for p in ORDERS}
    assert "  broker 0 has registered" in log


def test_epoch_is_raised_above_states_and_brokers(
    tree: KafkaTree, controller: ResidentController, log: list[str]
) -> None:
    """/controller_epoch was set back before the take-over: 57 is in a state, and only broker 1 knows 60."""
    tree.add_topic("orders", {0: [7, 1, 2], 1: [1, 2, 0]}, topic_id=None)
    state = State(controller_epoch=57, leader=7, leader_epoch=5, isr=[7, 1, 2])
    tree.client.set(state_path("orders", 0), encode_state(state))
    assert tree.brokers is not None
    tree.brokers[1].controller_epoch = 60

    initialize(controller)
    run_until_quiet(controller)
    while not controller.retries.is_quiet:  # broker 1 is sent the request again after a delay, as long as it refuses
        time.sleep(controller.retries.next_delay(1.0))
        run_until_quiet(controller)

    now = tree.state("orders", 0)
    assert (now.leader, now.leader_epoch, now.controller_epoch) == (1, 6, 58)
    assert int(tree.client.get("/controller_epoch")[0]) == controller.control.epoch == tree.brokers[1].controller_epoch
    assert controller.control.epoch >= 60
    assert requests_to(tree, 1, "leader_and_isr")["orders", 0].leader_epoch == 6
    assert "surveyor: broker 1 refused controller epoch 58 as stale; raising the controller epoch" in log


def test_leaderless_partitions_are_read_first(tree: KafkaTree, controller: ResidentController, hooks: Hooks) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 0], 2: [2, 0]}, topic_id=None)
    initialize(controller)
    looked_at: list[set[Key]] = []

    def look(_: object, keys: Collection[Key]) -> set[Key]:
        looked_at.append({*keys})
        return set()

    hooks["refresh_partitions"] = look
    tree.unregister(1)
    drain_watches(controller)
    controller.cycle()

    assert [keys for keys in looked_at if keys] == [{("orders", 1)}, {("orders", 0)}]
    states = {partition: tree.state("orders", partition) for partition in range(3)}
    assert {p: (s.leader, s.isr) for p, s in states.items()} == {0: (0, [0]), 1: (0, [0]), 2: (2, [2, 0])}


def test_due_work_survives_a_lost_connection(tree: KafkaTree, controller: ResidentController, hooks: Hooks) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 0], 2: [2, 0]}, topic_id=None)
    initialize(controller)
    lost: list[Collection[Key]] = []

    def lose_once(read: Callable[..., set[Key]], keys: Collection[Key]) -> set[Key]:
        if keys and not lost:
            lost.append(keys)
            raise ConnectionLoss
        return read(keys)

    hooks["refresh_partitions"] = lose_once
    tree.unregister(1)
    drain_watches(controller)
    controller.run(until_quiet=True)

    states = {partition: tree.state("orders", partition) for partition in range(3)}
    assert {p: (s.leader, s.isr) for p, s in states.items()} == {0: (0, [0]), 1: (0, [0]), 2: (2, [2, 0])}


def test_deferred_writes_are_made_in_the_next_cycle(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {p: [0, 1, 2] for p in range(3)}, topic_id=None)
    initialize(controller)
    controller.writer.pace = Pace(batch_changes=1, cycle=-1.0)
    tree.unregister(0)
    drain_watches(controller)

    assert controller.cycle()
    assert sorted(tree.state("orders", p).leader for p in range(3)) == [0, 0, 1]
    run_until_quiet(controller)

    assert [tree.state("orders", p).leader for p in range(3)] == [1, 1, 1]
    assert (controller.summary.stale, controller.summary.by_action["elect"]) == (0, 3)


@pytest.mark.parametrize("reading", ["_requests", "refresh_partitions"])
def test_bounced_broker_gets_full_state_after_a_lost_read(
    tree: KafkaTree, controller: ResidentController, hooks: Hooks, reading: str
) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[1].received.clear()
    losses = [ConnectionLoss()]

    def lose_once(read: Callable[..., object], paths: object) -> object:
        if losses:
            raise losses.pop()
        return read(paths)

    hooks[reading] = lose_once
    tree.bounce(1)
    drain_watches(controller)
    controller.run(until_quiet=True)

    assert requests_to(tree, 1, "leader_and_isr")["orders", 0].leader_epoch == 6


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_bounced_only_isr_member_leads_at_a_later_epoch(
    tree: KafkaTree, controller: ResidentController, unclean: str
) -> None:
    """No replica outside of the ISR is elected, whatever is allowed: the leader is back already."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    config = f'{{"version":1,"config":{{"unclean.leader.election.enable":"{unclean}"}}}}'
    tree.write("/config/topics/orders", config.encode())
    put_isr(tree, "orders", [0])
    initialize(controller)

    tree.bounce(0)
    run_until_quiet(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch, state.leader_recovery_state) == (0, [0], 7, 0)
    assert requests_to(tree, 0, "leader_and_isr")["orders", 0].leader_epoch == 7


def test_what_loses_data_or_availability_is_a_warning(
    tree: KafkaTree, controller: ResidentController, log: RecordedLog
) -> None:
    tree.add_topic("risky", {0: [0, 1]}, topic_id=None)
    tree.write("/config/topics/risky", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
    put_isr(tree, "risky", [0])
    tree.add_topic("single", {0: [0], 1: [0], 2: [1]}, topic_id=None)
    initialize(controller)

    tree.unregister(0)
    run_until_quiet(controller)

    assert (tree.state("risky").leader, tree.state("single").leader) == (1, -1)
    [unclean, offline] = sorted(log.warnings)
    assert unclean.startswith("surveyor: warning: risky-0: ")
    assert "unclean election of 1 may lose data" in unclean
    assert offline.startswith("surveyor: warning: single-0 and 1 other: ")
    assert "  broker 0 is no longer registered" in {*log} - {*log.warnings}


def test_failure_is_written_although_the_broker_is_back(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    initialize(controller)
    tree.unregister(0)
    put_isr(tree, "orders", [0, 1])
    with monkeypatch.context() as once:
        once.setattr(MetadataReader, "refresh_partitions", lambda *_: set())  # the next write is stale
        drain_watches(controller)
        controller.cycle()
    assert tree.state("orders").leader_epoch == 5
    tree.register(0)
    run_until_quiet(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (1, [1], 6)


def test_failed_log_dir_takes_replicas_offline(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [0, 2]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[0].errors["orders", 0] = 56
    tree.client.create("/log_dir_event_notification/log_dir_event_0000000001", b'{"version":1,"broker":0,"event":1}')

    run_until_quiet(controller)
    run_until_quiet(controller)

    assert (tree.state("orders", 0).leader, tree.state("orders", 1).leader) == (1, 0)
    assert tree.client.get_children("/log_dir_event_notification") == []


def test_isr_changes_without_notification_count(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 0, 2]}, topic_id=None)
    initialize(controller)
    put_isr(tree, "orders", [0, 2])
    tree.unregister(0)

    run_until_quiet(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 6)
    assert controller.summary.stale == 0


def test_outdated_partitions_are_read_again(tree: KafkaTree, controller: ResidentController, hooks: Hooks) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 0, 2]}, topic_id=None)
    initialize(controller)
    put_isr(tree, "orders", [0, 2])
    tree.unregister(0)
    hooks["refresh_partitions"] = lambda *_: set()  # as if it was written right after the read

    run_until_quiet(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 6)
    assert controller.summary.stale == 1


def test_partition_with_a_vanished_state_is_not_new(
    tree: KafkaTree, controller: ResidentController, log: list[str]
) -> None:
    """Kafka would let the first live replica lead at leader epoch 0, whichever replica has the records."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    initialize(controller)
    tree.client.delete(state_path("orders", 0))
    tree.unregister(0)
    run_until_quiet(controller)
    put_assignment(tree, "orders", {0: [0, 1], 1: [1, 2], 2: [2, 1]})
    run_until_quiet(controller)

    assert tree.client.exists(state_path("orders", 0)) is None
    assert tree.state("orders", 2).leader == 2
    assert any("NOT_UNDERSTOOD" in line for line in log)

    tree.client.create(state_path("orders", 0), encode_state(State(1, 0, 9, [0, 1])))  # as by a recovery
    controller.watches.signal("/brokers/topics/orders")
    run_until_quiet(controller)
    assert tree.state("orders", 0).leader == 1


def test_another_controller_ends_it_immediately(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    tree.elect(2, epoch=99)
    tree.unregister(0)

    with pytest.raises(FencedError):
        run_until_quiet(controller)

    assert tree.version("orders") == 0


MOVED_ON: Final[dict[str, Callable[[KafkaTree], object]]] = {
    "topic creation": lambda tree: put_assignment(tree, "new", {0: [0, 1]}),
    "topic deletion": lambda tree: tree.client.create("/admin/delete_topics/orders"),
    "preferred election": lambda tree: tree.client.create(ELECTION, encode_partitions([TopicPartition("orders", 0)])),
    "reassignment": lambda tree: tree.client.create(REASSIGN, encode_partitions([TopicPartition("orders", 0, [2])])),
}
"""What is due when another controller takes over: the four testControllerMoveOn… of ControllerIntegrationTest."""


@pytest.mark.parametrize("event", MOVED_ON)
def test_another_controller_ends_it_before_its_next_write(
    tree: KafkaTree, controller: ResidentController, event: str
) -> None:
    tree.add_topic("orders", {0: [1, 0]})
    initialize(controller)
    tree.elect(2, epoch=99)
    MOVED_ON[event](tree)
    before = tree.dump()

    with pytest.raises(FencedError):
        run_until_quiet(controller)

    assert tree.dump() == before


def test_lost_session_ends_it_without_a_write(tree: KafkaTree, controller: ResidentController) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    client = controller.control.client
    closed_session = KazooClient(tree.hosts, client_id=client.client_id)  # the same session, which it closes
    closed_session.start()
    closed_session.stop()
    closed_session.close()
    assert eventually(lambda: tree.client.exists("/controller") is None)
    tree.unregister(0)

    with pytest.raises((SessionLostError, FencedError)):
        controller.run(until_quiet=True)

    assert tree.version("orders") == 0


def test_tables_record_all_cycles(tree: KafkaTree, controller: ResidentController, warehouse: Warehouse) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [7]}, topic_id=None)
    controller.log.start()
    controller.log.record(controller.writer.cycle_record(outcomes=[]))
    controller.log.record(AuditEntry(Step.TAKE_OVER, "controller epoch 8"))
    initialize(controller)
    tree.unregister(0)
    run_until_quiet(controller)

    controller.log.close()

    plans = {row["plan_id"]: row for row in warehouse.rows("plans")}
    changes = warehouse.rows("changes")
    assert sorted((row["action"], row["topic"], row["partition"]) for row in changes) == [
        ("elect", "orders", 0),
        ("take_offline", "orders", 1),
    ]
    assert {row["plan_id"] for row in changes} <= plans.keys()
    codes = {row["code"] for row in warehouse.rows("rejections")}
    assert ({row["status"] for row in plans.values()}, codes) == ({"committed"}, {"NO_ELIGIBLE_LEADER"})
    assert sorted((row["action"], row["outcome"]) for row in warehouse.rows("commits")) == [
        ("elect", "applied"),
        ("elect", "pending"),
        ("take_offline", "applied"),
        ("take_offline", "pending"),
        ("take_over", "applied"),
    ]
    answered = {(row["broker_id"], row["api"], row["leader_epoch"]) for row in warehouse.rows("answers")}
    assert (1, "LeaderAndIsr", 6) in answered


def test_controllership_is_exclusive(tree: KafkaTree, controller: ResidentController) -> None:
    """The second controller waits for the first, and takes over once that has resigned."""
    initialize(controller)
    second: list[Controllership] = []
    client = KazooClient(tree.hosts)
    client.start()
    waiting = threading.Thread(target=lambda: second.append(take_over(client, OURS)))
    waiting.start()
    controller.cycle()
    assert second == []

    controller.control.client.stop()
    waiting.join(15)

    assert second[0].epoch == controller.control.epoch + 1
    client.stop()
    client.close()


def test_intents_are_recorded_before_outcomes(
    tree: KafkaTree, controller: ResidentController, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cycle that takes longer than Delta, or that ends in between."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    controller.log.flush_interval_seconds = 0.0
    controller.log.start()
    recorded: list[tuple[str, set[str]]] = []
    write = controller.writer._write_changes  # noqa: SLF001 - between the intents and the writes

    def write_slowly(changes: Sequence[Change]) -> Iterator[list[RowOutcome]]:
        assert eventually(lambda: bool(warehouse.rows("plans")))
        recorded.append((warehouse.rows("plans")[0]["status"], {row["outcome"] for row in warehouse.rows("commits")}))
        yield from write(changes)

    monkeypatch.setattr(controller.writer.__class__, "_write_changes", lambda _, changes: write_slowly(changes))
    tree.unregister(0)
    run_until_quiet(controller)
    controller.log.close()

    assert recorded == [("committing", {"pending"})]
    assert [row["status"] for row in warehouse.rows("plans")] == ["committed"]
    assert sorted(row["outcome"] for row in warehouse.rows("commits")) == ["applied", "pending"]
