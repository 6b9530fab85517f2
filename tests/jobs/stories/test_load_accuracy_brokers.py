"""Load on real brokers of both kinds: as they count it themselves, and after failures in which no hour may be wrong."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.load_accuracy import INACCURATE, Accuracy, MeasuredCluster, measure, measured_cluster, total
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.load_traffic import TOPICS, UNCOMMITTED
from tests.jobs.support.kafka.real_cluster import create_topics, delete_topic, eventually, topic_metadata

pytestmark = pytest.mark.usefixtures("spark")

SECONDS, PERIOD = 20.0, 5.0

MAX_ERROR: Final = 0.05
RECORD: Final = 500

APPEND_ONLY: Final = [topic.name for topic in TOPICS if topic.name not in INACCURATE]

MARKER_TOPICS: Final = {topic.name for topic in TOPICS if topic.is_transactional}
"""Topics with records that no producer sends."""


@dataclass(frozen=True)
class Measured:
    """A cluster that was measured once, and has all its brokers."""

    cluster: MeasuredCluster
    accuracy: Accuracy


@pytest.fixture(scope="module", params=[True, False], ids=["zookeeper", "kraft"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measured_cluster(tmp_path_factory.mktemp("load"), with_zookeeper=request.param) as cluster:
        yield Measured(cluster, measure(cluster, SECONDS, PERIOD))


def test_append_only_topics_are_as_brokers_count_them(measured: Measured) -> None:
    topics = [measured.accuracy.topics[name] for name in APPEND_ONLY]
    errors = {row.topic: (row.bytes_in.error, row.worst_partition) for row in topics}
    assert max(abs(error) for row in errors.values() for error in row if error is not None) < MAX_ERROR, errors
    assert [topic for topic, (error, _) in errors.items() if error is None] == []
    assert {row.topic: row.flags for row in topics if row.flags} == {}


def test_records_are_those_that_were_sent(measured: Measured) -> None:
    records = {
        (topic.topic, number): counts
        for topic in measured.accuracy.topics.values()
        if topic.topic not in MARKER_TOPICS
        for number, counts in topic.records.items()
    }
    wrong = {key: counts for key, counts in records.items() if counts[0] != round(counts[1])}
    assert wrong == {}


def test_topics_with_other_bytes_than_were_sent_are_flagged(measured: Measured) -> None:
    assert {topic: measured.accuracy.topics[topic].flags for topic in INACCURATE} == {
        "recompressed": ["recompressed"],
        "compacted": ["compacted"],
    }


def test_what_groups_read_is_as_brokers_count_it(measured: Measured) -> None:
    read = {row.topic: row.bytes_out for row in measured.accuracy.topics.values() if row.bytes_out.brokers}
    assert read.pop(UNCOMMITTED).surveyor == 0
    errors = {topic: compared.error for topic, compared in read.items()}
    assert len(errors) > 1
    assert all(error is not None and abs(error) < MAX_ERROR for error in errors.values()), errors


def test_brokers_serve_followers_and_readers_in_their_rack(measured: Measured) -> None:
    errors = {key: compared.error for key, compared in measured.accuracy.brokers.items()}
    assert all(error is not None and abs(error) < MAX_ERROR for error in errors.values()), errors


@dataclass(frozen=True)
class FailingCluster:
    """The cluster, with a warehouse for one test."""

    cluster: MeasuredCluster
    surveyor: Surveyor

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    def create(self, **replicas: list[int]) -> None:
        """Create topics of one partition."""
        create_topics(self.admin, *(NewTopic(name, 1, replica_assignment=[row]) for name, row in replicas.items()))
        assert eventually(lambda: all(self._has_all_replicas(name, row) for name, row in replicas.items()))

    def _has_all_replicas(self, topic: str, replicas: list[int]) -> bool:
        leader, _, isr = topic_metadata(self.cluster.brokers[1].address, topic)[0]
        return leader == replicas[0] and sorted(isr) == sorted(replicas)

    def send(self, topic: str, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        failures: list[KafkaError | None] = []
        for _ in range(records):
            producer.produce(
                topic, os.urandom(RECORD), partition=0, on_delivery=lambda error, _: failures.append(error)
            )
        assert producer.flush(60) == 0
        assert failures == [None] * records

    def sample(self) -> Any:  # noqa: ANN401 - JSON
        return self.surveyor.json("load", "sample")

    def loads(self, topic: str) -> list[dict[str, Any]]:
        """Roll up, and return the hours of a topic."""
        self.surveyor.json("load", "rollup")
        return [row for row in self.surveyor.warehouse.rows("partition_load") if row["topic"] == topic]

    def records(self, topic: str) -> int:
        return round(total(self.loads(topic), "records_in"))


@pytest.fixture
def failing(measured: Measured, tmp_path: Path) -> FailingCluster:
    return FailingCluster(measured.cluster, replace(measured.cluster.surveyor, folder=tmp_path / "warehouse"))


def test_a_restart_changes_the_leader_and_loses_nothing(failing: FailingCluster) -> None:
    failing.create(led=[2, 1])
    failing.surveyor.json("snapshot")
    failing.sample()
    failing.send("led", 200)
    failing.sample()
    failing.cluster.brokers[2].stop()
    failing.send("led", 100)
    assert [row["broker_id"] for row in failing.sample()["silent"]] in ([], [2])
    failing.cluster.brokers[2].restart()
    failing.send("led", 100)
    failing.sample()
    rows = failing.loads("led")
    assert round(total(rows, "records_in")) == 400
    assert total(rows, "bytes_in") == pytest.approx(400 * RECORD, rel=MAX_ERROR)
    assert {row["leader"] for row in rows[-1:]} == {1}
    assert "moved" in {flag for row in rows for flag in row["flags"]}


def test_a_broker_that_is_down_costs_its_own_samples(failing: FailingCluster) -> None:
    failing.create(lone=[2], other=[1])
    failing.surveyor.json("snapshot")
    failing.sample()
    for topic in ("lone", "other"):
        failing.send(topic, 100)
    failing.sample()
    failing.cluster.brokers[2].kill()
    failing.send("other", 50)
    failing.sample()
    assert (failing.records("lone"), failing.records("other")) == (100, 150)
    failing.cluster.brokers[2].restart()
    failing.send("lone", 70)
    failing.sample()
    assert (failing.records("lone"), failing.records("other")) == (170, 150)


def test_a_topic_that_is_created_again_is_another_topic(failing: FailingCluster) -> None:
    """Its leader and leader epoch are those in the snapshot; nothing is known of the time before its first sample."""
    failing.create(again=[1])
    failing.surveyor.json("snapshot")
    failing.sample()
    failing.send("again", 300)
    failing.sample()
    delete_topic(failing.admin, "again")
    assert eventually(lambda: "again" not in failing.admin.list_topics(timeout=60).topics)
    failing.create(again=[1])
    failing.send("again", 40)
    failing.sample()
    failing.send("again", 50)
    failing.sample()
    rows = failing.loads("again")
    by_id = {row["topic_id"]: round(total([row], "records_in")) for row in rows if row["records_in"]}
    assert sorted(by_id.values()) == [50, 300]


KILLED_BEFORE_LAST_TABLE: Final = """\
import os, signal
from jobs.adapters.delta.warehouse import Warehouse
replace_by = Warehouse.replace_by
def killed(self, table, *arguments):
    if table == "partition_offsets":
        os.kill(os.getpid(), signal.SIGKILL)
    return replace_by(self, table, *arguments)
Warehouse.replace_by = killed
import sys; from jobs.entry import main; sys.argv[0] = "surveyor"; main()
"""


def test_a_sampler_that_is_killed_leaves_no_wrong_hour(failing: FailingCluster) -> None:
    """What groups have committed is stored, and the offsets of partitions are not."""
    failing.create(read=[1])
    failing.surveyor.json("snapshot")
    commit = partial(_commit, failing.cluster.bootstrap, "read")
    commit(0)
    failing.sample()
    failing.send("read", 100)
    commit(100)
    options = [failing.surveyor.address_option, failing.surveyor.hosts, "--warehouse", str(failing.surveyor.folder)]
    command = [sys.executable, "-c", KILLED_BEFORE_LAST_TABLE, "load", "sample", *options]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    failing.send("read", 50)
    commit(150)
    failing.sample()
    rows = failing.loads("read")
    samples = [len({row["stored_at"] for row in _rows(failing, table, "read")}) for table in SAMPLE_TABLES]
    assert samples == [3, 2]
    assert round(total(rows, "records_in")) == 150
    assert total(rows, "bytes_out") == pytest.approx(total(rows, "bytes_in"), rel=0.01)


SAMPLE_TABLES: Final = ("group_offsets", "partition_offsets")


def _rows(failing: FailingCluster, table: str, topic: str) -> list[dict[str, Any]]:
    return [row for row in failing.surveyor.warehouse.rows(table) if row["topic"] == topic]


def _commit(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
