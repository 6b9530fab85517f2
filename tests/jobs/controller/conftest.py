"""Fixtures of the resident controller."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller import ResidentController
from jobs.controller.decisions.engine import DecisionEngine
from jobs.controller.decisions.queries import DecisionQueries
from jobs.controller.write_behind import WriteBehindLog
from schemas.rows import Snapshot
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import CLUSTER
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(scope="session")
def queries(spark: SparkSession) -> DecisionQueries:
    """Built once for all tests of a worker, as building them is most of the work of a small query."""
    return DecisionQueries.of(spark, CLUSTER, allow_unclean=False)


@pytest.fixture
def engine(queries: DecisionQueries, lake: Warehouse) -> DecisionEngine:
    """An engine with an empty cache."""
    lay_tables(lake)
    return DecisionEngine(lake, [], queries)


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, engine: DecisionEngine, log: list[str]
) -> Iterator[ResidentController]:
    """A controller of a cluster of three brokers, with what the test has created before its first cycle."""
    log_writer = WriteBehindLog(engine.warehouse)
    snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id="c")
    controller_ = ResidentController(control, engine, log_writer, snapshot, log.append)
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    controller_.auto_rebalance = AutoLeaderRebalance(float("inf"), 0.1)  # off unless a test sets it
    yield controller_
    controller_.stop()
