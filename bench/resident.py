"""`surveyor control` alone: how soon it or its standby is ready, its memory, and what it costs while nothing happens.

    python -m bench.resident

On an embedded ZooKeeper with synthetic znodes, and 100 brokers that answer at once. From the start of the process until
all brokers have been sent the full state, and from /controller until then, by the machine's one clock.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.clusters.real_brokers import MILLISECOND, until
from bench.clusters.synthetic import BROKER_COUNT, Cluster, cluster
from bench.figures import Figure, processor_seconds
from bench.notification import instant_brokers
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import end_session
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.addresses import LOOPBACK
from jobs.runtime.console import log as print_log
from jobs.runtime.progress import progress

READY_PARTITIONS, MEMORY_PARTITIONS, FAILOVER_PARTITIONS = 6_000, 100_000, 275_000

READY_TARGET: Final = 2.0
"""The largest share of the time in which Python starts and imports the modules of the command."""

TURNS: Final = 3
"""Starts of which the fastest counts, of Python, too."""

MEMORY_BUDGET: Final = 400.0
"""Megabytes."""

LINKEDIN_SECONDS: Final = 64.8
"""Seconds of Kafka's fail-over at LinkedIn with 275,000 partitions."""

LINKEDIN_TARGET: Final = 0.1

STANDBY_SECONDS: Final = 1.0
"""Seconds from the end of the active controller's session until its standby is ready."""

IDLE_TARGET: Final = 0.01
"""The largest share of a core that an idle controller uses."""

_SETTLE_SECONDS, _IDLE_SECONDS = 20.0, 30.0
_READY, _WAITING = "  read ", "standing by:"
_IMPORTS: Final = "import jobs.controller.lifecycle, jobs.control, deltalake, pyarrow"


class Resident(NamedTuple):
    """Seconds from the start of the process, and from /controller, until it is ready; then megabytes and its share."""

    start: float
    take_over: float
    megabytes: float
    idle: float


def bench_resident() -> Iterator[Figure]:
    """Run the controller on three sizes of clusters."""
    middle, large = map(_measure, (MEMORY_PARTITIONS, FAILOVER_PARTITIONS))
    standby = _measure_standby(READY_PARTITIONS)
    turns = [(_seconds_to_ready(READY_PARTITIONS), _python_start()) for _ in range(TURNS)]
    start, python = map(min, zip(*turns, strict=True))
    control = "surveyor control"
    ready = f"{control}, {READY_PARTITIONS:,} partitions: from start to ready"
    yield Figure(ready, start, "Python's own start", python, READY_TARGET)
    behind = f"{control} --standby, {READY_PARTITIONS:,} partitions: from the end of the other's session to ready"
    yield Figure(behind, standby, "what it may take", STANDBY_SECONDS, 1.0)
    memory = f"{control}, {MEMORY_PARTITIONS:,} partitions: resident memory in MB"
    yield Figure(memory, middle.megabytes, "what it may hold", MEMORY_BUDGET, 1.0)
    yield Figure(f"{control}, idle, {MEMORY_PARTITIONS:,} partitions", middle.idle, "one core", 1.0, IDLE_TARGET)
    failover = f"{control}, {FAILOVER_PARTITIONS:,} partitions: from /controller to ready"
    yield Figure(failover, large.take_over, "Kafka's, as LinkedIn published", LINKEDIN_SECONDS, LINKEDIN_TARGET)


def _measure(partitions: int) -> Resident:
    with _synthetic(partitions) as synthetic, tempfile.TemporaryDirectory() as folder:
        started = time.time()
        with _controller(synthetic, Path(folder), "control.log") as (process, log):
            return _of_process(process, log, started, synthetic, partitions)


def _seconds_to_ready(partitions: int) -> float:
    with _synthetic(partitions) as synthetic, tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with _controller(synthetic, Path(folder), "control.log") as (process, log):
            ready = until(lambda: _READY in log.read_text() or process.poll() is not None, 0.01)
            if process.poll() is not None:
                raise RuntimeError(f"surveyor control has ended: {log.read_text()[-1000:]}")
    print_log(f"  {partitions:,} partitions: ready {ready - started:.2f} s after the start")
    return ready - started


def _measure_standby(partitions: int) -> float:
    with (
        _synthetic(partitions) as synthetic,
        tempfile.TemporaryDirectory() as folder,
        _controller(synthetic, Path(folder), "active.log", "--standby") as (active, active_log),
    ):
        until(lambda: _READY in active_log.read_text() or active.poll() is not None)
        with _controller(synthetic, Path(folder), "standby.log", "--standby") as (_, log):
            until(lambda: _WAITING in log.read_text())
            stat = read(synthetic.client, "/controller").stat
            active.kill()
            active.wait()
            ended = time.monotonic()
            end_session(synthetic.hosts, stat.ephemeralOwner if stat else 0)
            seconds = until(lambda: _READY in log.read_text(), 0.01) - ended
    print_log(f"  {partitions:,} partitions: its standby is ready {seconds:.2f} s after the end of its session")
    return seconds


@contextmanager
def _synthetic(partitions: int) -> Iterator[Cluster]:
    with cluster(partitions) as synthetic, instant_brokers(BROKER_COUNT) as ports:
        synthetic.listen(ports)
        yield synthetic


@contextmanager
def _controller(
    synthetic: Cluster, folder: Path, name: str, *options: str
) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Start a controller; yield it and its log, and end it."""
    log = folder / name
    command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--yes", *options]
    where = ["--zookeeper", synthetic.hosts, "--warehouse", f"{folder}/w", "--listen", f"{LOOPBACK}:{free_port()}"]
    with log.open("w") as out, subprocess.Popen([*command, *where], stdout=out, stderr=out) as process:
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait(120)


def _of_process(
    process: subprocess.Popen[bytes], log: Path, started: float, synthetic: Cluster, partitions: int
) -> Resident:
    with progress(f"surveyor control takes {partitions:,} partitions over"):
        until(lambda: _READY in log.read_text() or process.poll() is not None, 0.01)
    ready = time.time()
    stat = read(synthetic.client, "/controller").stat
    if stat is None or process.poll() is not None:
        raise RuntimeError(f"surveyor control has ended: {log.read_text()[-1000:]}")
    time.sleep(_SETTLE_SECONDS)
    before = processor_seconds(process.pid)
    time.sleep(_IDLE_SECONDS)
    idle = (processor_seconds(process.pid) - before) / _IDLE_SECONDS
    held = Resident(ready - started, ready - stat.ctime * MILLISECOND, _megabytes(process.pid), idle)
    print_log(
        f"  {partitions:,} partitions: ready {held.start:.2f} s after the start and {held.take_over:.2f} s after "
        f"/controller; {held.megabytes:.0f} MB, {held.idle:.4f} of a core"
    )
    return held


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return kilobytes / 1024


def _python_start() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    for figure in bench_resident():
        print_log(f"{figure.measured}: {figure.seconds:.3f} / {figure.baseline_seconds:.3f} = {figure.ratio:.3f}")
