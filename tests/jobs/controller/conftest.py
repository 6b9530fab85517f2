"""What the tests of a controller that stays share: one in office."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Lake
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.auto_rebalance import Balance
from jobs.controller.controller import Controller
from jobs.controller.decisions.engine import Decider
from jobs.controller.decisions.queries import Questions
from jobs.controller.write_behind import Behind
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.plan_rows import CLUSTER
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(scope="session")
def questions(spark: SparkSession) -> Questions:
    """Built once for all tests of a worker: that is most of the work of a small one."""
    return Questions.of(spark, CLUSTER, allow_unclean=False)


@pytest.fixture
def decider(questions: Questions, lake: Lake) -> Decider:
    """One that knows nothing yet."""
    lay_tables(lake)
    return Decider(lake, [], questions)


@pytest.fixture
def controller(tree: KafkaTree, control: Controllership, decider: Decider, log: list[str]) -> Iterator[Controller]:
    """In office, on a cluster of three brokers and whatever the test has made before it asks for a cycle."""
    behind = Behind(decider.lake)
    some = Controller(control, decider, behind, {"snapshot_id": 1, "cluster_id": "c"}, log.append)
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    some.balance = Balance(float("inf"), 0.1)  # where a test does not ask for it
    yield some
    some.stop()
