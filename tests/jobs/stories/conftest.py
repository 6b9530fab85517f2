"""Fixtures of the stories: the module's cluster under Kafka's controller, and commands for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.support.commands import commands
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, kafka_tree
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    """The cluster's znodes, once a broker is the controller."""
    with kafka_tree(cluster) as tree:
        assert eventually(lambda: broker_in_control(tree))
        yield tree


@pytest.fixture
def surveyor(warehouse: Warehouse) -> Surveyor:
    """The command line with its usual timeout: it waits for a broker to become the controller again."""
    return Surveyor(warehouse)


@pytest.fixture
def cluster_surveyor(cluster: EmbeddedCluster, tmp_path: Path) -> commands.Surveyor:
    """The commands with the ZooKeeper of the cluster and a warehouse of the test's own."""
    return commands.Surveyor(cluster.zookeeper_server.connect, tmp_path / "warehouse")
