"""Spark for the tests of a worker that need a session of it, and settings for others that tests start."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from jobs.adapters.spark.session import start_session
from jobs.adapters.spark.spark_settings import INTERPRETED

NAME: Final = "surveyor-tests"

JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with JVM options for Spark's launcher."""

QUICK_JVM: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:ReservedCodeCacheSize=400m -XX:-UseCodeCacheFlushing -XX:MetaspaceSize=400m"
)
"""The JVM's second compiler takes half of the processor time of tests, which are over before it pays; also in commands
that a test starts. Four tests of one file: 126 s of the JVM's processor time without, 64 s with.

Without it the JVM also keeps no more than 48 MB of compiled code, which a few dozen tests fill: methods were thrown
away and compiled again for ever. Six rounds of snapshots and plans: 166 s of processor time so, 120 s with more room.
"""

QUICK: Final = INTERPRETED | {
    "spark.default.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings for tables of a few rows: no unneeded shuffles, and no compilation of code that runs once."""

OWN: Final = {"spark.master": "local[2]"}


@contextmanager
def own_session() -> Iterator[SparkSession]:
    """Run a Spark for this process alone."""
    session = start_session(NAME, QUICK | OWN)
    yield session
    session.stop()
