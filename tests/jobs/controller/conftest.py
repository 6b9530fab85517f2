"""Fixtures of the resident controller."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller import ResidentController
from jobs.controller.decisions.engine import DecisionEngine
from jobs.controller.decisions.queries import DecisionQueries
from jobs.controller.write_behind import WriteBehindLog
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import CLUSTER
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(scope="session")
def questions(spark: SparkSession) -> DecisionQueries:
    """Built once for all tests of a worker, as building them is most of the work of a small query."""
    return DecisionQueries.of(spark, CLUSTER, allow_unclean=False)


@pytest.fixture
def decider(questions: DecisionQueries, lake: Warehouse) -> DecisionEngine:
    """An engine with an empty cache."""
    lay_tables(lake)
    return DecisionEngine(lake, [], questions)


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, decider: DecisionEngine, log: list[str]
) -> Iterator[ResidentController]:
    """A controller of a cluster of three brokers, with what the test has created before its first cycle."""
    behind = WriteBehindLog(decider.warehouse)
    some = ResidentController(control, decider, behind, {"snapshot_id": 1, "cluster_id": "c"}, log.append)
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    some.auto_rebalance = AutoLeaderRebalance(float("inf"), 0.1)  # where a test does not ask for it
    yield some
    some.stop()
