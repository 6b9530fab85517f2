"""The cost of a broker failure for the resident controller, from the lost registration to the last response.

    python -m bench.failure 100000,1000000

On an embedded ZooKeeper with as many partitions, and 100 brokers that respond at once. The controller is the one of
`surveyor control`, cycle by cycle: it reads, decides, writes under the fence, and sends requests. Three brokers fail
one after another, each with the same number of partitions at each size, of which it leads a third. The quickest of the
three counts, as other work on the machine only adds.
The take-over is left out, whose cost depends on the size of the cluster, and so is the full state sent then.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kazoo.client import KazooClient

from bench.clusters.synthetic import BROKER_COUNT, TOPIC_SIZE, Place, cluster
from bench.figures import Figure
from bench.notification import instant_brokers
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import controllership
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.controller.controller import ResidentController
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.write_behind import WriteBehindLog
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from schemas.rows import Snapshot

CONCERNED: Final = 10_000
VICTIMS: Final = range(3)

TARGET: Final = 1.5
"""The cost of ten times the partitions, if the failure concerns as many."""

_OURS: Final = 2147483647


class Spent(NamedTuple):
    """Seconds until all changes are written, leaders first, and until all brokers have responded."""

    written: float
    sent: float


def bench_failure(sizes: Sequence[int]) -> Iterator[Figure]:
    """Let a broker fail that has as many partitions in a small cluster as in a large one."""
    small, large = min(sizes), max(sizes)
    affected = min(CONCERNED, small // 10)
    of_small, of_large = (_measure(partitions, affected) for partitions in (small, large))
    of = f"a failure concerns {affected:,} of {large:,} partitions"
    for event, slow, quick in zip(("all is written", "all is sent"), of_large, of_small, strict=True):
        yield Figure(f"{of}: {event}", slow, f"{affected:,} of {small:,}", quick, TARGET)


def _measure(partitions: int, affected: int) -> Spent:
    with (
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as folder,
        cluster(partitions, _placement(partitions // affected)) as synthetic,
        instant_brokers(BROKER_COUNT) as ports,
        controllership(ZooKeeperEndpoint(synthetic.hosts), _OURS) as control,
    ):
        synthetic.listen(ports)
        warehouse = Warehouse(folder, "bench")
        warehouse.ensure_tables()
        engine = DecisionEngine(warehouse, [])
        log_writer = WriteBehindLog(warehouse)
        log_writer.start()
        snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id="bench")
        controller = ResidentController(control, engine, log_writer, snapshot, log)
        with progress(f"{partitions:,} partitions are read"):
            controller.reader.load_all()
        gc.collect()
        gc.freeze()
        try:
            _run_until_idle(controller)
            turns = [_failure(controller, synthetic.client, victim, affected) for victim in VICTIMS]
        finally:
            gc.unfreeze()
            controller.stop()
            log_writer.close()
    return Spent(*map(min, zip(*turns, strict=True)))


def _placement(every: int) -> Place:
    """Each victim is on one of so many partitions, and leads every third of these; the others are spread evenly."""
    others = BROKER_COUNT - len(VICTIMS)

    def place(topic: int, partition: int) -> list[int]:
        count = topic * TOPIC_SIZE + partition
        turn, victim = divmod(count, every)
        replicas = [len(VICTIMS) + (turn + step) % others for step in range(3)]
        if victim in VICTIMS:
            replicas[turn % 3] = victim
        return replicas

    return place


def _run_until_idle(controller: ResidentController) -> None:
    while controller.cycle() or controller.broker_requests.channels.busy:
        pass


def _failure(controller: ResidentController, client: KazooClient, victim: int, affected: int) -> Spent:
    context = controller.context
    assert len(context.of_broker(victim)) == affected, len(context.of_broker(victim))
    written = controller.summary.by_action.total()
    client.delete(f"/brokers/ids/{victim}")
    started = time.perf_counter()
    all_written = 0.0
    while not all_written or controller.broker_requests.channels.busy:
        controller.cycle()
        if not all_written and controller.summary.by_action.total() - written == affected:
            all_written = time.perf_counter() - started
    spent = Spent(all_written, time.perf_counter() - started)
    log(f"  written after {spent.written:.3f} s, sent after {spent.sent:.3f} s")
    return spent


if __name__ == "__main__":
    for figure in bench_failure([int(size) for size in sys.argv[1].split(",")]):
        log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
