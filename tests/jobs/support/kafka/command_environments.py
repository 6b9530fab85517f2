"""Environments for commands in the documentation: real brokers, and trees whose brokers only listen.

All are in one ZooKeeper. Each environment has a warehouse of its own. The current one is set in the environment
variables that the pages use.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot, registration, state_path

REAL: Final = "real"

Replicas = Sequence[list[int]]


class CommandEnvironments:
    """All environments, and the current one."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cluster, self.folder, self._patch = cluster, folder, patch
        self.trees: dict[str, KafkaTree] = {}
        self.at = Surveyor("", folder)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.trees[REAL] = self._stack.enter_context(kafka_tree(self.cluster))
        assert eventually(lambda: broker_in_control(self.trees[REAL]))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def tree(self) -> KafkaTree:
        return next(tree for tree in self.trees.values() if tree.hosts == self.at.hosts)

    @property
    def substitutions(self) -> dict[str, str]:
        """Actual values, and the values in the pages."""
        return {self.at.hosts: "zk1:2181,zk2:2181/kafka", str(self.at.folder): "/data/surveyor"}

    def go_to(self, place: str) -> Surveyor:
        self.at = Surveyor(self.trees[place].hosts, self.folder / place)
        self._patch.setenv("SURVEYOR_ZOOKEEPER", self.at.hosts)
        self._patch.setenv("SURVEYOR_WAREHOUSE", str(self.at.folder))
        return self.at

    def go_nowhere(self) -> None:
        """Remove the environment variables."""
        for name in ("SURVEYOR_ZOOKEEPER", "SURVEYOR_WAREHOUSE"):
            self._patch.delenv(name, raising=False)

    def lay_out(self, place: str, racks: Mapping[int, str | None], topics: Mapping[str, Replicas]) -> KafkaTree:
        """Make a cluster of brokers that only listen; the broker of a replica is down if it has no rack here."""
        brokers = self._stack.enter_context(FakeBrokers())
        hosts = new_chroot(self.cluster.zookeeper_server.connect)
        tree = KafkaTree(hosts, self._stack.enter_context(connected(ZooKeeperEndpoint(hosts))), brokers)
        tree.lay_out(())
        for broker, rack in racks.items():
            tree.register(broker, registration(brokers[broker].port, rack))
        tree.elect(next(iter(racks)), epoch=7)
        for topic, replicas in topics.items():
            tree.add_topic(topic, dict(enumerate(replicas)))
        self.trees[place] = tree
        return tree

    def lead(self, topic: str, partitions: Iterable[int], leader: int, isr: list[int]) -> None:
        """Let another broker lead these partitions."""
        for partition in partitions:
            state = State(controller_epoch=7, leader=leader, leader_epoch=6, isr=isr)
            self.tree.client.set(state_path(topic, partition), encode_state(state))

    def make_topic(self, name: str, replicas: Replicas) -> None:
        """Make a topic on the real brokers, and wait until it is led."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        new = NewTopic(name, num_partitions=len(replicas), replica_assignment=list(replicas))
        admin.create_topics([new])[name].result()
        assert eventually(lambda: all(self._is_led(name, partition) for partition in range(len(replicas))))

    def _is_led(self, topic: str, partition: int) -> bool:
        return self.trees[REAL].client.exists(state_path(topic, partition)) is not None

    def reorder(self, replicas: Mapping[tuple[str, int], list[int]]) -> None:
        """Let the controller change the order of replicas; leaders stay."""
        rows = [{"topic": topic, "partition": number, "replicas": new} for (topic, number), new in replicas.items()]
        client = self.trees[REAL].client
        client.create("/admin/reassign_partitions", json.dumps({"version": 1, "partitions": rows}).encode())
        assert eventually(lambda: client.exists("/admin/reassign_partitions") is None)
