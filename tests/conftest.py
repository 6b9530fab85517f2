"""Real servers for the tests: one ZooKeeper for the whole run, a Kafka cluster for each module that asks for one."""

from collections.abc import Iterator

import pytest

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from tests.jobs.support.zookeeper.ensemble import Ensemble
from tests.jobs.support.zookeeper.kafka_tree import new_chroot

collect_ignore = ["airflow/inside.py"]
"""Runs in Airflow's environment, not in this one."""


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper_hosts(zookeeper_server: EmbeddedZooKeeper) -> str:
    """`host:port/chroot`: a tree of the test's own, empty."""
    return new_chroot(zookeeper_server.connect)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Brokers that a module's tests share: what a test kills, it restarts.

    There are three of them, unless the module's marker `cluster` gives arguments of EmbeddedCluster.
    """
    marker = request.node.get_closest_marker("cluster")
    with EmbeddedCluster(3) if marker is None else EmbeddedCluster(*marker.args, **marker.kwargs) as running:
        yield running


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three ZooKeeper servers, shared by a module's tests: what a test kills, it restarts."""
    with Ensemble(tmp_path_factory.mktemp("ensemble")) as running:
        yield running
