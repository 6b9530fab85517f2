"""The same failure side by side, on real brokers: Kafka's own controller, then `surveyor control`.

Of three brokers one is killed with SIGKILL. From its vanished registration until others lead what it led, and
until it is in no ISR any more, by ZooKeeper's own clock. Then it comes back: from its registration until it is in every
ISR, each of which its leader asks the controller for. Then it shuts down in a controlled way: from SIGTERM until others
lead what it led. Both controllers work for the same brokers at their defaults, one after the other, and share the
processors with them.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kazoo.client import KazooClient

from bench.clusters.real_brokers import (
    HEAP,
    MILLISECOND,
    TIMEOUT_SECONDS,
    controller,
    healed,
    read_states,
    states,
    three_brokers,
    until,
    written_at,
)
from bench.figures import Figure, processor_seconds
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port
from jobs.core.addresses import LOOPBACK
from jobs.runtime.console import log as print_log
from jobs.runtime.progress import progress
from schemas.znode_codecs import TopicPartition

VICTIM: Final = 2

TARGETS: Final = {6_000: (0.3, 0.25), 12_000: (0.3, 0.2)}
"""Shares of Kafka's time, for leaders and for ISRs, by partitions."""

BACK_TARGET, SHUTDOWN_TARGET, IDLE_TARGET = 1.0, 0.5, 0.01


class Outage(NamedTuple):
    """Seconds from the vanished registration until no partition is led by it, and until it is in no ISR; from its new
    registration until it is in every ISR; and from SIGTERM until it leads nothing.
    """

    leaders: float
    isrs: float
    back: float
    shutdown: float


def bench_failover(partitions: int) -> Iterator[Figure]:
    """Kill a broker under Kafka's controller, and again under ours."""
    with three_brokers(partitions, HEAP) as (cluster, client, places):
        let_another_control(client)
        kafkas = _outage(cluster, client, places)
        with tempfile.TemporaryDirectory() as folder, running_controller(cluster, Path(folder)):
            ours = _outage(cluster, client, places)
            idle = _idle(folder)
    leaders, isrs = TARGETS.get(partitions, (None, None))
    of = f"one of 3 brokers is killed, {partitions:,} partitions of 3 replicas"
    yield Figure(f"{of}: all leaders moved", ours.leaders, "Kafka's controller", kafkas.leaders, leaders)
    yield Figure(f"{of}: all ISRs shrunk", ours.isrs, "Kafka's controller", kafkas.isrs, isrs)
    back = f"the broker comes back, {partitions:,} partitions: every ISR full"
    yield Figure(back, ours.back, "Kafka's controller", kafkas.back, BACK_TARGET)
    shutdown = f"a broker that leads {partitions // 3:,} shuts down: all leaders moved"
    yield Figure(shutdown, ours.shutdown, "Kafka's controller", kafkas.shutdown, SHUTDOWN_TARGET)
    yield Figure(f"surveyor control, idle, {partitions:,} partitions", idle, "one core", 1.0, IDLE_TARGET)


def _outage(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> Outage:
    of_victim = [place for place in places if place.partition % 3 == VICTIM]
    cluster.brokers[VICTIM].kill()
    vanished = _last_seen(client, f"/brokers/ids/{VICTIM}")
    for some in (places[::100], places):  # few at first, as looking takes processors, too
        until(lambda some=some: all(state and VICTIM not in state.isr for _, state in states(client, some)), 0.5)  # type: ignore[misc]
    led, all_of_them = (max(written_at(read_states(client, some))) - vanished for some in (of_victim, places))
    back = _back(cluster, client, places)
    outage = Outage(led, all_of_them, back, _shutdown(cluster, client, places))
    print_log(
        f"  leaders moved after {outage.leaders:.2f} s, ISRs shrunk after {outage.isrs:.2f} s, full again after "
        f"{outage.back:.2f} s; shut down after {outage.shutdown:.2f} s"
    )
    return outage


def _back(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> float:
    """Start the broker; return the seconds until it is in every ISR, after which everything is as before."""
    with progress("the broker comes back"):
        cluster.brokers[VICTIM].start()
        registration = f"/brokers/ids/{VICTIM}"
        until(lambda: client.exists(registration) is not None, 0.2)
        since = client.exists(registration).ctime * MILLISECOND
        until(lambda: all(state and VICTIM in state.isr for _, state in states(client, places)), 1.0)
        seconds: float = max(written_at(read_states(client, places))) - since
        cluster.brokers[VICTIM].wait_ready(TIMEOUT_SECONDS)
        healed(client, places)
    return seconds


def _shutdown(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> float:
    """Shut the broker down; return the seconds until it leads nothing, after which everything is as before."""
    pid = cluster.brokers[VICTIM].pid
    assert pid is not None
    since = time.time()
    os.kill(pid, signal.SIGTERM)
    until(lambda: all(state and state.leader != VICTIM for _, state in states(client, places)), 0.5)
    of_victim = [place for place in places if place.partition % 3 == VICTIM]
    seconds: float = max(written_at(read_states(client, of_victim))) - since
    until(lambda: not cluster.brokers[VICTIM].is_running(), 0.5)
    _back(cluster, client, places)
    return seconds


def _last_seen(client: KazooClient, path: str) -> float:
    """Wait until a znode is gone; return the last time at which it existed, so that slow polling is no gain."""
    last = before = time.time()
    while client.exists(path) is not None:
        last = before
        time.sleep(0.002)
        before = time.time()
    return last


def let_another_control(client: KazooClient) -> None:
    """Move the controllership until a broker has it that is not to be killed."""
    while (now := controller(client)) is None or now == VICTIM:
        if now is not None:
            client.delete("/controller")
        time.sleep(1.0)
    time.sleep(5.0)  # it announces everything first


@contextmanager
def running_controller(cluster: EmbeddedCluster, folder: Path) -> Iterator[None]:
    log = folder / "control.log"
    listen = f"{LOOPBACK}:{free_port()}"
    command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--yes", "--listen", listen]
    where = ["--zookeeper", cluster.zookeeper_server.connect, "--warehouse", str(folder / "w")]
    with log.open("w") as out, subprocess.Popen([*command, *where], stdout=out, stderr=out) as process:
        (folder / "pid").write_text(str(process.pid))
        try:
            with progress("surveyor control becomes the controller"):
                until(lambda: "  read " in log.read_text() or process.poll() is not None, 0.2)
            if process.poll() is not None:
                raise RuntimeError("surveyor control has ended")
            time.sleep(10.0)  # all brokers first receive the full state
            yield
        finally:
            print_log(log.read_text()[-1000:])
            process.terminate()
            process.wait(60)


def _idle(folder: str, seconds: float = 30.0) -> float:
    """The share of one core that the controller takes while nothing happens."""
    time.sleep(60.0)
    pid = int((Path(folder) / "pid").read_text())
    before = processor_seconds(pid)
    time.sleep(seconds)
    return (processor_seconds(pid) - before) / seconds


if __name__ == "__main__":
    for size in map(int, sys.argv[1:]):
        for figure in bench_failover(size):
            print_log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
