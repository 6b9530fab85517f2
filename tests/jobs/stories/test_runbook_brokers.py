"""The runbook from top to bottom on real brokers: what each command answers is what the page shows below it.

Before the first command of a section its symptom is brought about. Where an answer is another one than the page shows,
the page as it should be is written to a file, to be read and taken over.
"""

from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from shlex import split
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.cli import app
from schemas.znode_codecs import decode_assignment
from tests.jobs.support.commands.documented_commands import ROOT, said_here
from tests.jobs.support.commands.documented_output import rewritten
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

PAGE: Final = ROOT / "docs" / "runbook.md"
ORDERS: Final = [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2
CLICKS: Final = [[1, 2], [2, 1]] * 2
TOPICS: Final = {"orders": (ORDERS, {"min.insync.replicas": "2"}), "clicks": (CLICKS, {})}
PROGRESS: Final = "  ... "
"""How a line begins that depends on how long something took."""

GONE: Final = 3
"""A broker that is none any more when /controller names it."""


class Machines:
    """Actions on the cluster by operators at the machines, and failures."""

    def __init__(self, cluster: EmbeddedCluster, kafka: KafkaTree) -> None:
        self.cluster = cluster
        self.kafka = kafka
        self.symptoms: dict[str, Callable[[], None]] = {
            "A broker died": lambda: self.lose(1),
            "A disk runs full": lambda: self.fill("clicks"),
            "The controller is stuck": self.lose_one_without_a_controller,
            "Partitions stay offline": lambda: self.lose(2),
        }

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        new = [
            NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas, config=config)
            for name, (replicas, config) in TOPICS.items()
        ]
        for created in admin.create_topics(new).values():
            created.result()
        self.settle()

    def bring_about(self, heading: str) -> None:
        self.symptoms.pop(heading, lambda: None)()

    def start(self, broker: int) -> None:
        if broker in self.cluster.brokers:
            self.cluster.brokers[broker].start()
            self.cluster.brokers[broker].wait_ready()
        else:
            self.cluster.add_broker(broker)
        self.settle()

    def stop(self, broker: int) -> None:
        self.cluster.brokers[broker].stop()
        self.settle()

    def lose(self, broker: int) -> None:
        self.cluster.brokers[broker].kill()
        self.cluster.brokers[broker].expire()
        self.settle()

    def lose_one_without_a_controller(self) -> None:
        self.kafka.elect(GONE, int(self.kafka.client.get("/controller_epoch")[0]) + 1)
        self.cluster.brokers[1].kill()
        self.cluster.brokers[1].expire()

    def fill(self, topic: str) -> None:
        """Write so many bytes; a batch for each record, as a log is as much larger as it has batches."""
        one_a_batch = {"batch.num.messages": 1}
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"} | one_a_batch)
        for partition in (2, 3) * 40:
            producer.produce(topic, b" " * 100_000, partition=partition)
        assert producer.flush(60) == 0

    def settle(self) -> None:
        """Wait until Kafka has done what it does by itself."""
        assert eventually(lambda: broker_in_control(self.kafka) and self.is_settled())

    def is_settled(self) -> bool:
        """Live replicas are in sync with a live leader; without a live leader, no in-sync replica is live."""
        live = {*map(int, self.kafka.client.get_children("/brokers/ids"))}
        return all(self._is_settled(live, *place) for place in self._places())

    def _places(self) -> Iterator[tuple[str, int, list[int]]]:
        for topic in TOPICS:
            data = self.kafka.client.get(f"/brokers/topics/{topic}")[0]
            for partition, replicas in decode_assignment(data).partitions.items():
                yield topic, partition, replicas

    def _is_settled(self, live: set[int], topic: str, partition: int, replicas: list[int]) -> bool:
        if self.kafka.client.exists(state_path(topic, partition)) is None:
            return False
        state = self.kafka.state(topic, partition)
        return {*state.isr} == (live.intersection(replicas) if state.leader in live else {*state.isr} - live)


@pytest.fixture
def machines(cluster: EmbeddedCluster) -> Iterator[Machines]:
    with kafka_tree(cluster) as tree:
        machines = Machines(cluster, tree)
        assert eventually(lambda: broker_in_control(tree))
        machines.make_topics()
        yield machines


@pytest.mark.usefixtures("spark")
def test_the_runbook_says_what_commands_answer(
    machines: Machines, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitutions = {cluster.zookeeper_server.connect: "zk1:2181/kafka", str(tmp_path): "/data"}
    monkeypatch.setenv("SURVEYOR_ZOOKEEPER", cluster.zookeeper_server.connect)
    monkeypatch.setenv("SURVEYOR_WAREHOUSE", str(tmp_path / "surveyor"))
    monkeypatch.setattr("jobs.runtime.console.UNLIMITED_COLUMNS", 80)  # as on a narrow terminal

    def answer(heading: str, command: str, *_: object) -> list[str]:
        machines.bring_about(heading)
        words = split(command)
        if words[0] == "ssh":
            getattr(machines, words[-2])(int(words[1][-1]))
            return []
        done = CliRunner().invoke(app, words[1:])
        lines = said_here(done.output, substitutions).splitlines()
        return [line for line in lines if not line.startswith(PROGRESS)]

    page = PAGE.read_text(encoding="utf-8")
    actual = rewritten(page, answer)

    (tmp_path / PAGE.name).write_text(actual, encoding="utf-8")
    difference = unified_diff(page.splitlines(), actual.splitlines(), str(PAGE), str(tmp_path / PAGE.name), lineterm="")
    assert actual == page, "\n".join(difference)
