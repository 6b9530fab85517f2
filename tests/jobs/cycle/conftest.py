"""What the tests of a controller that stays share: one in office."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.lake import Lake
from jobs.adapters.delta.spark_tables import Tables
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.cycle.balance import Balance
from jobs.cycle.behind import Behind
from jobs.cycle.control import Controller
from jobs.cycle.deciding.decider import Decider
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, spark: SparkSession, lake: Lake, log: list[str]
) -> Iterator[Controller]:
    """In office, on a cluster of three brokers and whatever the test has made before it asks for a cycle."""
    lake.ensure_tables()
    behind = Behind(lake)
    some = Controller(
        control,
        Decider.of(Tables(spark, lake), [], allow_unclean=False),
        behind,
        {"snapshot_id": 1, "cluster_id": "c"},
        log.append,
    )
    tree.write("/admin/delete_topics/.keep", b"")
    tree.client.delete("/admin/delete_topics/.keep")
    some.balance = Balance(float("inf"), 0.1)  # where a test does not ask for it
    yield some
    some.stop()
