"""`surveyor control` on real brokers: the life of a cluster, act by act, and no record is lost in any of them.

A producer with acks=all and a transactional one write from the first act to the last, and a consumer reads. A second
test kills the controller, and the next one takes over what it left; it runs on request only:

    REPEATS=all .venv/bin/pytest -m torture tests/jobs/stories/test_control_brokers.py

Then the controller ends by a signal or by another controller; and requests in /admin are carried out by `surveyor
reconcile` alone while no broker becomes the controller.

The brokers change ISRs in ZooKeeper themselves (inter.broker.protocol.version 2.6). `test_stock_life_brokers` has
brokers at their defaults, and more acts: a lost disk, a drain, a controller that stops longer than its session.
"""

import os
import re
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
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, take_over
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.runtime.pace import Pace
from schemas.znode_codecs import TopicPartition, encode_partitions
from tests.jobs.stories.control_acts import (
    a_broker_fails_and_starts,
    a_broker_is_drained_and_comes_back,
    all_kinds_of_changes_are_recorded,
    brokers_fail_and_replicas_move,
    every_broker_knows_the_isrs,
    isr_changes_are_read_and_taken_away,
    it_is_killed_and_the_next_one_goes_on,
    it_is_stopped_longer_than_its_session,
    leaders_are_balanced_when_that_is_due,
    records_flow,
    replicas_move_while_records_come_in,
)
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.commands.control_process import OURS, controller_id
from tests.jobs.support.kafka.controlled_cluster import REASSIGN, ControlledCluster, restart
from tests.jobs.support.kafka.real_cluster import Traffic, eventually, kafka_tree, topic_metadata
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

STEPS = ("start_reassignment", "narrow_to_target", "end_reassignment", "delete_replicas", "remove_topic")
SETTINGS = {
    "inter.broker.protocol.version": "2.6",
    "controlled.shutdown.enable": "false",
    # the first check is due soon after a take-over, the next after the story
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "3600",
}

pytestmark = pytest.mark.cluster(4, overrides=SETTINGS)


@pytest.mark.first("control: the controller of brokers that fail and move")
def test_the_life_of_a_cluster(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    controlled = ControlledCluster(cluster, kafka, tmp_path)
    with records_flow(controlled):
        brokers_fail_and_replicas_move(controlled)
        isr_changes_are_read_and_taken_away(controlled)
        every_broker_knows_the_isrs(controlled)

    all_kinds_of_changes_are_recorded(controlled)


def test_a_drained_broker_leads_where_no_other_can(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    """Also a replica that the drain has stopped: it is elected at a later leader epoch, and starts.

    The drain ends when its broker registers again, and all replicas come back. The samples that the controller takes
    have the leaders of each moment.
    """
    topic = "drained"
    controlled = ControlledCluster(cluster, kafka, tmp_path)
    with controlled.running_controller("--sample", "2s") as controller:
        config = b'{"version":1,"config":{"min.insync.replicas":"1","unclean.leader.election.enable":"true"}}'
        controlled.write_topic(topic, {0: [1, 2], 1: [2, 1]})
        kafka.write(f"/config/topics/{topic}", config)
        controlled.wait_until(lambda: controlled.has_state(topic, 1) and controlled.is_whole(topic), 60)
        controlled.wait_until(lambda: newest_leaders(controlled, topic) == {0: 1, 1: 2})
        controlled.drain(1)
        # it follows what it led, and has stopped what it followed
        controlled.wait_until(lambda: [{*state.isr} for state in controlled.states(topic)] == [{1, 2}, {2}])
        controlled.kill(2)
        controlled.wait_until(
            lambda: [(state.leader, state.isr) for state in controlled.states(topic)] == [(1, [1]), (1, [1])]
        )
        assert "warning: " in controller.output  # it names the first of the partitions, which may be of another topic
        assert "drained broker 1 leads" in controller.output
        assert [takes_a_record(controlled, topic, partition) for partition in (0, 1)] == [True, True]
        controlled.wait_until(lambda: newest_leaders(controlled, topic) == {0: 1, 1: 1})
        controlled.restart(2)
        controlled.wait_until(lambda: controlled.is_whole(topic))
        controlled.restart(1)
        controlled.wait_until(lambda: controlled.is_whole(topic))
        controlled.wait_until(lambda: Warehouse(str(controlled.warehouse), "default").rows("drained") == [])
        controlled.delete(topic)
        controlled.wait_until(lambda: controlled.is_deleted(topic))


def test_a_move_waits_for_a_target_that_is_down(cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path) -> None:
    """Whether the target was down when the request came, or went down under way (`ControllerIntegrationTest`)."""
    topic = "waiting"
    controlled = ControlledCluster(cluster, kafka, tmp_path)
    with controlled.running_controller() as controller:
        controlled.create(topic, {0: [1], 1: [2]})
        controlled.kill(3)
        controlled.ask_to_move(topic, {0: [3]})
        controlled.wait_until(lambda: "TARGET_NOT_ALIVE" in controller.output)
        said = controller.output.count("TARGET_NOT_ALIVE")
        time.sleep(5.0)
        assert controller.output.count("TARGET_NOT_ALIVE") == said
        assert (controlled.asked_to_move(), controlled.assigned(topic).partitions[0]) == ({0}, [1])
        restart(cluster.brokers[3])
        controlled.wait_until(lambda: controlled.assigned(topic).partitions[0] == [3])
        controlled.wait_until(lambda: controlled.kafka.client.exists(REASSIGN) is None)

        with controlled.silent(3):  # it is registered, so the move starts, and copies nothing
            controlled.ask_to_move(topic, {1: [3, 2]})
            controlled.wait_until(lambda: controlled.assigned(topic).adding_replicas == {1: [3]})
            controlled.kill(3)
        controlled.wait_until(lambda: "WAITS_FOR_BROKER" in controller.output)
        assert controlled.asked_to_move() == {1}
        restart(cluster.brokers[3])
        controlled.wait_until(lambda: controlled.assigned(topic).partitions[1] == [3, 2])
        controlled.wait_until(lambda: controlled.kafka.client.exists(REASSIGN) is None)
        controlled.wait_until(lambda: {*controlled.states(topic)[1].isr} == {2, 3})
        controlled.delete(topic)
        controlled.wait_until(lambda: controlled.is_deleted(topic))


def newest_leaders(controlled: ControlledCluster, topic: str) -> dict[int, int]:
    """The leaders of a topic's partitions in its newest sample."""
    warehouse = Warehouse(str(controlled.warehouse), "default")
    rows = warehouse.rows("partition_offsets", ("topic", "=", topic)) if warehouse.has("partition_offsets") else []
    newest = max((row["stored_at"] for row in rows), default=None)
    return {row["partition"]: row["leader"] for row in rows if row["stored_at"] == newest}


def takes_a_record(controlled: ControlledCluster, topic: str, partition: int) -> bool:
    """Whether the leader of a partition acknowledges a record."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": controlled.cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000}
    )
    producer.produce(topic, b"1", partition=partition, on_delivery=lambda error, _: failed.append(error))
    return producer.flush(60) == 0 and failed == [None]


@pytest.mark.repeat
def test_the_life_of_a_cluster_under_one_controller_after_another(tmp_path: Path) -> None:
    with EmbeddedCluster(4, overrides=SETTINGS) as another, kafka_tree(another) as tree:
        controlled = ControlledCluster(another, tree, tmp_path)
        with records_flow(controlled):
            replicas_move_while_records_come_in(controlled)
            a_broker_is_drained_and_comes_back(controlled)
            with it_is_killed_and_the_next_one_goes_on(controlled, 3):
                leaders_are_balanced_when_that_is_due(controlled, 1)
                a_broker_fails_and_starts(controlled)
                it_is_stopped_longer_than_its_session(controlled, 2)


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


def test_a_stopped_controller_resigns_and_a_broker_takes_over(
    cluster: EmbeddedCluster, kafka: KafkaTree, control: Callable[[], Ran]
) -> None:
    def stop() -> None:
        eventually(lambda: controller_id(kafka) == OURS, 300)
        os.kill(os.getpid(), signal.SIGTERM)

    with doing(stop):
        ran = control()

    assert ran.code == 143
    assert re.search(r"resigned: .*; broker [0-3] became the controller after", ran.stdout), ran.stdout
    assert controller_id(kafka) in cluster.brokers


def test_a_controller_whose_znode_is_deleted_ends(
    cluster: EmbeddedCluster, kafka: KafkaTree, control: Callable[[], Ran]
) -> None:
    """As `zookeeper-shell delete /controller`, by which operators have Kafka elect another one."""

    def fence() -> None:
        eventually(lambda: controller_id(kafka) == OURS, 300)
        kafka.client.delete("/controller")

    with doing(fence):
        ran = control()

    assert ran.code == 20
    assert "another controller took over after our epoch" in ran.stderr.strip().splitlines()[-1]
    assert eventually(lambda: controller_id(kafka) in cluster.brokers)


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

        monkeypatch.setattr("jobs.execution.batch.batch_commit.controllership", taken)
        take_over(client, next(ids))
        yield


def test_requests_are_carried_out_without_a_controller(
    cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's controller finds nothing to do when it comes back."""
    controlled = ControlledCluster(cluster, kafka, tmp_path)
    controlled.write_topic("asked", {0: [0, 1]})
    controlled.write_topic("unwanted", {0: [0, 1], 1: [2, 3]})
    assert eventually(lambda: len(controlled.logs(0, "asked")) == len(controlled.logs(3, "unwanted")) == 1)
    with Traffic(cluster.bootstrap, "asked") as traffic:
        pass

    with no_other_controller(kafka, monkeypatch):
        kafka.client.create(REASSIGN, encode_partitions([TopicPartition("asked", 0, [2, 1])]))
        kafka.client.create("/admin/delete_topics/unwanted")
        command = "reconcile", "--apply", "--until-quiet", "--requests", "--yes"
        ran = Surveyor(kafka.hosts, tmp_path / "warehouse", pace=Pace(first_pause=0.2))(*command, "--json")
        done = written(kafka, "asked")
    assert eventually(lambda: controller_id(kafka) in cluster.brokers)
    known = [(2, [2, 1], [1, 2])] * len(cluster.brokers)
    assert eventually(
        lambda: [topic_metadata(broker.address, "asked")[0] for broker in cluster.brokers.values()] == known
    )

    assert (ran.code, ran.json["stale"], ran.json["due"]) == (0, 0, 0), ran.stderr
    applied = {
        row["action"]
        for row in Warehouse(str(tmp_path / "warehouse"), "default").rows("commits", ("outcome", "=", "applied"))
    }
    assert applied >= {*STEPS}
    assert kafka.assignment("asked").partitions == {0: [2, 1]}
    assert [len(controlled.logs(broker, "asked")) for broker in cluster.brokers] == [0, 1, 1, 0]
    assert traffic.acknowledged <= traffic.stored(1)
    assert [controlled.logs(broker, "unwanted") for broker in cluster.brokers] == [[], [], [], []]
    assert kafka.client.exists("/brokers/topics/unwanted") is None
    assert kafka.client.get_children("/admin/delete_topics") == []
    assert kafka.client.exists(REASSIGN) is None
    assert written(kafka, "asked") == done


def written(kafka: KafkaTree, topic: str) -> list[tuple[bytes, int]]:
    """A topic and its first state, with their versions: what a controller would write."""
    paths = f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions/0/state"
    return [(data, stat.version) for data, stat in map(kafka.client.get, paths)]
