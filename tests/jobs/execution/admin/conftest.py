"""Commits in admin mode: a fake of Kafka's controller, settings, and a lease that is not waited for."""

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.runtime.pace import Pace
from jobs.runtime.settings import Settings
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def pace(controller: KafkaController) -> Pace:
    return controller.pace


@pytest.fixture
def kafka(tree: KafkaTree, request: pytest.FixtureRequest) -> KafkaTree:
    """A cluster with a broker 3, and the test module's topics: T, assigned as BEFORE, and OTHER."""
    tree.register(3)
    tree.add_topic(request.module.T, request.module.BEFORE)
    tree.add_topic(request.module.OTHER, {0: [0, 1]})
    return tree


@pytest.fixture
def settings(tree: KafkaTree, warehouse: Warehouse) -> Settings:
    return settings_of(warehouse.uri, tree.hosts)


@pytest.fixture
def no_lease_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that another process holds is not waited for."""
    monkeypatch.setattr("jobs.adapters.zookeeper.lease_znode.LEASE_TIMEOUT_SECONDS", 0.0)
