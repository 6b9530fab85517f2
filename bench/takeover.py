"""Taking over from a controller that died, on real brokers: Kafka's fail-over, then `surveyor control`.

Of three brokers the one that is the controller is killed, and so leads a third of the partitions no more; another is
stopped for as long as this takes. Kafka's fail-over is the third broker's. `surveyor control` has made ready before, as
far as its question, and is answered once both others are stopped. From the znode /controller to the first state that is
written under the new epoch, by ZooKeeper's own clock.

    python -m bench.takeover 12000
"""

import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from bench.clusters.real_brokers import (
    HEAP,
    MILLISECOND,
    OURS,
    TIMEOUT_SECONDS,
    controller,
    healed,
    read_states,
    three_brokers,
    until,
    written_at,
)
from bench.figures import Figure
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.addresses import LOOPBACK
from jobs.runtime.console import log as print_log
from jobs.runtime.progress import progress
from schemas.znode_codecs import TopicPartition, decode_state

QUESTION: Final = "become the controller of this cluster?"

TARGET: Final = 0.2


def bench_takeover(partitions: int) -> Iterator[Figure]:
    """Take over from a dead controller: a broker does, then we do."""
    with three_brokers(partitions, HEAP) as (cluster, client, places):
        dead, other, _ = _roles(cluster, client)
        with _stopped([other]):
            _killed(dead)
            until(lambda: controller(client) not in {None, dead.broker_id}, 0.01)
            kafkas = _until_first_write(client, places, dead)
        with progress("the broker comes back"):
            dead.start()
            dead.wait_ready(TIMEOUT_SECONDS)
            healed(client, places)
        dead, other, third = _roles(cluster, client)
        with (
            tempfile.TemporaryDirectory() as folder,
            _made_ready(cluster, Path(folder)) as answer,
            _stopped([other, third]),
        ):
            _killed(dead)
            os.write(answer, b"y\n")
            until(lambda: controller(client) == OURS, 0.01)
            ours = _until_first_write(client, places, dead)
    yield Figure(
        f"take-over from a dead controller, {partitions:,} partitions: first state written",
        ours,
        "Kafka's fail-over",
        kafkas,
        TARGET,
    )


def _roles(cluster: EmbeddedCluster, client: KazooClient) -> list[EmbeddedKafka]:
    """The broker that is the controller, and the others."""
    until(lambda: controller(client) in cluster.brokers, 0.1)
    now = controller(client)
    return sorted(cluster.brokers.values(), key=lambda broker: (broker.broker_id != now, broker.broker_id))


def _killed(broker: EmbeddedKafka) -> None:
    broker.kill()
    broker.expire()


@contextmanager
def _stopped(brokers: Sequence[EmbeddedKafka]) -> Iterator[None]:
    """They neither take over nor take processors; their sessions outlast this."""
    pids = [broker.pid for broker in brokers if broker.pid is not None]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _until_first_write(client: KazooClient, places: Sequence[TopicPartition], dead: EmbeddedKafka) -> float:
    """Seconds from /controller to the first state under its epoch."""
    stat = read(client, "/controller").stat
    assert stat is not None
    epoch = int(client.get("/controller_epoch")[0])
    led = [place for place in places if place.partition % 3 == dead.broker_id]
    times: list[float] = []

    def is_written() -> bool:
        znodes = read_states(client, led)
        times[:] = written_at([z for z in znodes if z.data and decode_state(z.data).controller_epoch == epoch])
        return bool(times)

    until(is_written, 0.1)
    seconds: float = min(times) - stat.ctime * MILLISECOND
    print_log(f"  first state written {seconds:.3f} s after /controller")
    return seconds


@contextmanager
def _made_ready(cluster: EmbeddedCluster, folder: Path) -> Iterator[int]:
    """`surveyor control` at its question; yields where to answer it."""
    ours, terminal = pty.openpty()
    log = folder / "control.log"
    command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--listen", f"{LOOPBACK}:{free_port()}"]
    where = ["--zookeeper", cluster.zookeeper_server.connect, "--warehouse", str(folder / "w")]
    with log.open("w") as out, subprocess.Popen([*command, *where], stdin=terminal, stdout=out, stderr=out) as process:
        try:
            with progress("surveyor control is made ready"):
                until(lambda: QUESTION in log.read_text() or process.poll() is not None, 0.2)
            yield ours
        finally:
            print_log(log.read_text()[-1000:])
            process.terminate()
            process.wait(60)
            os.close(ours)
            os.close(terminal)


if __name__ == "__main__":
    for size in map(int, sys.argv[1:]):
        for figure in bench_takeover(size):
            print_log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
