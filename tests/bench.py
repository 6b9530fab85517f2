"""`make bench`: how fast the parts are, as ratios against a baseline in the same run.

Absolute times mean little on a shared machine; each ratio divides two times measured side by side, the best of
`--rounds` each. ZooKeeper is embedded, its znodes are synthetic, and the Spark session is warm.
"""

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from jobs.adapters.controllership import take_over
from jobs.adapters.embedded import EmbeddedZooKeeper
from jobs.adapters.lake import Lake
from jobs.adapters.spark import start_session
from jobs.adapters.zookeeper_source import ZooKeeperDataSource
from jobs.console import table
from planner.imbalance import imbalance
from planner.reconcile import reconcile_changes
from schemas.tables import BROKER_CONFIGS, BROKERS, PARTITIONS, TOPICS
from schemas.znodes import Assignment, State, decode_state, encode_assignment, encode_state

BROKER_COUNT = 100
TOPIC_SIZE = 100
PIPELINE = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: what was measured, and against what."""

    measured: str
    baseline: str
    seconds: float
    baseline_seconds: float

    @property
    def row(self) -> dict[str, Any]:
        return {
            "measured": self.measured,
            "seconds": self.seconds,
            "baseline": self.baseline,
            "baseline seconds": self.baseline_seconds,
            "ratio": self.seconds / self.baseline_seconds,
        }


def best(work: Callable[[], object], rounds: int) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def replicas(partition: int) -> list[int]:
    return [(partition + j) % BROKER_COUNT for j in range(3)]


def state(partition: int) -> bytes:
    return encode_state(
        State(controller_epoch=1, leader=partition % BROKER_COUNT, leader_epoch=0, isr=replicas(partition))
    )


def fill(client: KazooClient, partitions: int) -> list[str]:
    """Create the topics and their states; return the states' paths."""
    client.ensure_path("/brokers/ids")
    client.ensure_path("/brokers/topics")
    client.ensure_path("/config/topics")
    paths = []
    for number in range(partitions // TOPIC_SIZE):
        topic = f"/brokers/topics/topic-{number:05d}"
        multi = client.transaction()
        assignment = {partition: replicas(number + partition) for partition in range(TOPIC_SIZE)}
        multi.create(topic, encode_assignment(Assignment(assignment, {}, {}, None)))
        multi.create(f"{topic}/partitions")
        for partition in range(TOPIC_SIZE):
            path = f"{topic}/partitions/{partition}"
            multi.create(path)
            multi.create(f"{path}/state", state(number + partition))
            paths.append(f"{path}/state")
        multi.commit()
    return paths


def read_pipelined(client: KazooClient, paths: Sequence[str]) -> None:
    """What a careful Python program does: many single reads in flight, each decoded."""
    pending: deque[Any] = deque()
    for path in paths:
        pending.append(client.get_async(path))
        if len(pending) >= PIPELINE:
            decode_state(pending.popleft().get()[0])
    for answer in pending:
        decode_state(answer.get()[0])


def bench_reading(spark: SparkSession, hosts: str, client: KazooClient, paths: Sequence[str], rounds: int) -> Figure:
    spark.dataSource.register(ZooKeeperDataSource)

    def read() -> None:
        read_all = spark.read.format("zookeeper").option("zookeeper", hosts).load()
        read_all.write.format("noop").mode("overwrite").save()

    read()
    return Figure(
        f"read and decode {len(paths)} states through Spark",
        "kazoo, pipelined get_async, one process",
        best(read, rounds),
        best(lambda: read_pipelined(client, paths), 1),
    )


def bench_writing(hosts: str, client: KazooClient, paths: Sequence[str]) -> Figure:
    """Write states in multis of 400, and one multi a state, each under the fence."""
    control = take_over(client, hosts, controller_id=2147483647)

    def write(size: int, some: Sequence[str]) -> float:
        started = time.perf_counter()
        pending: deque[Any] = deque()
        for start in range(0, len(some), size):
            multi = control.transaction()
            for path in some[start : start + size]:
                multi.set_data(path, state(0))
            pending.append(multi.commit_async())
        for answer in pending:
            answer.get()
        return (time.perf_counter() - started) / len(some)

    few = paths[:5000]
    return Figure(
        "write a state, 400 in a fenced multi",
        "write a state, one in a fenced multi (as Kafka does), pipelined",
        write(400, few),
        write(1, few),
    )


def bench_planning(spark: SparkSession, warehouse: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """One of 100 brokers dead: plan what is due, and the imbalance, against a bare scan of the same table."""
    lake = Lake(warehouse, "bench")
    lake.ensure_tables()
    rows = _synthetic(spark, partitions)
    rows.write.format("delta").mode("append").save(lake.path("partitions"))
    stored = spark.read.format("delta").load(lake.path("partitions"))
    brokers = spark.createDataFrame(
        [("bench", 1, broker, broker, 0, "h", 1, [], None, True) for broker in range(1, BROKER_COUNT)],
        BROKERS,
    )
    topics = (
        stored.select("cluster", "topic")
        .distinct()
        .select(
            "*",
            F.create_map().cast("map<string,string>").alias("config"),
            F.lit(False).alias("deletion_requested"),
            F.lit(True).alias("understood"),
        )
        .to(TOPICS)
        .localCheckpoint()
    )

    def run(frame: DataFrame) -> Callable[[], None]:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    scan = run(stored)
    configs = spark.createDataFrame([], BROKER_CONFIGS)
    plan = run(reconcile_changes(stored, topics, brokers, configs))
    skew = run(imbalance(stored, topics, 1, 0.1))
    for warm_up in (scan, plan, skew):
        warm_up()
    baseline = best(scan, rounds)
    yield Figure(
        f"plan one dead broker of 100, {partitions} partitions", "bare Spark scan", best(plan, rounds), baseline
    )
    yield Figure(f"imbalance of {partitions} partitions", "bare Spark scan", best(skew, rounds), baseline)


def _synthetic(spark: SparkSession, partitions: int) -> DataFrame:
    number = F.col("id").cast("int")
    assigned = F.array(*((number + j) % BROKER_COUNT for j in range(3)))
    return (
        spark.range(partitions)
        .select(
            F.lit("bench").alias("cluster"),
            F.lit(1).cast("bigint").alias("snapshot_id"),
            F.concat(F.lit("topic-"), F.floor(number / TOPIC_SIZE).cast("string")).alias("topic"),
            (number % TOPIC_SIZE).alias("partition"),
            assigned.alias("replicas"),
            F.array().cast("array<int>").alias("adding_replicas"),
            F.array().cast("array<int>").alias("removing_replicas"),
            (number % BROKER_COUNT).alias("leader"),
            assigned.alias("isr"),
            F.lit(0).alias("leader_epoch"),
            F.lit(1).alias("controller_epoch"),
            F.lit(0).alias("state_version"),
            F.lit(0).alias("topic_version"),
            F.lit(0).alias("leader_recovery_state"),
            F.lit("Online").alias("partition_state"),
            F.lit(True).alias("understood"),
        )
        .to(PARTITIONS)
    )


@contextmanager
def embedded() -> Iterator[tuple[str, KazooClient]]:
    with (
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
        EmbeddedZooKeeper(Path(folder), heap="2g") as server,
    ):
        client = KazooClient(server.connect, timeout=30)
        client.start()
        try:
            yield server.connect, client
        finally:
            client.stop()
            client.close()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    spark = start_session("surveyor bench")
    with embedded() as (hosts, client), tempfile.TemporaryDirectory(prefix="surveyor-bench-") as warehouse:
        paths = fill(client, options.partitions)
        figures = [
            bench_reading(spark, hosts, client, paths, options.rounds),
            bench_writing(hosts, client, paths),
            *bench_planning(spark, warehouse, options.partitions * 10, options.rounds),
        ]
    rows = [figure.row for figure in figures]
    Console(width=180).print(table("ratios: below 1 is faster than the baseline", list(rows[0]), rows))


if __name__ == "__main__":
    main(sys.argv[1:])
