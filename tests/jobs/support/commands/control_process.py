"""`surveyor control` as a process of its own on real brokers, and what ZooKeeper's log says of what it wrote."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import end_session
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import take_over
from jobs.adapters.zookeeper.znode_reads import read
from schemas.znode_codecs import decode_controller
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.torture.zookeeper_log import Transaction, transactions

OURS, IDLE = 2147483647, 2147483646
"""Ids of the resident controller, and of an idle session that keeps brokers from becoming the controller."""


@dataclass
class ControllerProcess:
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
        """Stop the process within the block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running_controller(kafka: KafkaTree, warehouse: Path, *options: str) -> Iterator[ControllerProcess]:
    """Run the command as an operator does, until it is the controller."""
    before = int(kafka.client.get("/controller_epoch")[0])
    with started_controller(kafka, warehouse, f"{warehouse.name}-{before}.log", *options) as controller:
        taken = eventually(lambda: controller_id(kafka) == OURS or controller.process.poll() is not None, 300)
        assert taken, controller.output[-3000:]
        assert controller.process.poll() is None, controller.output[-3000:]
        controller.session = kafka.client.get("/controller")[1].ephemeralOwner
        controller.epoch = int(kafka.client.get("/controller_epoch")[0])
        yield controller


@contextmanager
def started_controller(kafka: KafkaTree, warehouse: Path, log_name: str, *options: str) -> Iterator[ControllerProcess]:
    """Start the command; end it by Ctrl-C unless it has ended before."""
    log = warehouse.with_name(log_name)
    with log.open("w") as output:
        command = [sys.executable, "-m", "jobs.entry", "control", "--apply", "--yes", *options]
        where = ["--zookeeper", kafka.hosts, "--warehouse", str(warehouse)]
        process = subprocess.Popen([*command, *where], stdout=output, stderr=output, text=True)
        controller = ControllerProcess(process, log)
    try:
        yield controller
    finally:
        controller.process.send_signal(signal.SIGCONT)
        controller.process.send_signal(signal.SIGINT)
        try:
            controller.process.wait(60)
        finally:
            controller.kill()


def controller_id(kafka: KafkaTree) -> int | None:
    """The controller's id, NO_CONTROLLER during a change."""
    data = read(kafka.client, "/controller").data
    return None if data is None else decode_controller(data).broker_id


@contextmanager
def idle_controller(kafka: KafkaTree) -> Iterator[None]:
    """Create /controller for an idle session, so that no broker is faster; the next controller takes it over."""
    with connected(kafka.endpoint) as client:
        take_over(client, IDLE)
        yield


def end_session_of(kafka: KafkaTree, controller: ControllerProcess) -> None:
    """End its session, as ZooKeeper does after the session timeout."""
    end_session(kafka.hosts, controller.session)


def mark(kafka: KafkaTree) -> int:
    """The zxid of a write of the test's own: what happens from now on comes after it."""
    kafka.write("/mark", b"")
    kafka.touch("/mark")
    return int(kafka.client.exists("/mark").mzxid)


def written_since(cluster: EmbeddedCluster, zxid: int) -> list[Transaction]:
    """What was written to ZooKeeper, in its order."""
    return [
        transaction
        for transaction in transactions([cluster.zookeeper_server.folder / "data"])
        if transaction.zxid > zxid
    ]


@contextmanager
def run_during_control(act: Callable[[], None]) -> Iterator[None]:
    """Run `act` in a thread while the block runs `surveyor control`, then interrupt the block; re-raise its error."""
    went: list[BaseException] = []

    def run_act() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised where the test is
            went.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=run_act)
    thread.start()
    yield
    thread.join()
    if went:
        raise went[0]
