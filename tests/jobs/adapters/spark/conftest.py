"""A cluster with more partitions than the driver reads by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.runtime.pace import DEFAULT
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

TOPICS, PARTITIONS = 21, 500
DUE: Final = 7_014
"""Partitions that need a change, as broker 1 is gone."""
assert DEFAULT.small_cluster < TOPICS * PARTITIONS


@pytest.fixture(scope="module")
def large(zookeeper_server: EmbeddedZooKeeper) -> Iterator[KafkaTree]:
    with large_tree(zookeeper_server) as tree:
        yield tree


@contextmanager
def large_tree(zookeeper_server: EmbeddedZooKeeper) -> Iterator[KafkaTree]:
    """Broker 1 is gone, so two partitions of three are due."""
    root = KazooClient(zookeeper_server.connect)
    root.start()
    root.ensure_path("/large")
    client = KazooClient(f"{zookeeper_server.connect}/large")
    client.start()
    tree = KafkaTree(f"{zookeeper_server.connect}/large", client)
    tree.lay_out((0, 2))
    tree.elect(0, epoch=7)
    for topic in range(TOPICS):
        tree.add_topic(f"t{topic}", {number: [number % 3, (number + 1) % 3] for number in range(PARTITIONS)})
    yield tree
    for folder in (client, root):
        folder.stop()
        folder.close()
