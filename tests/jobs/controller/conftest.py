"""Fixtures of the resident controller."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller import ResidentController
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.write_behind import WriteBehindLog
from schemas.rows import Snapshot
from tests.jobs.support.controllers.hooked_reader import HookedReader, Hooks
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def log() -> RecordedLog:
    return RecordedLog()


@pytest.fixture
def engine(warehouse: Warehouse) -> DecisionEngine:
    lay_tables(warehouse)
    return DecisionEngine(warehouse, [])


@pytest.fixture
def hooks(controller: ResidentController) -> Hooks:
    assert isinstance(controller.reader, HookedReader)
    return controller.reader.hooks


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, engine: DecisionEngine, log: RecordedLog
) -> Iterator[ResidentController]:
    """A controller of a cluster of three brokers, with what the test has created before its first cycle."""
    log_writer = WriteBehindLog(engine.warehouse)
    snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id="c")
    controller_ = ResidentController(control, engine, log_writer, snapshot, log, reader_type=HookedReader)
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    controller_.auto_rebalance = AutoLeaderRebalance(float("inf"), 0.1)  # off unless a test sets it
    yield controller_
    controller_.stop()
