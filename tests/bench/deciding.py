"""The cost of the decisions after a broker failure: it depends on the affected partitions, not on all partitions.

    python -m tests.bench.deciding 100000,1000000

The context of the resident controller is filled with synthetic partitions of three replicas on 100 brokers, without a
ZooKeeper; one broker has the same number of them at each size. It fails, and leaders, ISRs and notices are decided for
all its partitions. Reading and writing states is left out, as it is the same work at each size. The small cluster is
measured before and after the large one, and is removed while that is measured, because garbage collection depends on
the number of objects. Of all runs at a size the quickest counts, as other work on the machine only adds.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.session import start_session
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.decisions.cache import DecisionCache
from jobs.controller.decisions.engine import DecisionEngine
from jobs.controller.decisions.precompute import MAX_CLASSES
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from planner.broker_requests.notices import notices_for
from tests.bench.clusters.synthetic import BROKER_COUNT, TOPIC_SIZE
from tests.bench.figures import Figure

CONCERNED: Final = 10_000
VICTIM: Final = 0
TURNS: Final = 12

TARGET: Final = 1.5
"""The cost of ten times the partitions, if the failure concerns as many."""


class Spent(NamedTuple):
    """Seconds to decide and to make the notices, with precomputed decisions and with a query."""

    precomputed: float
    by_spark: float


def bench_deciding(spark: SparkSession, sizes: Sequence[int]) -> Iterator[Figure]:
    """Let a broker fail that has as many partitions in a small cluster as in a large one."""
    small, large = min(sizes), max(sizes)
    affected = min(CONCERNED, small // 10)
    before, of_large, after = (_measure(spark, partitions, affected) for partitions in (small, large, small))
    of_small = Spent(*map(min, before, after))
    of = f"a failure concerns {affected:,} of {large:,} partitions"
    baseline = f"{affected:,} of {small:,}"
    yield Figure(f"{of}: decided, as precomputed", of_large.precomputed, baseline, of_small.precomputed, TARGET)
    yield Figure(f"{of}: decided by asking Spark", of_large.by_spark, baseline, of_small.by_spark, TARGET)


def _measure(spark: SparkSession, partitions: int, affected: int) -> Spent:
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        lake = Warehouse(folder, "bench")
        lake.ensure_tables()
        engine = DecisionEngine.of(SparkWarehouse(spark, lake), [], allow_unclean=False)
        with progress(f"{partitions:,} partitions are learned"):
            context = _filled_context(partitions, affected)
        engine.precompute_failure(context, VICTIM, MAX_CLASSES)
        precomputed = _quickest(engine, context, affected, is_precomputed=True)
        return Spent(precomputed, _quickest(engine, context, affected, is_precomputed=False))


def _filled_context(partitions: int, affected: int) -> ControllerContext:
    """Spread leaders and followers over the other brokers; the victim leads a third of its partitions."""
    context = ControllerContext()
    for broker in range(BROKER_COUNT):
        context.brokers[broker] = {"broker_id": broker, "broker_epoch": broker, "understood": True, "endpoints": []}
    every = partitions // affected
    for first in range(0, partitions, TOPIC_SIZE):
        name = f"topic-{first // TOPIC_SIZE:05d}"
        topic = {"topic": name, "topic_version": 0, "topic_id": name, "config": {}, "understood": True}
        rows = [_partition(name, number, first + number, every) for number in range(TOPIC_SIZE)]
        context.put_topic(topic | {"deletion_requested": False}, rows)
    assert len(context.of_broker(VICTIM)) == affected, len(context.of_broker(VICTIM))
    return context


def _partition(topic: str, number: int, count: int, every: int) -> PartitionInfo:
    others = BROKER_COUNT - 1
    replicas = [1 + (count // every + step) % others for step in range(3)]
    if count % every == 0:
        replicas[count // every % 3] = VICTIM
    return PartitionInfo(
        topic=topic,
        partition=number,
        replicas=replicas,
        adding_replicas=[],
        removing_replicas=[],
        topic_version=0,
        understood=True,
        leader=replicas[0],
        isr=replicas,
        leader_epoch=count,
        controller_epoch=1,
        state_version=count,
        leader_recovery_state=0,
    )


def _quickest(engine: DecisionEngine, context: ControllerContext, affected: int, *, is_precomputed: bool) -> float:
    victim = context.brokers.pop(VICTIM)
    seconds = []
    for _ in range(TURNS):
        if not is_precomputed:
            engine.cache = DecisionCache()
        gc.collect()
        started = time.perf_counter()
        decided = engine.decide(context, context.of_broker(VICTIM), deletions=False)
        notices = notices_for(decided.changes, context.live)
        seconds.append(time.perf_counter() - started)
        assert len(decided.changes) == affected <= len(notices), (len(decided.changes), len(notices))
        del decided, notices
    context.brokers[VICTIM] = victim
    return min(seconds)


if __name__ == "__main__":
    for figure in bench_deciding(start_session("surveyor bench", {}), [int(size) for size in sys.argv[1].split(",")]):
        log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
