"""The cost of the decisions after a broker failure: it depends on the affected partitions, not on all partitions.

    python -m bench.deciding 100000,1000000

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
from typing import Final

from bench.clusters.synthetic import BROKER_COUNT, TOPIC_SIZE
from bench.figures import Figure
from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.controller_context import ControllerContext
from jobs.controller.decision_engine import DecisionEngine
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from planner.broker_requests import notices_for
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Broker

CONCERNED: Final = 10_000
VICTIM: Final = 0
TURNS: Final = 12

TARGET: Final = 1.5
"""The cost of ten times the partitions, if the failure concerns as many."""


def bench_deciding(sizes: Sequence[int]) -> Iterator[Figure]:
    """Let a broker fail that has as many partitions in a small cluster as in a large one."""
    small, large = min(sizes), max(sizes)
    affected = min(CONCERNED, small // 10)
    before, of_large, after = (_measure(partitions, affected) for partitions in (small, large, small))
    of = f"a failure concerns {affected:,} of {large:,} partitions"
    yield Figure(f"{of}: decided", of_large, f"{affected:,} of {small:,}", min(before, after), TARGET)


def _measure(partitions: int, affected: int) -> float:
    """Return the seconds to decide and to make the notices."""
    with tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder:
        warehouse = Warehouse(folder, "bench")
        warehouse.ensure_tables()
        engine = DecisionEngine(warehouse, [])
        with progress(f"{partitions:,} partitions are learned"):
            context = _filled_context(partitions, affected)
        return _quickest(engine, context, affected)


def _filled_context(partitions: int, affected: int) -> ControllerContext:
    """Spread leaders and followers over the other brokers; the victim leads a third of its partitions."""
    context = ControllerContext()
    for broker in range(BROKER_COUNT):
        context.brokers[broker] = Broker(broker_id=broker, broker_epoch=broker, endpoints=[], understood=True)
    every = partitions // affected
    for first in range(0, partitions, TOPIC_SIZE):
        name = f"topic-{first // TOPIC_SIZE:05d}"
        rows = [_partition(name, number, first + number, every) for number in range(TOPIC_SIZE)]
        context.put_topic(TopicInfo(topic=name, topic_version=0, topic_id=name, config={}), rows)
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


def _quickest(engine: DecisionEngine, context: ControllerContext, affected: int) -> float:
    victim = context.brokers.pop(VICTIM)
    seconds = []
    for _ in range(TURNS):
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
    for figure in bench_deciding([int(size) for size in sys.argv[1].split(",")]):
        log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
