"""The plan that commits are tested with, and a fake of Kafka's controller for commands in admin mode."""

from dataclasses import replace

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.runtime.pace import Pace
from schemas.stored_plan import Plan
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """Partitions 0 to 3 of topic t get leader 1 instead of 0."""
    tree.add_topic("t", {partition: [0, 1, 2] for partition in range(4)})
    return store_plan(
        warehouse, tree, [election(tree, "t", partition, leader=1) for partition in range(4)], name="alias"
    )


@pytest.fixture
def pace() -> Pace:
    """Kafka's controller carries out requests at once."""
    return replace(NO_TAKEOVER, cancellation=0.0, read_back=0.0)


@pytest.fixture
def single_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to Kafka's controller is of one partition."""
    monkeypatch.setattr("jobs.adapters.brokers.admin_client.MAX_PARTITIONS_PER_REQUEST", 1)
