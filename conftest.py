"""What every test may use: one Spark session for the whole run, also in the doctests."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.adapters.spark.session import start_session

QUICK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Tables of a few rows: no time for shuffles that nobody needs, nor for compiling what runs once."""

# the JVM's second compiler takes half of the processor time of tests, which are over before it pays; also in commands
# that a test starts. Four tests of one file: 126 s of the JVM's processor time without, 64 s with.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories on real brokers take longest: whoever else is left to run fills the time beside them."""
    items.sort(key=lambda item: not item.path.stem.endswith("_brokers"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("surveyor-tests", QUICK)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _doctests(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.startswith("planner"):
        names: dict[str, Any] = {"spark": request.getfixturevalue("spark"), "F": F}
        request.node.dtest.globs.update(names)
