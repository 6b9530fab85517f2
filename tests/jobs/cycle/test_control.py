"""A controller that stays, cycle by cycle, on a tree of ZooKeeper's own and brokers that only listen."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException
from kazoo.protocol.states import Callback
from pyspark.sql import SparkSession

from jobs.adapters.delta.lake import Lake
from jobs.adapters.delta.spark_tables import Tables
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, take_over
from jobs.basics.errors import FencedError
from jobs.cycle.balance import Balance
from jobs.cycle.behind import Behind
from jobs.cycle.control import Controller
from jobs.cycle.deciding.decider import Decider
from jobs.cycle.looking import Look
from jobs.records.ledger import Verdict
from schemas.names import Step
from schemas.rows import Change, Key
from schemas.znodes import (
    Assignment,
    State,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_partitions,
    encode_state,
)
from tests.jobs.support.fenced import OURS
from tests.jobs.support.kafka_tree import KafkaTree, state_path
from tests.jobs.support.real_cluster import eventually

REASSIGN = "/admin/reassign_partitions"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, spark: SparkSession, lake: Lake, said: list[str]
) -> Iterator[Controller]:
    """In office, on a cluster of three brokers and whatever the test has made before it asks for a cycle."""
    lake.ensure_tables()
    behind = Behind(lake)
    some = Controller(
        control,
        Decider.of(Tables(spark, lake), [], allow_unclean=False),
        behind,
        {"snapshot_id": 1, "cluster_id": "c"},
        said.append,
    )
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    some.balance = Balance(float("inf"), 0.1)  # where a test does not ask for it
    yield some
    some.stop()


def settle(controller: Controller) -> None:
    """Cycle until nothing is due and everybody has answered."""
    for _ in range(30):
        hear_watches(controller)
        busy = controller.cycle()
        assert eventually(lambda: not controller.teller.queues.busy)
        hear_watches(controller)
        if not busy and controller.ears.is_quiet and not controller.watches.woken.is_set():
            return
    raise AssertionError("it never came to rest")


def hear_watches(controller: Controller) -> None:
    """Wait until the watches of all that is written by now have been called."""
    client = controller.control.client
    with suppress(KazooException):  # its session is over, and with it the watches
        client.sync("/")  # ZooKeeper sends events before the answers that follow them
        called = threading.Event()
        client.handler.dispatch_callback(Callback("watch", called.set, ()))  # Kazoo calls in the order of the events
        assert called.wait(20)


def take_up(controller: Controller) -> None:
    controller.take_up()
    settle(controller)


def by_hand(tree: KafkaTree, topic: str, replicas: dict[int, list[int]]) -> None:
    """Write a topic as brokers do that create one themselves."""
    tree.write(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))


def follow(tree: KafkaTree, topic: str, isr: Sequence[int], partition: int = 0) -> None:
    """Let followers join the ISR, as their leader writes it."""
    found = tree.state(topic, partition)
    now = State(
        controller_epoch=found.controller_epoch, leader=found.leader, leader_epoch=found.leader_epoch, isr=[*isr]
    )
    tree.client.set(state_path(topic, partition), encode_state(now))


def told(tree: KafkaTree, broker: int, api: str) -> dict[tuple[str, int], Any]:
    """What a broker heard last by an API, by topic and partition."""
    assert tree.brokers is not None
    return {
        (topic.topic_name, state.partition_index): state
        for one in tree.brokers[broker].of(api)
        for topic in one.request.topic_states
        for state in topic.partition_states
    }


def assigned(tree: KafkaTree, topic: str) -> Assignment:
    return decode_assignment(tree.client.get(f"/brokers/topics/{topic}")[0])


def test_at_the_take_over_everybody_is_told_everything_the_live_brokers_first(
    tree: KafkaTree, controller: Controller
) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    tree.client.create(
        "/isr_change_notification/isr_change_0000000001", encode_partitions([TopicPartition("orders", 0)])
    )

    take_up(controller)

    assert tree.brokers is not None
    for broker, held in ((0, {("orders", 0)}), (1, {("orders", 0), ("orders", 1)}), (2, {("orders", 1)})):
        requests = tree.brokers[broker].told
        assert [one.api for one in requests[:2]] == ["update_metadata", "leader_and_isr"]
        assert (requests[0].partitions, {live.id_ for live in requests[0].request.live_brokers}) == (set(), {0, 1, 2})
        assert told(tree, broker, "leader_and_isr").keys() == held
        assert told(tree, broker, "update_metadata").keys() == {("orders", 0), ("orders", 1)}
    assert tree.client.get_children("/isr_change_notification") == []
    assert tree.version("orders") == 0  # nothing was due


def test_topics_written_by_anybody_and_partitions_added_get_leaders(tree: KafkaTree, controller: Controller) -> None:
    take_up(controller)
    by_hand(tree, "auto", {0: [1, 2], 1: [7, 0], 2: [7, 8]})
    settle(controller)
    by_hand(tree, "auto", {0: [1, 2], 1: [7, 0], 2: [7, 8], 3: [2, 1]})
    settle(controller)

    states = {partition: tree.state("auto", partition) for partition in (0, 1, 3)}
    assert {p: (s.leader, s.isr, s.leader_epoch) for p, s in states.items()} == {
        0: (1, [1, 2], 0),
        1: (0, [0], 0),
        3: (2, [2, 1], 0),
    }
    assert tree.client.exists(state_path("auto", 2)) is None
    assert told(tree, 1, "leader_and_isr")["auto", 3].is_new
    tree.register(8)
    settle(controller)
    assert tree.state("auto", 2).leader == 8  # nobody was alive: tried again when somebody came


def test_brokers_that_fail_come_back_and_bounce(tree: KafkaTree, controller: Controller, said: list[str]) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}, topic_id=None)
    take_up(controller)

    tree.unregister(1)
    settle(controller)

    found = {partition: tree.state("orders", partition) for partition in range(3)}
    assert {p: (s.leader, s.isr, s.leader_epoch) for p, s in found.items()} == {
        0: (0, [0, 2], 6),
        1: (2, [2, 0], 6),
        2: (2, [2, 0], 6),
    }
    assert told(tree, 0, "leader_and_isr")["orders", 1].leader == 2
    assert told(tree, 2, "update_metadata")["orders", 0].offline_replicas == (1,)

    assert tree.brokers is not None
    tree.brokers[1].told.clear()
    tree.register(1)
    settle(controller)
    assert {state.leader_epoch for state in told(tree, 1, "leader_and_isr").values()} == {6}
    assert {live.id_ for live in tree.brokers[0].of("update_metadata")[-1].request.live_brokers} == {0, 1, 2}

    before = len(tree.brokers[0].of("leader_and_isr"))
    tree.brokers[0].told.clear()
    tree.bounce(0)  # a failure and a start in one
    settle(controller)
    assert {p: (s.leader, s.isr, s.leader_epoch) for p in range(3) for s in [tree.state("orders", p)]} == {
        p: (2, [2], 7) for p in range(3)
    }
    heard = told(tree, 0, "leader_and_isr")
    assert {place: state.leader_epoch for place, state in heard.items()} == {("orders", p): 7 for p in range(3)}
    assert before
    assert "  broker 0 has registered" in said


def test_who_has_no_leader_is_not_read_with_all_the_others(
    tree: KafkaTree, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 0], 2: [2, 0]}, topic_id=None)
    take_up(controller)
    looked_at: list[set[Key]] = []

    def look(_: Look, keys: Collection[Key]) -> set[Key]:
        looked_at.append({*keys})
        return set()

    monkeypatch.setattr(Look, "at_partitions", look)

    tree.unregister(1)
    hear_watches(controller)
    controller.cycle()

    assert [keys for keys in looked_at if keys] == [{("orders", 1)}, {("orders", 0)}]
    states = {partition: tree.state("orders", partition) for partition in range(3)}
    assert {p: (s.leader, s.isr) for p, s in states.items()} == {0: (0, [0]), 1: (0, [0]), 2: (2, [2, 0])}


def test_what_was_due_when_the_connection_was_lost_is_due_afterwards(
    tree: KafkaTree, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 0], 2: [2, 0]}, topic_id=None)
    take_up(controller)
    read = Look.at_partitions
    lost: list[Collection[Key]] = []

    def lose_once(look: Look, keys: Collection[Key]) -> set[Key]:
        if keys and not lost:
            lost.append(keys)
            raise ConnectionLoss
        return read(look, keys)

    monkeypatch.setattr(Look, "at_partitions", lose_once)
    tree.unregister(1)
    hear_watches(controller)
    controller.run(until_quiet=True)

    states = {partition: tree.state("orders", partition) for partition in range(3)}
    assert {p: (s.leader, s.isr) for p, s in states.items()} == {0: (0, [0]), 1: (0, [0]), 2: (2, [2, 0])}


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_who_alone_is_in_sync_and_bounces_leads_on_at_a_later_epoch(
    tree: KafkaTree, controller: Controller, unclean: str
) -> None:
    """Nobody who is not in sync is elected, whatever is allowed: the leader is back already."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    config = f'{{"version":1,"config":{{"unclean.leader.election.enable":"{unclean}"}}}}'
    tree.write("/config/topics/orders", config.encode())
    follow(tree, "orders", [0])
    take_up(controller)

    tree.bounce(0)
    settle(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch, state.leader_recovery_state) == (0, [0], 7, 0)
    assert told(tree, 0, "leader_and_isr")["orders", 0].leader_epoch == 7


def test_who_is_back_before_the_failure_is_written_has_failed_nevertheless(
    tree: KafkaTree, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    take_up(controller)
    tree.unregister(0)
    follow(tree, "orders", [0, 1])
    with monkeypatch.context() as once:
        once.setattr(Look, "at_partitions", lambda *_: set())  # what follows is stale
        hear_watches(controller)
        controller.cycle()
    assert tree.state("orders").leader_epoch == 5
    tree.register(0)
    settle(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (1, [1], 6)


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


def test_a_topic_is_deleted_once_all_its_replicas_are(tree: KafkaTree, controller: Controller) -> None:
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


def test_a_failed_log_dir_takes_its_replicas_offline(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [0, 2]}, topic_id=None)
    take_up(controller)
    assert tree.brokers is not None
    tree.brokers[0].errors["orders", 0] = 56
    tree.client.create("/log_dir_event_notification/log_dir_event_0000000001", b'{"version":1,"broker":0,"event":1}')

    settle(controller)
    settle(controller)

    assert (tree.state("orders", 0).leader, tree.state("orders", 1).leader) == (1, 0)
    assert tree.client.get_children("/log_dir_event_notification") == []


def test_what_leaders_wrote_and_did_not_say_yet_counts(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 0, 2]}, topic_id=None)
    take_up(controller)
    follow(tree, "orders", [0, 2])
    tree.unregister(0)

    settle(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 6)
    assert controller.done.stale == 0


def test_what_is_out_of_date_is_read_again_and_judged_in_the_next_cycle(
    tree: KafkaTree, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add_topic("orders", {0: [0, 1, 2], 1: [1, 0, 2]}, topic_id=None)
    take_up(controller)
    follow(tree, "orders", [0, 2])
    tree.unregister(0)
    monkeypatch.setattr(Look, "at_partitions", lambda *_: set())  # it is written a moment after that

    settle(controller)

    state = tree.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 6)
    assert controller.done.stale == 1


def test_a_state_that_vanishes_is_not_new(tree: KafkaTree, controller: Controller, said: list[str]) -> None:
    """Kafka would let the first live replica lead at epoch 0, whoever has the records."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]}, topic_id=None)
    take_up(controller)
    tree.client.delete(state_path("orders", 0))
    tree.unregister(0)
    settle(controller)
    by_hand(tree, "orders", {0: [0, 1], 1: [1, 2], 2: [2, 1]})
    settle(controller)

    assert tree.client.exists(state_path("orders", 0)) is None
    assert tree.state("orders", 2).leader == 2
    assert any("NOT_UNDERSTOOD" in line for line in said)

    tree.client.create(state_path("orders", 0), encode_state(State(1, 0, 9, [0, 1])))  # as it is recovered
    controller.watches.wake("/brokers/topics/orders")
    settle(controller)
    assert tree.state("orders", 0).leader == 1


def test_another_controller_ends_it_at_once(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    take_up(controller)
    tree.elect(2, epoch=99)
    tree.unregister(0)

    with pytest.raises(FencedError):
        settle(controller)

    assert tree.version("orders") == 0


def test_a_session_that_ended_ends_it_without_a_write(tree: KafkaTree, controller: Controller) -> None:
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    take_up(controller)
    client = controller.control.client
    over = KazooClient(tree.hosts, client_id=client.client_id)  # the same session, which it closes
    over.start()
    over.stop()
    over.close()
    assert eventually(lambda: tree.client.exists("/controller") is None)
    tree.unregister(0)

    with pytest.raises((SessionLostError, FencedError)):
        controller.run(until_quiet=True)

    assert tree.version("orders") == 0


def test_the_tables_have_all_of_it_behind(tree: KafkaTree, controller: Controller, lake: Lake) -> None:
    tree.add_topic("orders", {0: [0, 1], 1: [7]}, topic_id=None)
    controller.behind.start()
    controller.behind.put(controller.episode(verdicts=[]))
    controller.behind.put((Step.TAKE_OVER, "controller epoch 8"))
    take_up(controller)
    tree.unregister(0)
    settle(controller)

    controller.behind.close()

    plans = {row["plan_id"]: row for row in lake.rows("plans")}
    changes = lake.rows("changes")
    assert sorted((row["action"], row["topic"], row["partition"]) for row in changes) == [
        ("elect", "orders", 0),
        ("take_offline", "orders", 1),
    ]
    assert {row["plan_id"] for row in changes} <= plans.keys()
    assert {row["status"] for row in plans.values()} == {"committed"}
    outcomes = sorted((row["action"], row["outcome"]) for row in lake.rows("commits"))
    assert outcomes == [
        ("elect", "applied"),
        ("elect", "pending"),
        ("take_offline", "applied"),
        ("take_offline", "pending"),
        ("take_over", "applied"),
    ]
    assert {row["code"] for row in lake.rows("rejections")} == {"NO_ELIGIBLE_LEADER"}
    answered = {(row["broker_id"], row["api"], row["leader_epoch"]) for row in lake.rows("answers")}
    assert (1, "LeaderAndIsr", 6) in answered


def test_two_never_hold_it_at_once(tree: KafkaTree, controller: Controller) -> None:
    """The second waits for the first, and is in office when that has resigned."""
    take_up(controller)
    second: list[Controllership] = []
    client = KazooClient(tree.hosts)
    client.start()
    waiting = threading.Thread(target=lambda: second.append(take_over(client, tree.hosts, OURS)))
    waiting.start()
    controller.cycle()
    assert second == []

    controller.control.client.stop()
    waiting.join(15)

    assert second[0].epoch == controller.control.epoch + 1
    client.stop()
    client.close()


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


def test_intents_are_in_the_tables_before_what_became_of_them(
    tree: KafkaTree, controller: Controller, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle that takes longer than Delta, or that ends in the midst of it."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    take_up(controller)
    monkeypatch.setattr("jobs.cycle.behind.GATHER", 0.0)
    controller.behind.start()
    seen: list[tuple[str, set[str]]] = []
    write = controller.writer.write

    def slowly(changes: Sequence[Change]) -> Iterator[tuple[list[Verdict], list[Change]]]:
        assert eventually(lambda: bool(lake.rows("plans")))
        seen.append((lake.rows("plans")[0]["status"], {row["outcome"] for row in lake.rows("commits")}))
        yield from write(changes)

    monkeypatch.setattr(controller.writer.__class__, "write", lambda _, changes: slowly(changes))
    tree.unregister(0)
    settle(controller)
    controller.behind.close()

    assert seen == [("committing", {"pending"})]
    assert [row["status"] for row in lake.rows("plans")] == ["committed"]
    assert sorted(row["outcome"] for row in lake.rows("commits")) == ["applied", "pending"]
