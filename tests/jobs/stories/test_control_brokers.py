"""`surveyor control` on real brokers: the life of a cluster, act by act, and no record is lost in any of them.

One producer with acks=all writes from the first act to the last, and one consumer reads. The acts that are not here
stand in `control_acts`. What a second controller finds that takes over after the first was killed is for those who ask:

    LIVES=1 .venv/bin/pytest -m torture tests/jobs/stories/test_control_brokers.py

Then how it ends when it is told to, and when another controller takes over; and what /admin
asks for, carried out by `surveyor reconcile` alone while no broker gets to be the controller.

The brokers change ISRs in ZooKeeper themselves (inter.broker.protocol.version 2.6), as everything that stays needs.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Producer

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, take_over
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.znodes import TopicPartition, decode_assignment, encode_partitions
from tests.jobs.stories.control_acts import (
    a_broker_bounces_in_one_look,
    a_broker_is_silent_then_dead_then_back,
    a_broker_joins_and_the_seeds_move_goes_to_it,
    a_topic_is_created_by_its_first_record,
    isr_changes_are_read_and_taken_away,
    it_is_killed_and_the_next_one_goes_on,
    it_is_stopped_longer_than_its_session,
    leaders_are_balanced_when_that_is_due,
    leaders_since,
)
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.commands.control_process import OURS, controller, in_office, mark
from tests.jobs.support.kafka.controlled_cluster import (
    ELECTION,
    PARTITIONS,
    REASSIGN,
    TOPIC,
    ControlledCluster,
    restart,
)
from tests.jobs.support.kafka.real_cluster import Flow, Traffic, eventually, kafka_tree, seen_by
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

STEPS = ("start_reassignment", "narrow_to_target", "end_reassignment", "delete_replicas", "remove_topic")
BOTH = "seed003"
SETTINGS = {
    "inter.broker.protocol.version": "2.6",
    "controlled.shutdown.enable": "false",
    # the first check is due soon after a take-over, the next after the story
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "3600",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(4, overrides=SETTINGS) as running:
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as tree:
        yield tree


@contextmanager
def second_log_dir(broker: EmbeddedKafka) -> Iterator[Path]:
    """Another log dir, the next to get a log, as the first holds more; the broker lives without it again afterwards."""
    before, folder = broker.overrides, broker.folder / "second"
    broker.overrides = {**before, "log.dirs": f"{broker.folder / 'data'},{folder}"}
    restart(broker)
    yield folder
    broker.overrides = before
    restart(broker)


def a_broker_fails_and_starts(life: ControlledCluster) -> None:
    """As the controller has thought of beforehand; then its leaders are asked for.

    While it is down, another one goes down, and both come back. The one that went down last leads their partitions.
    """
    life.create(BOTH, {0: [1, 3], 1: [3, 1]})
    life.soon(lambda: all({*state.isr} == {1, 3} for state in life.states(BOTH)))
    before = mark(life.kafka)
    epochs = {p: state.leader_epoch for p, state in enumerate(life.states()) if 1 in state.isr}
    life.kill(1)
    life.soon(lambda: all(state.leader in {0, 2, 3} and 1 not in state.isr for state in life.states()))
    assert {p: life.states()[p].leader_epoch for p in epochs} == {p: epoch + 1 for p, epoch in epochs.items()}
    life.soon(lambda: [state.isr for state in life.states(BOTH)] == [[3], [3]])
    life.kill(3)
    life.soon(lambda: [(state.leader, state.isr) for state in life.states(BOTH)] == [(-1, [3]), (-1, [3])])
    life.restart(1, 3)
    life.soon(lambda: all({*state.isr} == {1, 3} for state in life.states(BOTH)))
    assert [leaders_since(life, before, BOTH, p) for p in range(2)] == [[3, -1, 3], [3, -1, 3]]
    life.delete(BOTH)
    life.soon(lambda: life.is_deleted(BOTH))
    life.soon(life.is_whole)

    preferred = {p: replicas[0] for p, replicas in life.assigned(TOPIC).partitions.items()}
    life.kafka.client.create(ELECTION, encode_partitions([TopicPartition(TOPIC, p) for p in PARTITIONS]))
    life.soon(lambda: {p: state.leader for p, state in enumerate(life.states())} == preferred)
    life.soon(lambda: life.kafka.client.exists(ELECTION) is None, 60)


def replicas_move_while_records_come_in(life: ControlledCluster) -> None:
    life.ask_to_move(TOPIC, {0: [1, 2, 3], 1: [3, 1], 2: [9]})
    life.soon(lambda: life.asked_to_move() == {2}, 180)
    life.kafka.client.delete(REASSIGN)  # broker 9 never comes, and the request would wait for it

    assignment = life.assigned(TOPIC)
    assert [assignment.partitions[p] for p in range(3)] == [[1, 2, 3], [3, 1], [2, 0, 1]]
    assert (assignment.adding_replicas, assignment.removing_replicas) == ({}, {})
    life.soon(lambda: f"{TOPIC}-0" not in life.log_names(0, TOPIC))


def a_disk_is_lost(life: ControlledCluster) -> None:
    with second_log_dir(life.cluster.brokers[3]) as disk:
        life.by_hand("disk", {0: [3, 0], 1: [0, 3]})
        life.soon(lambda: len(list(disk.glob("disk-*"))) == 2)
        life.soon(lambda: all(len(state.isr) == 2 for state in life.states("disk")))
        shutil.rmtree(disk)
        disk.touch()
        life.soon(lambda: [state.isr for state in life.states("disk")] == [[0], [0]])
        assert [state.leader for state in life.states("disk")] == [0, 0]
        assert [3 in state.isr for state in life.states()[:2]] == [True, True]  # their log dir is another
    life.soon(lambda: all(len(state.isr) == 2 for state in life.states("disk")))
    life.soon(life.is_whole)


def a_broker_is_drained_and_comes_back(life: ControlledCluster) -> None:
    life.drain(1)
    states, replicas = life.states(), life.assigned(TOPIC).partitions
    assert all(state.leader != 1 for state in states)
    life.restart(1)
    life.soon(life.is_whole)
    assert all(state.leader != 1 for state in life.states())
    assert any(1 in replicas[p] for p in PARTITIONS)


@contextmanager
def records_flow(life: ControlledCluster) -> Iterator[None]:
    """Run a controller while a topic is written and read, and verify at the end that no record is lost."""
    with in_office(life.kafka, life.warehouse) as office:
        life.offices.append(office)
        life.by_hand(TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in range(4)})
        life.soon(lambda: life.has_state(TOPIC, 3), 60)
        life.by_hand(TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in PARTITIONS})
        life.soon(lambda: life.has_state(TOPIC, 5), 60)
        life.soon(lambda: len(seen_by(life.cluster.brokers[3].address, TOPIC)) == len(PARTITIONS))
        with Flow(life.cluster.bootstrap, TOPIC, len(PARTITIONS)) as flow:
            yield
        assert flow.failed == []
        assert flow.acknowledged <= flow.stored(len(PARTITIONS))


def test_the_life_of_a_cluster(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    life = ControlledCluster(cluster, kafka, tmp_path)
    with records_flow(life):
        a_broker_fails_and_starts(life)
        replicas_move_while_records_come_in(life)
        a_topic_is_created_by_its_first_record(life)
        a_broker_bounces_in_one_look(life, 2)
        a_broker_joins_and_the_seeds_move_goes_to_it(life)
        a_broker_is_silent_then_dead_then_back(life, 3)
        a_disk_is_lost(life)
        isr_changes_are_read_and_taken_away(life)
        a_broker_is_drained_and_comes_back(life)
        epochs = [state.leader_epoch for state in life.states()]
        it_is_stopped_longer_than_its_session(life, 2)
        assert all(now.leader_epoch >= before for now, before in zip(life.states(), epochs, strict=True))

    applied = ("outcome", "=", "applied")
    written = {row["action"] for row in Warehouse(str(life.warehouse), "default").rows("commits", applied)}
    moved = {"start_reassignment", "narrow_to_target", "end_reassignment", "withdraw_reassignment"}
    assert written >= {"create", "elect", "shrink_isr", "elect_preferred", "delete_topic", *moved}


def test_a_drained_broker_leads_where_no_other_can(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    """Also a replica that the drain has stopped: it is elected at a later leader epoch, and starts.

    The drain ends when its broker registers again, and all replicas come back.
    """
    topic = "drained"
    life = ControlledCluster(cluster, kafka, tmp_path)
    with in_office(kafka, life.warehouse) as office:
        life.offices.append(office)
        config = b'{"version":1,"config":{"min.insync.replicas":"1","unclean.leader.election.enable":"true"}}'
        life.by_hand(topic, {0: [1, 2], 1: [2, 1]})
        kafka.write(f"/config/topics/{topic}", config)
        life.soon(lambda: life.has_state(topic, 1) and life.is_whole(topic), 60)
        life.drain(1)
        # it follows what it led, and has stopped what it followed
        life.soon(lambda: [{*state.isr} for state in life.states(topic)] == [{1, 2}, {2}])
        life.kill(2)
        life.soon(lambda: [(state.leader, state.isr) for state in life.states(topic)] == [(1, [1]), (1, [1])])
        assert f"warning: {topic}-" in office.output
        assert "drained broker 1 leads" in office.output
        assert [takes_a_record(life, topic, partition) for partition in (0, 1)] == [True, True]
        life.restart(2)
        life.soon(lambda: life.is_whole(topic))
        life.restart(1)
        life.soon(lambda: life.is_whole(topic))
        life.soon(lambda: Warehouse(str(life.warehouse), "default").rows("drained") == [])
        life.delete(topic)
        life.soon(lambda: life.is_deleted(topic))


def test_a_move_waits_for_a_target_that_is_down(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    """Whether the target was down when the request came, or went down under way (`ControllerIntegrationTest`)."""
    topic = "waiting"
    life = ControlledCluster(cluster, kafka, tmp_path)
    with in_office(kafka, life.warehouse) as office:
        life.offices.append(office)
        life.create(topic, {0: [1], 1: [2]})
        life.kill(3)
        life.ask_to_move(topic, {0: [3]})
        life.soon(lambda: "TARGET_NOT_ALIVE" in office.output)
        said = office.output.count("TARGET_NOT_ALIVE")
        time.sleep(5.0)
        assert office.output.count("TARGET_NOT_ALIVE") == said
        assert (life.asked_to_move(), life.assigned(topic).partitions[0]) == ({0}, [1])
        restart(cluster.brokers[3])
        life.soon(lambda: life.assigned(topic).partitions[0] == [3])
        life.soon(lambda: life.kafka.client.exists(REASSIGN) is None)

        with life.silent(3):  # it is registered, so the move starts, and copies nothing
            life.ask_to_move(topic, {1: [3, 2]})
            life.soon(lambda: life.assigned(topic).adding_replicas == {1: [3]})
            life.kill(3)
        life.soon(lambda: "WAITS_FOR_BROKER" in office.output)
        assert life.asked_to_move() == {1}
        restart(cluster.brokers[3])
        life.soon(lambda: life.assigned(topic).partitions[1] == [3, 2])
        life.soon(lambda: life.kafka.client.exists(REASSIGN) is None)
        life.soon(lambda: {*life.states(topic)[1].isr} == {2, 3})
        life.delete(topic)
        life.soon(lambda: life.is_deleted(topic))


def takes_a_record(life: ControlledCluster, topic: str, partition: int) -> bool:
    """Whether the leader of a partition acknowledges a record."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": life.cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    producer.produce(topic, b"1", partition=partition, on_delivery=lambda error, _: failed.append(error))
    return producer.flush(60) == 0 and failed == [None]


@pytest.mark.torture
@pytest.mark.skipif("LIVES" not in os.environ, reason="a second controller takes as much processor time as the first")
def test_the_life_of_a_cluster_under_one_controller_after_another(tmp_path: Path) -> None:
    with EmbeddedCluster(4, overrides=SETTINGS) as another, kafka_tree(another) as tree:
        life = ControlledCluster(another, tree, tmp_path)
        with records_flow(life):
            replicas_move_while_records_come_in(life)
            a_broker_is_drained_and_comes_back(life)
            with it_is_killed_and_the_next_one_goes_on(life, 3):
                leaders_are_balanced_when_that_is_due(life, 1)
                a_broker_fails_and_starts(life)
                it_is_stopped_longer_than_its_session(life, 2)


@contextmanager
def doing(act: Callable[[], None]) -> Iterator[None]:
    """Run something concurrently with a command in this thread, the only one that receives signals."""
    thread = Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.fixture
def control(kafka: KafkaTree, tmp_path: Path) -> Callable[[], Ran]:
    """The command in this process."""
    surveyor = Surveyor(kafka.hosts, tmp_path / "w")
    return lambda: surveyor("control", "--apply", "--yes")


def test_told_to_stop_it_resigns_and_a_broker_takes_over(
    cluster: EmbeddedCluster, kafka: KafkaTree, control: Callable[[], Ran]
) -> None:
    assert eventually(lambda: controller(kafka) in cluster.brokers)

    def stop() -> None:
        eventually(lambda: controller(kafka) == OURS, 300)
        os.kill(os.getpid(), signal.SIGTERM)

    with doing(stop):
        ran = control()

    assert ran.code == 143
    assert re.search(r"resigned: .*; broker [0-3] became the controller after", ran.stdout), ran.stdout
    assert controller(kafka) in cluster.brokers


def test_whose_znode_is_deleted_is_no_controller_any_more(
    cluster: EmbeddedCluster, kafka: KafkaTree, control: Callable[[], Ran]
) -> None:
    """As `zookeeper-shell delete /controller`, by which operators have Kafka elect another one."""
    assert eventually(lambda: controller(kafka) in cluster.brokers)

    def fence() -> None:
        eventually(lambda: controller(kafka) == OURS, 300)
        kafka.client.delete("/controller")

    with doing(fence):
        ran = control()

    assert ran.code == 20
    assert "another controller took over after our epoch" in ran.stderr.strip().splitlines()[-1]
    assert eventually(lambda: controller(kafka) in cluster.brokers)


@contextmanager
def no_other_controller(kafka: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep brokers from being the controller between two commits, each of which takes over under its own epoch.

    All commits share one session, which ends here. Each has another id, because a controller does not take over from
    itself.
    """
    ids = count(OURS, -1)
    with connected(kafka.endpoint) as client:

        @contextmanager
        def taken(
            _endpoint: ZooKeeperEndpoint, _id: int, *_: object, expected_epoch: int | None, latest_known_epoch: int
        ) -> Iterator[Controllership]:
            yield take_over(client, next(ids), expected_epoch=expected_epoch, latest_known_epoch=latest_known_epoch)

        monkeypatch.setattr("jobs.execution.batch.commit.controllership", taken)
        take_over(client, next(ids))
        yield


def test_requests_are_carried_out_without_a_controller(
    cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's controller finds nothing to do when it comes back."""
    monkeypatch.setattr("jobs.controller.reconcile.FIRST_PAUSE_SECONDS", 0.2)
    assert eventually(lambda: controller(kafka) in cluster.brokers)
    life = ControlledCluster(cluster, kafka, tmp_path)
    life.by_hand("asked", {0: [0, 1]})
    life.by_hand("unwanted", {0: [0, 1], 1: [2, 3]})
    assert eventually(lambda: len(life.logs(0, "asked")) == len(life.logs(3, "unwanted")) == 1, 60)
    with Traffic(cluster.bootstrap, "asked") as traffic:
        pass

    with no_other_controller(kafka, monkeypatch):
        kafka.client.create(REASSIGN, encode_partitions([TopicPartition("asked", 0, [2, 1])]))
        kafka.client.create("/admin/delete_topics/unwanted")
        command = "reconcile", "--apply", "--until-quiet", "--requests", "--yes"
        ran = Surveyor(kafka.hosts, tmp_path / "warehouse")(*command, "--json")
        done = written(kafka, "asked")
    assert eventually(lambda: controller(kafka) in cluster.brokers)
    known = [(2, [2, 1], [1, 2])] * len(cluster.brokers)
    assert eventually(lambda: [seen_by(broker.address, "asked")[0] for broker in cluster.brokers.values()] == known)

    assert (ran.code, ran.json["stale"], ran.json["due"]) == (0, 0, 0), ran.stderr
    applied = {
        row["action"]
        for row in Warehouse(str(tmp_path / "warehouse"), "default").rows("commits", ("outcome", "=", "applied"))
    }
    assert applied >= {*STEPS}
    assert decode_assignment(kafka.client.get("/brokers/topics/asked")[0]).partitions == {0: [2, 1]}
    assert [len(life.logs(broker, "asked")) for broker in cluster.brokers] == [0, 1, 1, 0]
    assert traffic.acknowledged <= traffic.stored(1)
    assert [life.logs(broker, "unwanted") for broker in cluster.brokers] == [[], [], [], []]
    assert kafka.client.exists("/brokers/topics/unwanted") is None
    assert kafka.client.get_children("/admin/delete_topics") == []
    assert kafka.client.exists(REASSIGN) is None
    assert written(kafka, "asked") == done


def written(kafka: KafkaTree, topic: str) -> list[tuple[bytes, int]]:
    """A topic and its first state, with their versions: what a controller would write."""
    paths = f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions/0/state"
    return [(data, stat.version) for data, stat in map(kafka.client.get, paths)]
