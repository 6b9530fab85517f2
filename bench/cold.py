"""What an operator waits for at a shell: whole processes, on a tiny cluster and on a large one.

Each is a process of its own, from the shell's first byte to its exit; they are run by turns, for the speed of a machine
drifts. Spark's own start is Python, PySpark and a JVM with the session's settings, and no work.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from bench.clusters.synthetic import BROKER_COUNT, Cluster, cluster
from bench.figures import Figure, median_of, seconds_of, timed
from bench.notification import instant_brokers
from bench.snapshots import MILLION
from jobs.adapters.delta.warehouse import Warehouse
from jobs.runtime.progress import progress
from tests.spark_settings import JVM_OPTIONS

COLD: Final = 1_000
"""Partitions of the tiny cluster."""

START: Final = "Python's own start, with the same imports"

IMPORTS: Final = (
    "import grpc, pysail.spark, pyspark.sql.connect.session, jobs.plan, jobs.planning.plan_draft, "
    "jobs.planning.reconcile, jobs.snapshots.snapshot"
)

SPARK_START: Final = "Spark's own start, a whole process"

SPARK: Final = 'from jobs.adapters.spark.session import start_session; start_session("surveyor bench")'

TARGETS: Final = {"snapshot": 3.0, "plan reconcile": 3.0}
"""What a process may take at most, in starts of Python."""


SLOWER: Final = 1.3
"""Extra time that a snapshot from the shell may take over one in a warm session, without Spark's start."""


def bench_cold(rounds: int) -> Iterator[Figure]:
    """Measure a cold snapshot, and a cold snapshot with a plan on it; of each the round with the median ratio."""
    with cluster(COLD) as tiny, tempfile.TemporaryDirectory(prefix="surveyor-bench-") as warehouse:
        _lose_a_broker(tiny)
        where = ("--zookeeper", tiny.hosts, "--warehouse", warehouse)
        _run("jobs.entry", "snapshot", *where)  # the tables are made, and files are in memory
        turns = [_turn(where) for _ in range(rounds)]
    for command, target in TARGETS.items():
        measured = f"surveyor {command}, {COLD:,} partitions, a whole process"
        figures = [Figure(measured, turn[command], START, turn[START], target) for turn in turns]
        yield median_of(figures, attrgetter("ratio"))


def bench_shell(synthetic: Cluster, warm: float, rounds: int) -> Figure:
    """Measure an unchanged snapshot as a whole process, against what it takes in a warm session, and Spark's start.

    Of its brokers a third answer, a third refuse the connection, and a third take it and say nothing. Of the
    rounds, the one with the median ratio.
    """
    with (
        instant_brokers(BROKER_COUNT // 3) as ports,
        socket.create_server(("127.0.0.1", 0)) as silent,
        tempfile.TemporaryDirectory(prefix="surveyor-bench-") as warehouse,
    ):
        synthetic.listen([*ports, *[silent.getsockname()[1]] * len(ports)])
        where = ("--zookeeper", synthetic.hosts, "--warehouse", warehouse, "--engine", "spark", "--json")
        _run("jobs.entry", "snapshot", *where)
        turns = [_unchanged(synthetic, where) for _ in range(rounds)]
        answered = _brokers_with_configs(warehouse)
    assert answered == len(ports), f"{len(ports)} brokers answer, {answered} gave their protocol versions"
    figures = [
        Figure(
            measured=f"surveyor snapshot, {synthetic.partitions:,} partitions unchanged, a whole process",
            seconds=seconds,
            baseline=f"{SLOWER} of it in a warm session, and {SPARK_START}",
            baseline_seconds=SLOWER * warm + start,
            target=1.0 if synthetic.partitions >= MILLION else None,
        )
        for start, seconds in turns
    ]
    return median_of(figures, attrgetter("ratio"))


def _unchanged(synthetic: Cluster, where: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that Spark's start takes, and those of an unchanged snapshot."""
    start = seconds_of(lambda: _python("-c", SPARK))
    seconds, stdout = timed(lambda: _run("jobs.entry", "snapshot", *where))
    assert json.loads(stdout)["partitions"] == synthetic.partitions
    return start, seconds


def _brokers_with_configs(warehouse: str) -> int:
    """Count the brokers of the last snapshot that returned their configs."""
    configs = Warehouse(warehouse, "default").read("broker_configs", ("assumed", "=", False))
    return len(set(configs["broker_id"].to_pylist()))


def _turn(where: Sequence[str]) -> dict[str, float]:
    started = seconds_of(lambda: _python("-c", IMPORTS))
    work = {command: seconds_of(lambda: _run("jobs.entry", *command.split(), *where)) for command in TARGETS}  # noqa: B023
    return {START: started, **work}


def _lose_a_broker(tiny: Cluster) -> None:
    """Something is due then."""
    tiny.client.delete("/brokers/ids/0")


def run_command(*arguments: str) -> str:
    """Run a command of Surveyor as a process; return its output."""
    return _python("-m", "jobs.entry", *arguments)


def _run(module: str, *arguments: str) -> str:
    with progress(f"surveyor {arguments[0]}, cold"):
        return _python("-m", module, *arguments)


def _python(*arguments: str) -> str:
    """Run Python as a shell does, without what a benchmark or a test has set for the JVM."""
    env = {name: value for name, value in os.environ.items() if name != JVM_OPTIONS}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
    return ran.stdout
