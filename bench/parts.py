"""The other parts: writing in fenced multis, and planning against a bare scan of the same table."""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, islice
from operator import attrgetter
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.clusters.synthetic import BROKER_COUNT, TOPIC_SIZE, Cluster, replicas, state
from bench.figures import Figure, median_of, seconds_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.cluster_state import CONTROLLER_EPOCH
from jobs.adapters.zookeeper.controllership import Controllership, controllership
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.planning.plan_draft import PlanDraft, make_plan
from jobs.planning.planning_tables import PlanningTables
from jobs.planning.reconcile import plan_reconcile
from jobs.runtime.pace import DEFAULT
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from planner.leadership.imbalance import imbalance
from schemas.tables import PARTITIONS, SPARK_SCHEMAS, TOPICS

WRITTEN: Final = 5000

MILLION: Final = 1_000_000

SCAN: Final = "bare Spark scan"

WARM_UPS: Final = 10
"""How often each is run before it is measured: in its first ten plans the JVM compiles for longer than it plans."""

TARGETS: Final = {"plan one dead broker of 100, stored": 3.0, "imbalance": 2.0}
"""What planning may take at most, in bare scans of a million partitions; a plan has fixed costs, whatever its size."""


def bench_writing(cluster: Cluster) -> Figure:
    """Write states in multis as large as a commit's, and one multi a state, each under the fence."""
    paths = list(islice(cluster.state_paths(), WRITTEN))
    with controllership(ZooKeeperEndpoint(cluster.hosts), controller_id=2147483647) as control:
        return Figure(
            measured=f"write {len(paths):,} states, {DEFAULT.batch_changes:,} in a fenced multi",
            seconds=seconds_of(lambda: _write(control, paths, DEFAULT.batch_changes)),
            baseline="one in a fenced multi (as Kafka does), pipelined",
            baseline_seconds=seconds_of(lambda: _write(control, paths, 1)),
        )


def _write(control: Controllership, paths: Sequence[str], size: int) -> None:
    pending: deque[Any] = deque()
    for start in range(0, len(paths), size):
        multi = control.client.transaction()
        multi.check(CONTROLLER_EPOCH, control.epoch_version)
        for path in paths[start : start + size]:
            multi.set_data(path, state(replicas(0)))
        pending.append(multi.commit_async())
    for answer in pending:
        answer.get()


def bench_planning(spark: SparkSession, partitions: int, rounds: int) -> list[Figure]:
    """One of 100 brokers dead: `plan reconcile`, stored, and the imbalance, against a bare scan of the same table."""
    with (
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
        progress(f"planning {partitions:,} partitions"),
    ):
        settings = Settings("bench", folder, ClusterConf())
        stored = _stored(spark, settings.warehouse, partitions)
        _snapshot(settings.warehouse, stored)
        return list(_against_scan(settings, stored, partitions, rounds))


def _against_scan(settings: Settings, stored: DataFrame, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure the scan as often as what it is compared with, by turns: a shared machine's speed drifts.

    For the same reason the turn with the median ratio counts: the least times of each may be of different turns.
    """
    topics = stored.sparkSession.read.format("delta").load(settings.warehouse.path("topics"))
    numbers = count()
    works: dict[str, Callable[[], object]] = {
        SCAN: _run(stored),
        "plan one dead broker of 100, stored": lambda: _stored_plan(settings, next(numbers)),
        "imbalance": _run(imbalance(stored, topics, 1, 0.1)),
    }
    for warm_up in [*works.values()] * WARM_UPS:
        warm_up()
    turns = [{name: seconds_of(work) for name, work in works.items()} for _ in range(rounds)]
    for measured, target in TARGETS.items():
        limit = target if partitions >= MILLION else None
        figures = [Figure(f"{measured}, {partitions:,} partitions", t[measured], SCAN, t[SCAN], limit) for t in turns]
        yield median_of(figures, attrgetter("ratio"))


def _stored_plan(settings: Settings, number: int) -> None:
    """Plan and store; another parameter each time, for a plan that is known is not written again."""

    def planner(tables: PlanningTables) -> PlanDraft:
        due = plan_reconcile(tables)
        return replace(due, parameters={**due.parameters, "round": number})

    made = make_plan(settings, PlanOptions(), planner)
    assert made["changes"], "a dead broker, and nothing to do"


def _run(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _snapshot(warehouse: Warehouse, stored: DataFrame) -> None:
    """Store what else belongs to a snapshot: the live brokers, the topics, and the row that names the versions."""
    brokers = (
        {"broker_id": n, "broker_epoch": n, "snapshot_id": 1, "understood": True} for n in range(1, BROKER_COUNT)
    )
    warehouse.replace("brokers", list(brokers))
    _topics(stored).write.format("delta").mode("append").save(warehouse.path("topics"))
    versions = {name: warehouse.version(name) for name in SPARK_SCHEMAS}
    row = {"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": versions}
    warehouse.replace("snapshots", [{**row, "controller_epoch": 1, "controller_epoch_version": 0}])


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
    )


def _stored(spark: SparkSession, warehouse: Warehouse, partitions: int) -> DataFrame:
    warehouse.ensure_tables()
    _synthetic(spark, partitions).write.format("delta").mode("append").save(warehouse.path("partitions"))
    return spark.read.format("delta").load(warehouse.path("partitions"))


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
