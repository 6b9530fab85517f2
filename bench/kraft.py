"""Snapshots of a KRaft cluster against the same of a cluster in ZooKeeper, in turns.

The brokers are simulated: they encode the pages of a topic once, and hold no data. So the ratio is what Surveyor needs
for the protocol and the rows, and says little about how long real brokers take to answer.

    python -m bench.kraft 1000000 [ROUNDS]
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from operator import attrgetter
from typing import Final

from pyspark.sql import SparkSession

from bench.clusters.simulated_kraft import simulated_kraft
from bench.clusters.synthetic import Cluster, cluster
from bench.figures import Driver, Figure, describe, median_of, timed
from bench.report import Report
from bench.snapshots import MILLION
from jobs.adapters.spark.session import start_session
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.snapshot import take_snapshot
from tests.jobs.support.kafka.paged_brokers import LISTED, NOT_PAGED, PAGED

TARGET: Final = 3.0
"""A snapshot of a KRaft cluster, in snapshots of the same size from ZooKeeper."""

RELEASES: Final = {LISTED: "Kafka 4.1", PAGED: "Kafka 3.8", NOT_PAGED: "Kafka 3.3"}
"""The first release that answers what the simulated brokers answer."""


def bench_kraft(spark: SparkSession, zookeeper: Cluster, rounds: int, newest: str = LISTED) -> Figure:
    """Take first snapshots of both, so many times by turns; return the turn with the median ratio."""
    driver = Driver(spark)
    with simulated_kraft(zookeeper.partitions, newest) as brokers:
        confs = ClusterConf(bootstrap_servers=brokers), ClusterConf(zookeeper=zookeeper.hosts)
        return median_of(list(_turns(driver, zookeeper.partitions, confs, rounds, newest)), attrgetter("ratio"))


def _turns(
    driver: Driver, partitions: int, confs: tuple[ClusterConf, ClusterConf], rounds: int, newest: str
) -> Iterator[Figure]:
    for _ in range(rounds):
        kraft, zookeeper = (_first_snapshot(driver, conf, partitions) for conf in confs)
        yield Figure(
            measured=f"first snapshot of simulated KRaft brokers as of {RELEASES[newest]}, {partitions:,} partitions",
            seconds=kraft,
            baseline="first snapshot from ZooKeeper",
            baseline_seconds=zookeeper,
            target=TARGET if partitions >= MILLION else None,
        )


def _first_snapshot(driver: Driver, conf: ClusterConf, partitions: int) -> float:
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        driver.settle()
        with progress(f"first snapshot of {partitions:,} partitions from {conf.zookeeper or conf.bootstrap_servers}"):
            seconds, result = timed(lambda: take_snapshot(Settings("bench", folder, conf)).row)
        assert result.partitions == partitions, f"{partitions} partitions, the snapshot has {result.partitions}"
        assert result.quarantined == 0, result
        return seconds


def main(partitions: int, rounds: int) -> None:
    spark = start_session("surveyor bench", {"spark.driver.memory": "8g"})
    with ExitStack() as stack:
        small = stack.enter_context(cluster(20_000))
        bench_kraft(spark, small, 1)  # warm-up
        machine = describe(spark, small.version, "8g")
    with cluster(partitions) as zookeeper:
        figures = [bench_kraft(spark, zookeeper, rounds, newest) for newest in RELEASES]
    report = Report(machine, figures, [])
    report.show()
    log(report.verdict)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
