"""The other parts: writing in fenced multis, and planning against a bare scan of the same table."""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.adapters.controllership import Controllership, controllership
from jobs.adapters.lake import Lake
from jobs.console import progress
from planner.imbalance import imbalance
from planner.reconcile import reconcile_changes
from schemas.tables import BROKER_CONFIGS, BROKERS, PARTITIONS, TOPICS
from tests.bench.cluster import BROKER_COUNT, MULTI_SIZE, TOPIC_SIZE, Cluster, state
from tests.bench.figures import Figure, best, seconds_of

WRITTEN: Final = 5000


def bench_writing(cluster: Cluster) -> Figure:
    """Write states in multis of 400, and one multi a state, each under the fence."""
    paths = list(islice(cluster.state_paths(), WRITTEN))
    with controllership(cluster.hosts, controller_id=2147483647) as control:
        return Figure(
            measured=f"write {len(paths):,} states, {MULTI_SIZE} in a fenced multi",
            seconds=seconds_of(lambda: _write(control, paths, MULTI_SIZE)),
            baseline="one in a fenced multi (as Kafka does), pipelined",
            baseline_seconds=seconds_of(lambda: _write(control, paths, 1)),
        )


def _write(control: Controllership, paths: Sequence[str], size: int) -> None:
    pending: deque[Any] = deque()
    for start in range(0, len(paths), size):
        multi = control.transaction()
        for path in paths[start : start + size]:
            multi.set_data(path, state(0))
        pending.append(multi.commit_async())
    for answer in pending:
        answer.get()


def bench_planning(spark: SparkSession, partitions: int, rounds: int) -> list[Figure]:
    """One of 100 brokers dead: plan what is due, and the imbalance, against a bare scan of the same table."""
    with (
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as warehouse,
        progress(f"planning {partitions:,} partitions"),
    ):
        stored = _stored(spark, Lake(warehouse, "bench"), partitions)
        return list(_against_scan(spark, stored, partitions, rounds))


def _against_scan(spark: SparkSession, stored: DataFrame, partitions: int, rounds: int) -> Iterator[Figure]:
    topics, configs = _topics(stored), spark.createDataFrame([], BROKER_CONFIGS)
    scan = _run(stored)
    plan = _run(reconcile_changes(stored, topics, _brokers(spark), configs))
    skew = _run(imbalance(stored, topics, 1, 0.1))
    for warm_up in (scan, plan, skew):
        warm_up()
    baseline = best(scan, rounds)
    for measured, work in (("plan one dead broker of 100", plan), ("imbalance", skew)):
        yield Figure(f"{measured}, {partitions:,} partitions", best(work, rounds), "bare Spark scan", baseline)


def _run(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _brokers(spark: SparkSession) -> DataFrame:
    alive: list[tuple[Any, ...]] = [
        ("bench", 1, broker, broker, 0, "h", 1, [], None, True) for broker in range(1, BROKER_COUNT)
    ]
    return spark.createDataFrame(alive, BROKERS)


def _topics(stored: DataFrame) -> DataFrame:
    return (
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


def _stored(spark: SparkSession, lake: Lake, partitions: int) -> DataFrame:
    lake.ensure_tables()
    _synthetic(spark, partitions).write.format("delta").mode("append").save(lake.path("partitions"))
    return spark.read.format("delta").load(lake.path("partitions"))


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
