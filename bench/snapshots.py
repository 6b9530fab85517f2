"""Snapshots against a bare read of the same znodes, and that read against kazoo.

A machine's speed drifts within minutes: each work is compared with the mean of two bare reads, one right before it and
one right after.

    python -m bench.snapshots 1000000,3000000

measures first and unchanged snapshots alone, and says what each costs for a partition, against the smallest size.
"""

import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Final

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from bench.clusters.synthetic import Cluster, cluster
from bench.figures import Cost, Driver, Figure, growths, median_of, seconds_of, timed
from jobs.adapters.spark.session import start_session
from jobs.adapters.zookeeper.spark_data_source import ZooKeeperDataSource
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from jobs.snapshots.snapshot import take_snapshot
from schemas.znode_codecs import decode_state

FIRST, UNCHANGED, CHANGED = "first snapshot", "unchanged snapshot", "snapshot, 1 % changed"

TARGETS: Final = {FIRST: 2.5, UNCHANGED: 2.0, CHANGED: 2.2}
"""What a snapshot may take at most, in bare reads; in the order in which they are taken."""

MILLION: Final = 1_000_000

TEN_TIMES_QUICKER: Final = 0.1

SAMPLE: Final = 50_000
"""States that kazoo reads; a million would take minutes, and each takes as long as any other."""

PIPELINE: Final = 1000

WARM_UP: Final = 20_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing measured once; `cost` is None for what is no snapshot."""

    figure: Figure
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class SnapshotBench:
    """Measures one cluster."""

    spark: SparkSession
    driver: Driver
    cluster: Cluster

    def rounds(self, count: int) -> list[Sample]:
        """Measure everything so many times; of each, return the round with the median ratio."""
        rounds = [list(self.round(turn)) for turn in range(1, count + 1)]
        return [median_of(samples, lambda sample: sample.figure.ratio) for samples in zip(*rounds, strict=True)]

    def round(self, turn: int) -> Iterator[Sample]:
        """Measure the reading, and each kind of snapshot into a warehouse that was empty at first."""
        yield self.reading()
        with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
            settings = Settings("bench", folder, ClusterConf(zookeeper=self.cluster.hosts))
            for kind in TARGETS:
                changed = self.cluster.partitions // 100 if kind == CHANGED else 0
                self.cluster.change(changed, turn)
                yield self.snapshot(kind, settings)
            written = settings.warehouse.read("partition_history", ("snapshot_id", "=", 3)).num_rows
            assert written == changed, f"{changed} states changed, the history has {written}"

    def target(self, ratio: float) -> float | None:
        """The targets are for the largest clusters; in small ones, what a snapshot always costs weighs more."""
        return ratio if self.cluster.partitions >= MILLION else None

    def bare(self) -> float:
        """Seconds that the data source takes for all znodes, decoded and thrown away."""
        self.spark.dataSource.register(ZooKeeperDataSource)
        read = self.spark.read.format("zookeeper").option("zookeeper", self.cluster.hosts).load()
        self.driver.settle()
        with progress(f"bare read of {self.cluster.partitions:,} partitions"):
            return seconds_of(read.write.format("noop").mode("overwrite").save)

    def reading(self) -> Sample:
        count = self.cluster.partitions
        paths = list(islice(self.cluster.state_paths(), SAMPLE))
        before = self.bare()
        with progress(f"kazoo's reading of {len(paths):,} states"):
            kazoo = seconds_of(lambda: read_pipelined(self.cluster.client, paths))
        scaled = f", scaled from {len(paths):,}" if len(paths) < count else ""
        figure = Figure(
            measured=f"bare read: read and decode {count:,} states by Spark",
            seconds=mean((before, self.bare())),
            baseline=f"kazoo get_async, one process{scaled}",
            baseline_seconds=kazoo * count / len(paths),
            target=self.target(TEN_TIMES_QUICKER),
        )
        return Sample(figure)

    def snapshot(self, kind: str, settings: Settings) -> Sample:
        count, folder = self.cluster.partitions, Path(settings.warehouse_uri)
        before, size = self.bare(), _size(folder)
        self.driver.settle()
        with progress(f"{kind} of {count:,} partitions"):
            seconds, result = timed(lambda: take_snapshot(settings).row)
        resident = self.driver.resident()
        assert result.partitions == count, f"{count} partitions, the snapshot has {result.partitions}"
        figure = Figure(
            measured=f"{kind}, {count:,} partitions",
            seconds=seconds,
            baseline="bare read, before and after",
            baseline_seconds=mean((before, self.bare())),
            target=self.target(TARGETS[kind]),
        )
        return Sample(figure, Cost(kind, count, seconds, _size(folder) - size, *resident))


def read_pipelined(client: KazooClient, paths: Iterable[str]) -> None:
    """What a careful Python program does: many single reads in flight, each decoded."""
    pending: deque[Any] = deque()
    for path in paths:
        pending.append(client.get_async(path))
        if len(pending) >= PIPELINE:
            decode_state(pending.popleft().get()[0])
    for answer in pending:
        decode_state(answer.get()[0])


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bench_sizes(sizes: Iterable[int], driver_memory: str) -> list[Cost]:
    """Measure first and unchanged snapshots of clusters of these sizes, after a warm-up of WARM_UP partitions."""
    spark = start_session("surveyor bench", {"spark.driver.memory": driver_memory})
    driver, costs = Driver(spark), list[Cost]()
    for partitions in (WARM_UP, *sizes):
        with cluster(partitions) as synthetic, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
            settings = Settings("bench", folder, ClusterConf(zookeeper=synthetic.hosts))
            for kind in (FIRST, UNCHANGED):
                costs.append(_alone(driver, partitions, kind, settings))
                log(str(costs[-1].row))
    return costs


def _alone(driver: Driver, partitions: int, kind: str, settings: Settings) -> Cost:
    """Take a snapshot without bare reads before and after it."""
    size = _size(Path(settings.warehouse_uri))
    driver.settle()
    before = driver.processor_seconds()
    with progress(f"{kind} of {partitions:,} partitions"):
        seconds, result = timed(lambda: take_snapshot(settings).row)
    log(f"  {seconds:.1f} s, {driver.processor_seconds() - before:.1f} s of processors")
    assert result.partitions == partitions, f"the snapshot has {result.partitions} partitions"
    return Cost(kind, partitions, seconds, _size(Path(settings.warehouse_uri)) - size, *driver.resident())


if __name__ == "__main__":
    measured = bench_sizes(map(int, sys.argv[1].split(",")), *sys.argv[2:] or ["8g"])
    for row in growths([cost for cost in measured if cost.partitions != WARM_UP]):
        log(str(row))
