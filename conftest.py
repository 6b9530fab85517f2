"""What every test may use: one Spark session for the whole run, also in the doctests."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.adapters.spark import start_session

QUICK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Tables of a few rows: no time for shuffles that nobody needs."""


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
