"""The same failure side by side, on real brokers: Kafka's own controller, then `surveyor control`.

Of three brokers one is killed with SIGKILL. From the moment its registration vanishes, an outside watcher reads
ZooKeeper until others lead what it led, and until it is in no ISR any more. Both controllers work for the same brokers
at the same settings, one after the other, and share the processors with them.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kazoo.client import KazooClient

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.connection import connected, read
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.runtime.console import say
from jobs.runtime.progress import progress
from schemas.znodes import (
    Assignment,
    State,
    TopicPartition,
    decode_controller,
    decode_state,
    encode_assignment,
    encode_partitions,
)
from tests.bench.figures import Figure

SETTINGS: Final = {"inter.broker.protocol.version": "2.6", "controlled.shutdown.enable": "false"}
OURS: Final = 2147483647
VICTIM: Final = 2
TOPIC_SIZE: Final = 100
PATIENCE: Final = 600.0

TARGETS: Final = {6_000: (0.7, 0.3), 12_000: (0.4, 0.2)}
"""Shares of Kafka's time, for leaders and for ISRs, by partitions."""


class Outage(NamedTuple):
    """Seconds from the vanished registration until no partition is led by it, and until it is in no ISR."""

    leaders: float
    isrs: float


def bench_failover(partitions: int) -> Iterator[Figure]:
    """Kill a broker under Kafka's controller, and again under ours."""
    with EmbeddedCluster(3, overrides=SETTINGS) as cluster, connected(cluster.zookeeper.connect) as client:
        with progress(f"{partitions:,} partitions are made"):
            places = _made(client, partitions)
            _healed(client, places)
        _let_another_control(client)
        kafkas = _outage(cluster, client, places)
        _heal(cluster, client, places)
        with tempfile.TemporaryDirectory() as folder, _in_office(cluster, Path(folder)):
            ours = _outage(cluster, client, places)
            _heal(cluster, client, places)
            idle = _idle(folder)
    leaders, isrs = TARGETS.get(partitions, (None, None))
    of = f"one of 3 brokers is killed, {partitions:,} partitions of 3 replicas"
    yield Figure(f"{of}: all leaders moved", ours.leaders, "Kafka's controller", kafkas.leaders, leaders)
    yield Figure(f"{of}: all ISRs shrunk", ours.isrs, "Kafka's controller", kafkas.isrs, isrs)
    yield Figure(f"surveyor control, idle, {partitions:,} partitions", idle, "one core", 1.0, 0.03)


def _made(client: KazooClient, partitions: int) -> list[TopicPartition]:
    """Write topics as brokers do that create them; the controller makes their first leaders."""
    places = []
    for number in range(partitions // TOPIC_SIZE):
        topic = f"topic-{number:03d}"
        replicas = {p: [(p + j) % 3 for j in range(3)] for p in range(TOPIC_SIZE)}
        client.create(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
        client.create(f"/brokers/topics/{topic}", encode_assignment(Assignment(replicas, {}, {}, None)))
        places += [TopicPartition(topic, partition) for partition in replicas]
    return places


def _states(client: KazooClient, places: Sequence[TopicPartition]) -> list[State | None]:
    paths = [f"/brokers/topics/{place.topic}/partitions/{place.partition}/state" for place in places]
    return [None if znode.data is None else decode_state(znode.data) for znode in read_many(client, paths)]


def _until(holds: Callable[[], bool], pause: float = 0.02) -> float:
    """Wait; return when it was."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s")
        time.sleep(pause)
    return time.monotonic()


def _until_each(client: KazooClient, places: Sequence[TopicPartition], holds: Callable[[State], bool]) -> float:
    """Wait until it has held for each; look no more at those for which it has, as looking takes the same processors."""
    left = list(places)

    def none_left() -> bool:
        states = zip(left, _states(client, left), strict=True)
        left[:] = [place for place, state in states if state is None or not holds(state)]
        return not left

    return _until(none_left)


def _healed(client: KazooClient, places: Sequence[TopicPartition]) -> None:
    """Wait until everything is in sync and led by its preferred replica."""

    def whole() -> bool:
        return all(state is not None and len(state.isr) == 3 for state in _states(client, places))

    _until(whole, 1.0)
    led = dict(zip(places, _states(client, places), strict=True))
    astray = [place for place, state in led.items() if state is not None and state.leader != place.partition % 3]
    if astray:
        client.create("/admin/preferred_replica_election", encode_partitions(astray))
        _until(lambda: client.exists("/admin/preferred_replica_election") is None, 0.5)
        _until(lambda: all(s is not None and s.leader == p.partition % 3 for p, s in _led(client, places)), 0.5)
    time.sleep(5.0)  # brokers go on telling each other for a moment


def _led(client: KazooClient, places: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, State | None]]:
    return zip(places, _states(client, places), strict=True)


def _outage(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> Outage:
    of_victim = [place for place in places if place.partition % 3 == VICTIM]
    cluster.brokers[VICTIM].kill()
    vanished = _until(lambda: client.exists(f"/brokers/ids/{VICTIM}") is None, 0.002)
    leaders = _until_each(client, of_victim, lambda state: state.leader not in {VICTIM, -1})
    isrs = _until_each(client, places, lambda state: VICTIM not in state.isr)
    found = Outage(leaders - vanished, isrs - vanished)
    say(f"  leaders moved after {found.leaders:.2f} s, ISRs shrunk after {found.isrs:.2f} s")
    return found


def _heal(cluster: EmbeddedCluster, client: KazooClient, places: Sequence[TopicPartition]) -> None:
    with progress("the broker comes back"):
        cluster.brokers[VICTIM].start()
        cluster.brokers[VICTIM].wait_ready(PATIENCE)
        _healed(client, places)


def _controller(client: KazooClient) -> int | None:
    data = read(client, "/controller").data
    return None if data is None else decode_controller(data).broker_id


def _let_another_control(client: KazooClient) -> None:
    """Move the controllership until a broker has it that is not to be killed."""
    while (now := _controller(client)) is None or now == VICTIM:
        if now is not None:
            client.delete("/controller")
        time.sleep(1.0)
    time.sleep(5.0)  # it announces everything first


@contextmanager
def _in_office(cluster: EmbeddedCluster, folder: Path) -> Iterator[None]:
    log = folder / "control.log"
    command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--yes"]
    where = ["--zookeeper", cluster.zookeeper.connect, "--warehouse", str(folder / "w")]
    with log.open("w") as out, subprocess.Popen([*command, *where], stdout=out, stderr=out) as process:
        (folder / "pid").write_text(str(process.pid))
        try:
            with progress("surveyor control takes office"):
                _until(lambda: "  read " in log.read_text() or process.poll() is not None, 0.2)
            if process.poll() is not None:
                raise RuntimeError("surveyor control has ended")
            time.sleep(10.0)  # everybody is told everything first
            yield
        finally:
            say(log.read_text()[-1000:])
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _idle(folder: str, seconds: float = 30.0) -> float:
    """The share of one core that the controller's processes, its JVM too, take while nothing happens."""
    time.sleep(10.0)
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
            say(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.2f}")
