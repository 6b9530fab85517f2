"""`surveyor control` on real brokers: created, killed, moved, deleted, a disk lost, drained, paused; no record is lost.

And what /admin asks for, carried out by `surveyor reconcile` alone while no broker gets to be the controller.

The brokers change ISRs in ZooKeeper themselves (inter.broker.protocol.version 2.6), as everything that stays needs.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from jobs.adapters.delta.lake import Lake
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.connection import connected, read
from jobs.adapters.zookeeper.controllership import Controllership, take_over
from schemas.znodes import (
    Assignment,
    State,
    TopicPartition,
    decode_assignment,
    decode_controller,
    encode_assignment,
    encode_partitions,
)
from tests.jobs.support.commands import Surveyor
from tests.jobs.support.kafka_tree import KafkaTree
from tests.jobs.support.real_cluster import Traffic, eventually, kafka_tree, seen_by

OURS = 2147483647
TOPIC = "orders"
STEPS = ("start_reassignment", "narrow_to_target", "end_reassignment", "delete_replicas", "remove_topic")
SETTINGS = {"inter.broker.protocol.version": "2.6", "controlled.shutdown.enable": "false"}

SLOW_AT_FIRST = """\
from jobs.cycle.deciding import warming
from jobs.entry import main
warming.TIMES = 1
main()
"""
"""The command, which asks Spark each kind of question once before it is in office, not four times: nobody counts."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(4, overrides=SETTINGS) as running:
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as tree:
        yield tree


@contextmanager
def in_office(kafka: KafkaTree, warehouse: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, as an operator starts it; ended by Ctrl-C unless it has ended before."""
    said = warehouse.with_suffix(".log")
    with said.open("w") as log:
        command = [sys.executable, "-c", SLOW_AT_FIRST, "control", "--apply", "--yes"]
        where = ["--zookeeper", kafka.hosts, "--warehouse", str(warehouse)]
        running = subprocess.Popen([*command, *where], stdout=log, stderr=log, text=True)
    try:
        assert eventually(lambda: controller(kafka) == OURS, 300), said.read_text()[-3000:]
        yield running
    finally:
        running.send_signal(signal.SIGCONT)
        running.send_signal(signal.SIGINT)
        try:
            running.wait(60)
        finally:
            running.kill()
            running.wait()


def surveyor(kafka: KafkaTree, folder: Path, *arguments: str) -> int:
    """Another command, while the controller is in office; its exit code."""
    where = ["--zookeeper", kafka.hosts] if arguments[0] == "commit" or "--refresh" in arguments else []
    command = [sys.executable, "-m", "jobs.entry", *arguments, *where, "--warehouse", str(folder / "w")]
    with (folder / "other.log").open("a") as log:
        return subprocess.run(command, stdout=log, stderr=log, check=False, timeout=300).returncode


def drain(kafka: KafkaTree, folder: Path, broker: int) -> None:
    """Plan that a broker leads nothing and follows nothing that it followed, and hand the plan in."""
    resident = ("--brokers", str(broker), "--mode", "resident")
    assert surveyor(kafka, folder, "plan", "drain", *resident, "--refresh", "--name", "out") == 0
    assert surveyor(kafka, folder, "commit", "out", "--apply") == 0, (folder / "other.log").read_text()


@contextmanager
def second_log_dir(broker: EmbeddedKafka) -> Iterator[Path]:
    """Another log dir, the next to get a log, as the first holds more; the broker lives without it again afterwards."""
    before, folder = broker.overrides, broker.folder / "second"
    broker.overrides = {**before, "log.dirs": f"{broker.folder / 'data'},{folder}"}
    restart(broker)
    yield folder
    broker.overrides = before
    restart(broker)


def restart(broker: EmbeddedKafka) -> None:
    broker.kill()
    broker.expire()
    broker.start()
    broker.wait_ready()


def controller(kafka: KafkaTree) -> int | None:
    """Who is the controller; nobody is while it changes."""
    data = read(kafka.client, "/controller").data
    return None if data is None else decode_controller(data).broker_id


def by_hand(kafka: KafkaTree, topic: str, replicas: dict[int, list[int]]) -> None:
    kafka.write(f"/config/topics/{topic}", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    kafka.write(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))


def logs(cluster: EmbeddedCluster, broker: int, topic: str) -> list[Path]:
    """Folders of a topic's partitions on a broker; those marked for deletion go a minute later."""
    found = (cluster.folder / f"broker-{broker}").rglob(f"{topic}-*")
    return [path for path in found if path.is_dir() and not path.name.endswith("-delete")]


def test_the_life_of_a_cluster(  # noqa: PLR0915 - one life, event by event
    cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path
) -> None:
    partitions = range(6)

    def states() -> list[State]:
        return [kafka.state(TOPIC, partition) for partition in partitions]

    def soon(holds: Callable[[], bool], seconds: float = 120) -> None:
        assert eventually(holds, seconds), (states(), (tmp_path / "w.log").read_text()[-3000:])

    with in_office(kafka, tmp_path / "w") as running:
        by_hand(kafka, TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in range(4)})
        assert eventually(lambda: kafka.client.exists(f"/brokers/topics/{TOPIC}/partitions/3/state") is not None, 60)
        by_hand(kafka, TOPIC, {p: [p % 3, (p + 1) % 3, (p + 2) % 3] for p in partitions})
        assert eventually(lambda: kafka.client.exists(f"/brokers/topics/{TOPIC}/partitions/5/state") is not None, 60)
        soon(lambda: len(seen_by(cluster.brokers[3].address, TOPIC)) == len(partitions))

        with Traffic(cluster.bootstrap, TOPIC) as traffic:
            cluster.brokers[1].kill()
            cluster.brokers[1].expire()
            soon(lambda: all(state.leader in {0, 2} and 1 not in state.isr for state in states()))
            restart(cluster.brokers[1])
            soon(lambda: all(len(state.isr) == 3 for state in states()))

            preferred = encode_partitions([TopicPartition(TOPIC, partition) for partition in partitions])
            kafka.client.create("/admin/preferred_replica_election", preferred)
            soon(lambda: [state.leader for state in states()] == [p % 3 for p in partitions])
            assert eventually(lambda: kafka.client.exists("/admin/preferred_replica_election") is None, 60)

            moves = [
                TopicPartition(TOPIC, 0, [1, 2, 3]),
                TopicPartition(TOPIC, 1, [3, 1]),
                TopicPartition(TOPIC, 2, [9]),
            ]
            kafka.client.create("/admin/reassign_partitions", encode_partitions(moves))
            soon(lambda: kafka.client.exists("/admin/reassign_partitions") is None, 180)

            found = decode_assignment(kafka.client.get(f"/brokers/topics/{TOPIC}")[0])
            assert (found.partitions[0], found.partitions[1], found.partitions[2]) == ([1, 2, 3], [3, 1], [2, 0, 1])
            assert (found.adding_replicas, found.removing_replicas) == ({}, {})
            assert eventually(lambda: f"{TOPIC}-0" not in [path.name for path in logs(cluster, 0, TOPIC)])

            by_hand(kafka, "old", {0: [0, 1], 1: [2, 3]})
            assert eventually(lambda: len(logs(cluster, 3, "old")) == 1, 60)
            kafka.client.create("/admin/delete_topics/old")
            assert eventually(lambda: kafka.client.exists("/brokers/topics/old") is None, 120)
            assert kafka.client.get_children("/admin/delete_topics") == []
            assert eventually(lambda: not any(logs(cluster, broker, "old") for broker in cluster.brokers))

            with second_log_dir(cluster.brokers[3]) as disk:
                by_hand(kafka, "disk", {0: [3, 0], 1: [0, 3]})
                soon(lambda: len(list(disk.glob("disk-*"))) == 2)
                soon(lambda: all(len(kafka.state("disk", partition).isr) == 2 for partition in range(2)))
                shutil.rmtree(disk)
                disk.touch()
                soon(lambda: [kafka.state("disk", partition).isr for partition in range(2)] == [[0], [0]])
                assert [kafka.state("disk", partition).leader for partition in range(2)] == [0, 0]
                assert [3 in state.isr for state in states()[:2]] == [True, True]  # their log dir is another
            soon(lambda: all(len(kafka.state("disk", partition).isr) == 2 for partition in range(2)))

            soon(lambda: [len(state.isr) for state in states()] == [3, 2, 3, 3, 3, 3])
            followed = [partition for partition in partitions if states()[partition].leader != 1]
            drain(kafka, tmp_path, 1)
            assert all(state.leader != 1 for state in states())
            assert not any(1 in states()[partition].isr for partition in followed)  # stopped; what it led it follows
            restart(cluster.brokers[1])
            soon(lambda: all(1 in state.isr for state in states()[:2]))
            assert all(state.leader != 1 for state in states())

            epochs = [state.leader_epoch for state in states()]
            os.kill(running.pid, signal.SIGSTOP)  # longer than its session lasts
            assert eventually(lambda: controller(kafka) in cluster.brokers, 60)
            os.kill(running.pid, signal.SIGCONT)
            assert running.wait(60) in {1, 20}
        assert traffic.failed == []
        assert traffic.acknowledged <= traffic.stored(len(partitions))

    assert all(now.leader_epoch >= before for now, before in zip(states(), epochs, strict=True))
    written = {
        row["action"] for row in Lake(str(tmp_path / "w"), "default").rows("commits") if row["outcome"] == "applied"
    }
    assert written >= {"create", "elect", "shrink_isr", "start_reassignment", "narrow_to_target", "end_reassignment"}


@contextmanager
def nobody_else_in_office(kafka: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep brokers from being the controller between two commits, each of which still takes over anew, under its epoch.

    All of them use one session, which ends here; one id after another, as nobody takes over from himself.
    """
    ids = count(OURS, -1)
    with connected(kafka.hosts) as client:

        @contextmanager
        def taken(hosts: str, _id: int, *_: object) -> Iterator[Controllership]:
            yield take_over(client, hosts, next(ids))

        monkeypatch.setattr("jobs.execution.batch.commit.controllership", taken)
        take_over(client, kafka.hosts, next(ids))
        yield


@pytest.mark.usefixtures("spark")
def test_requests_are_carried_out_without_a_controller(
    cluster: EmbeddedCluster, kafka: KafkaTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's controller finds nothing to do when it comes back."""
    monkeypatch.setattr("jobs.cycle.reconcile.FIRST_PAUSE", 0.2)
    assert eventually(lambda: controller(kafka) in cluster.brokers)
    by_hand(kafka, "asked", {0: [0, 1]})
    by_hand(kafka, "unwanted", {0: [0, 1], 1: [2, 3]})
    assert eventually(lambda: len(logs(cluster, 0, "asked")) == len(logs(cluster, 3, "unwanted")) == 1, 60)
    with Traffic(cluster.bootstrap, "asked") as traffic:
        pass

    with nobody_else_in_office(kafka, monkeypatch):
        kafka.client.create("/admin/reassign_partitions", encode_partitions([TopicPartition("asked", 0, [2, 1])]))
        kafka.client.create("/admin/delete_topics/unwanted")
        asked = "reconcile", "--apply", "--until-quiet", "--requests", "--yes"
        ran = Surveyor(kafka.hosts, tmp_path / "warehouse")(*asked, "--json")
        done = written(kafka, "asked")
    assert eventually(lambda: controller(kafka) in cluster.brokers)
    known = [(2, [2, 1], [1, 2])] * len(cluster.brokers)
    assert eventually(lambda: [seen_by(broker.address, "asked")[0] for broker in cluster.brokers.values()] == known)

    assert (ran.code, ran.json["stale"], ran.json["due"]) == (0, 0, 0), ran.stderr
    applied = {
        row["action"]
        for row in Lake(str(tmp_path / "warehouse"), "default").rows("commits", ("outcome", "=", "applied"))
    }
    assert applied >= {*STEPS}
    assert decode_assignment(kafka.client.get("/brokers/topics/asked")[0]).partitions == {0: [2, 1]}
    assert [len(logs(cluster, broker, "asked")) for broker in cluster.brokers] == [0, 1, 1, 0]
    assert traffic.acknowledged <= traffic.stored(1)
    assert [logs(cluster, broker, "unwanted") for broker in cluster.brokers] == [[], [], [], []]
    assert kafka.client.exists("/brokers/topics/unwanted") is None
    assert kafka.client.get_children("/admin/delete_topics") == []
    assert kafka.client.exists("/admin/reassign_partitions") is None
    assert written(kafka, "asked") == done


def written(kafka: KafkaTree, topic: str) -> list[tuple[bytes, int]]:
    """A topic and its first state, with their versions: what a controller would write."""
    paths = f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions/0/state"
    return [(data, stat.version) for data, stat in map(kafka.client.get, paths)]
