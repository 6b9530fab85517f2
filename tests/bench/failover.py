"""The same failure side by side, on real brokers: Kafka's own controller, then `surveyor control`.

Of three brokers one is killed with SIGKILL. From its vanished registration until others lead what it led, and
until it is in no ISR any more, by ZooKeeper's own clock. Both controllers work for the same brokers at the same
settings, one after the other, and share the processors with them.
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

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.runtime.console import log as print_log
from jobs.runtime.progress import progress
from schemas.znodes import TopicPartition
from tests.bench.clusters.real_brokers import (
    HEAP,
    PATIENCE,
    SETTINGS,
    controller,
    healed,
    made,
    read_states,
    states,
    until,
    written_at,
)
from tests.bench.figures import Figure

VICTIM: Final = 2

TARGETS: Final = {6_000: (0.7, 0.3), 12_000: (0.4, 0.2)}
"""Shares of Kafka's time, for leaders and for ISRs, by partitions."""


class Outage(NamedTuple):
    """Seconds from the vanished registration until no partition is led by it, and until it is in no ISR."""

    leaders: float
    isrs: float


def bench_failover(partitions: int) -> Iterator[Figure]:
    """Kill a broker under Kafka's controller, and again under ours."""
    with (
        EmbeddedCluster(3, overrides=SETTINGS, heap=HEAP) as cluster,
        connected(ZooKeeperEndpoint(cluster.zookeeper.connect)) as client,
    ):
        with progress(f"{partitions:,} partitions are made"):
            places = made(client, partitions)
            healed(client, places)
        let_another_control(client)
        kafkas = _outage(cluster, client, places)
        _heal(cluster, client, places)
        with tempfile.TemporaryDirectory() as folder, running_controller(cluster, Path(folder)):
            ours = _outage(cluster, client, places)
            _heal(cluster, client, places)
            idle = _idle(folder)
    leaders, isrs = TARGETS.get(partitions, (None, None))
    of = f"one of 3 brokers is killed, {partitions:,} partitions of 3 replicas"
    yield Figure(f"{of}: all leaders moved", ours.leaders, "Kafka's controller", kafkas.leaders, leaders)
    yield Figure(f"{of}: all ISRs shrunk", ours.isrs, "Kafka's controller", kafkas.isrs, isrs)
    yield Figure(f"surveyor control, idle, {partitions:,} partitions", idle, "one core", 1.0, 0.03)


def _outage(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> Outage:
    of_victim = [place for place in places if place.partition % 3 == VICTIM]
    cluster.brokers[VICTIM].kill()
    vanished = _last_seen(client, f"/brokers/ids/{VICTIM}")
    for some in (places[::100], places):  # few at first, as looking takes processors, too
        until(lambda some=some: all(state and VICTIM not in state.isr for _, state in states(client, some)), 0.5)  # type: ignore[misc]
    led, all_of_them = (max(written_at(read_states(client, some))) - vanished for some in (of_victim, places))
    outage = Outage(led, all_of_them)
    print_log(f"  leaders moved after {outage.leaders:.2f} s, ISRs shrunk after {outage.isrs:.2f} s")
    return outage


def _last_seen(client: KazooClient, path: str) -> float:
    """Wait until a znode is gone; return the last time at which it existed, so that slow polling is no gain."""
    seen = before = time.time()
    while client.exists(path) is not None:
        seen = before
        time.sleep(0.002)
        before = time.time()
    return seen


def _heal(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> None:
    with progress("the broker comes back"):
        cluster.brokers[VICTIM].start()
        cluster.brokers[VICTIM].wait_ready(PATIENCE)
        healed(client, places)


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
    command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--yes"]
    where = ["--zookeeper", cluster.zookeeper.connect, "--warehouse", str(folder / "w")]
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
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _idle(folder: str, seconds: float = 30.0) -> float:
    """The share of one core that the controller takes while nothing happens."""
    time.sleep(60.0)
    pid = int((Path(folder) / "pid").read_text())
    before = _cpu(pid)
    time.sleep(seconds)
    return (_cpu(pid) - before) / seconds


def _cpu(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.parent.name, stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    for size in map(int, sys.argv[1:]):
        for figure in bench_failover(size):
            print_log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
