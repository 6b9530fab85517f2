"""Plans carried out by the command line in a real cluster of either kind, and what Kafka's own clients see of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # exported, untyped
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.embedded.processes import Server
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.lease_holder import LeaseHolder
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.support.rows.input_files import reassignment_file

RACKS: Final = {1: "a", 2: "b", 3: "c"}
"""The brokers of the cluster, and their racks."""

NO_MAKING = {"auto.create.topics.enable": "false"}
"""librdkafka asks again for the metadata of topics that a test has deleted, and brokers would create them."""

RECORD = b" " * 9_998 + b"-1"
"""Ten thousand bytes, as a number that `Traffic.stored` can read."""

SLOW = "100kB/s"


@dataclass(frozen=True, slots=True)
class PlannedKafka:
    """A cluster with the brokers of RACKS, and Surveyor for it."""

    cluster: EmbeddedCluster | EmbeddedKRaftCluster
    surveyor: Surveyor
    admin: AdminClient

    @property
    def brokers(self) -> Mapping[int, Server]:
        return self.cluster.brokers if isinstance(self.cluster, EmbeddedCluster) else self.cluster.nodes

    def lease_holder(self) -> LeaseHolder | None:
        """The holder of the cluster's lease, wherever that is."""
        hosts = self.surveyor.hosts
        with_zookeeper = isinstance(self.cluster, EmbeddedCluster)
        cluster = (
            ZooKeeperCluster(ZooKeeperEndpoint(hosts))
            if with_zookeeper
            else KRaftCluster(hosts, self.surveyor.warehouse)
        )
        with cluster:
            return cluster.read_lease_holder()

    def create(self, topics: Mapping[str, list[list[int]]], **config: str) -> None:
        create_topics(
            self.admin,
            *(
                NewTopic(name, len(replicas), replica_assignment=replicas, config=config)
                for name, replicas in topics.items()
            ),
        )
        assert eventually(lambda: all(map(self.is_in_sync, topics)))
        assert eventually(lambda: topics.keys() <= self.topics_in_snapshot())

    def topics_in_snapshot(self) -> set[str]:
        self.snapshot()
        return {row["topic"] for row in self.surveyor.warehouse.rows("topics")}

    def is_in_sync(self, topic: str) -> bool:
        partitions = self.partitions(topic)
        return bool(partitions) and all(leader in isr == {*replicas} for leader, replicas, isr in partitions.values())

    def snapshot(self) -> None:
        self.surveyor.json("snapshot")

    def fill(self, topic: str, megabytes: int) -> None:
        """Write so many MB to each partition."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        partitions = [*self.partitions(topic)]
        for number in range(megabytes * 100):
            for partition in partitions:
                producer.produce(topic, RECORD, partition=partition)
            if number % 100 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], set[int]]]:
        """Leader, replicas and ISR of each partition, as librdkafka says."""
        known = self.admin.list_topics(topic, timeout=90).topics[topic].partitions
        return {number: (row.leader, list(row.replicas), set(row.isrs)) for number, row in known.items()}

    def leaders(self, topic: str) -> dict[int, int]:
        return {number: leader for number, (leader, _, _) in sorted(self.partitions(topic).items())}

    def replicas(self, topic: str) -> dict[int, list[int]]:
        return {number: replicas for number, (_, replicas, _) in sorted(self.partitions(topic).items())}

    def config(self, kind: str, name: str) -> dict[str, str]:
        """The dynamic settings of a broker or topic."""
        resource = ConfigResource(ConfigResource.Type[kind.upper()], name)
        (answer,) = self.admin.describe_configs([resource]).values()
        own = {"topic": 1, "broker": 2}[kind]
        return {entry.name: entry.value for entry in answer.result().values() if entry.source == own}

    def moving(self) -> dict[tuple[str, int], list[int]]:
        with connected_admin(self.cluster.bootstrap.split(","), {}) as admin:
            return admin.reassignments()

    def targets(self, tmp_path: Path, *targets: tuple[str, int, list[int]]) -> list[str]:
        return ["--reassignment-json-file", reassignment_file(tmp_path, *targets)]

    def plan(self, name: str, *question: str) -> str:
        return str(self.surveyor.json("plan", *question, "--name", name)["plan_id"])

    def outcomes(self, plan_id: str) -> list[tuple[str, str]]:
        rows = self.surveyor.warehouse.rows("commits", ("plan_id", "=", plan_id))
        return sorted((row["action"], row["outcome"]) for row in rows)

    def process(self, *arguments: str, prelude: str = "") -> "subprocess.Popen[str]":
        """A command in a process of its own, which can be killed."""
        code = f"{prelude}\nimport sys; from jobs.entry import main; sys.argv[0] = 'surveyor'; main()"
        options = [self.surveyor.address_option, self.surveyor.hosts, "--warehouse", str(self.surveyor.folder)]
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )


@dataclass(frozen=True, slots=True)
class KRaftKafka(PlannedKafka):
    """A KRaft cluster."""

    cluster: EmbeddedKRaftCluster


@contextmanager
def kraft_kafka(folder: Path) -> Iterator[KRaftKafka]:
    with EmbeddedKRaftCluster(3, racks=RACKS, overrides=NO_MAKING, heap="320m") as cluster:
        surveyor = Surveyor(cluster.bootstrap, folder / "warehouse", "--bootstrap-server")
        yield KRaftKafka(cluster, surveyor, AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}))


APPLY = ("--apply", "--yes")


def committed(ran: Ran) -> Any:  # noqa: ANN401 - JSON
    assert ran.code == 0, f"{ran.code}: {ran.stderr}{ran.stdout}"
    assert ran.json["status"] == "committed", ran.stdout
    return ran.json


def election(tmp_path: Path, topic: str) -> list[str]:
    path = tmp_path / "elect.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    return ["elect", "--preferred", "--path-to-json-file", str(path)]
