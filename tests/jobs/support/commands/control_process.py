"""`surveyor control` as a process of its own on real brokers, and what ZooKeeper's log says of what it wrote."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.sessions import end_session
from jobs.adapters.zookeeper.connection import connected, read
from jobs.adapters.zookeeper.controllership import take_over
from schemas.znodes import decode_controller
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.torture.zookeeper_log import Transaction, transactions
from tests.shared_spark import way_to

OURS, NOBODY = 2147483647, 2147483646
"""The controller's id; and that of one who does nothing, so that no broker gets to be the controller."""

ON_A_WARM_SPARK = """\
from tests.shared_spark import join
from jobs.controller.decisions import warmup
from jobs.entry import main
join()
warmup.WARMUP_ROUNDS = 0
"""
"""A program that uses the tests' Spark and runs no query before it is the controller, so its start is not measured."""

NEVER_AHEAD = """\
from jobs.controller import controller
controller.FailurePrecomputer = lambda *_: None
"""
"""It does not find out, after each change, what to do if any one broker fails: half of a story's processor time."""


@dataclass
class Office:
    """A running resident controller: its process, its session and its output."""

    process: "subprocess.Popen[str]"
    log: Path
    session: int = 0
    epoch: int = 0

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def last_line(self) -> str:
        return self.output.strip().splitlines()[-1]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing of it runs meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def in_office(kafka: KafkaTree, warehouse: Path, spark: SparkSession, *, thinks_ahead: bool = True) -> Iterator[Office]:
    """The command as an operator calls it, but for its Spark; ended by Ctrl-C unless it has ended before."""
    before = int(kafka.client.get("/controller_epoch")[0])
    log = warehouse.with_name(f"{warehouse.name}-{before}.log")
    script = f"{ON_A_WARM_SPARK}{'' if thinks_ahead else NEVER_AHEAD}main()"
    with log.open("w") as output:
        command = [sys.executable, "-c", script, "control", "--apply", "--yes"]
        where = ["--zookeeper", kafka.hosts, "--warehouse", str(warehouse)]
        line, variables = [*command, *where], os.environ | way_to(spark)
        process = subprocess.Popen(line, stdout=output, stderr=output, text=True, env=variables)
        office = Office(process, log)
    try:
        taken = eventually(lambda: controller(kafka) == OURS or office.process.poll() is not None, 300)
        assert taken, office.output[-3000:]
        assert office.process.poll() is None, office.output[-3000:]
        office.session = kafka.client.get("/controller")[1].ephemeralOwner
        office.epoch = int(kafka.client.get("/controller_epoch")[0])
        yield office
    finally:
        office.process.send_signal(signal.SIGCONT)
        office.process.send_signal(signal.SIGINT)
        try:
            office.process.wait(60)
        finally:
            office.kill()


def controller(kafka: KafkaTree) -> int | None:
    """The controller's id, NO_CONTROLLER during a change."""
    data = read(kafka.client, "/controller").data
    return None if data is None else decode_controller(data).broker_id


@contextmanager
def nobody_in_office(kafka: KafkaTree) -> Iterator[None]:
    """Create /controller for an idle session, so that no broker is faster; the next controller takes it over."""
    with connected(kafka.endpoint) as client:
        take_over(client, NOBODY)
        yield


def end_session_of(kafka: KafkaTree, office: Office) -> None:
    """As ZooKeeper does when it has not heard of it for the session timeout."""
    end_session(kafka.hosts, office.session)


def mark(kafka: KafkaTree) -> int:
    """The zxid of a write of the test's own: what happens from now on comes after it."""
    kafka.write("/mark", b"")
    kafka.touch("/mark")
    return int(kafka.client.exists("/mark").mzxid)


def written_since(cluster: EmbeddedCluster, zxid: int) -> list[Transaction]:
    """What was written to ZooKeeper, in its order."""
    return [each for each in transactions([cluster.zookeeper.folder / "data"]) if each.zxid > zxid]
