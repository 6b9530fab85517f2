"""The demo scenario: the main workflow on embedded, real servers, while a producer writes.

Every step runs a Surveyor command as a user would type it, and shows the command before its output.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from signal import SIGTERM
from typing import Final

from jobs.adapters.delta.warehouse import values_of
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import stop_session
from jobs.adapters.zookeeper.connection import connected, poll_until
from jobs.adapters.zookeeper.controllership import current_controller
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.precondition_reader import state_path
from jobs.core.errors import ExitCode, SurveyorError
from jobs.core.signals import raise_on_signal
from jobs.demo_scenario.traffic import Traffic, read_everything
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.console import CommandResult, stdout
from jobs.runtime.output import emit
from jobs.runtime.progress import progress
from jobs.runtime.settings import DEFAULT_WAREHOUSE, Settings, settings_from
from schemas.broker_configs import PROTOCOL_VERSION
from schemas.enums import NO_CONTROLLER
from schemas.rows import Partition, Row
from schemas.znodes import State, decode_state

ORDERS: Final = "orders"
TEST: Final = "test"

TOPICS: Final = (ORDERS, TEST)

VICTIM: Final = 1
"""The broker that is killed."""

NEWCOMER: Final = 3
"""The broker that joins."""

STEP_TIMEOUT_SECONDS: Final = 600.0
"""Time limit of each step on a busy machine; errors end the demo earlier."""


SETTINGS: Final = {PROTOCOL_VERSION: "2.6"}
"""Broker settings; with later versions brokers request ISR changes from the controller, which Surveyor does not serve.
"""

Run = Callable[[list[str]], int]


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """The steps of the demo, in order."""

    run: Run
    cluster: EmbeddedCluster
    name: str
    warehouse_uri: str

    @property
    def zookeeper(self) -> str:
        return str(self.cluster.zookeeper.connect)

    def execute(self) -> tuple[set[bytes], set[bytes]]:
        """Run every step; return the records acknowledged and the records read back."""
        stdout().print(
            f"Every command below also has the options --zookeeper {self.zookeeper} --warehouse {self.warehouse_uri}"
        )
        self.heading("1. A snapshot of the empty cluster")
        self.surveyor("snapshot")
        self.create_topics()
        self.heading("3. A producer starts: acks=all, idempotent; it writes until the end")
        traffic = Traffic(self.cluster.bootstrap, TOPICS)
        with progress("waiting for the first acknowledged record"):
            traffic.start()
        self.broker_failure_step()
        self.balance()
        self.grow()
        self.diff_step()
        self.heading("8. Verification: every acknowledged record is read back")
        traffic.stop()
        with progress("reading every record"):
            return traffic.acked, read_everything(self.cluster.bootstrap, TOPICS)

    def create_topics(self) -> None:
        self.heading("2. Two topics, one placed by the algorithm, one manually; written in batch mode")
        config = ["--config", "min.insync.replicas=2"]
        size = ["--partitions", "12", "--replication-factor", "3"]
        self.surveyor("plan", "assign", "--topic", ORDERS, *size, *config, "--name", "create-orders")
        by_hand = ["--replica-assignment", "0:1:2,1:2:0,2:1:0"]
        self.surveyor("plan", "assign", "--topic", TEST, *by_hand, "--name", "create-test")
        for name in ("create-orders", "create-test"):
            self.surveyor("commit", name, "--mode", "batch", "--apply", "--yes")

    def broker_failure_step(self) -> None:
        self.heading(f"4. `surveyor control` runs as in another terminal, and broker {VICTIM} is killed")
        self.surveyor("snapshot")
        say = stdout().print
        control = ["--apply", "--yes"]
        say(f"\n$ surveyor control {' '.join(control)} &", markup=False)
        with run_resident([*control, *self.common]) as controller:
            self.wait_until(controller.until(self.is_ours))  # the process reports its own progress
            say(f"$ kill -9 of broker {VICTIM}; its ZooKeeper session is ended at once instead of after its timeout")
            self.cluster.brokers[VICTIM].kill()
            self.cluster.brokers[VICTIM].expire()
            self.wait_until(controller.until(self.has_repaired))
            self.surveyor("status")
            say("\nCtrl-C stops it; a broker becomes the controller")
        with progress("waiting for a broker to become the controller"):
            self.wait_until(self.has_controller)

    def balance(self) -> None:
        self.heading(f"5. Broker {VICTIM} restarts; leadership returns to the preferred replicas")
        self.cluster.brokers[VICTIM].start()
        with progress(f"waiting for broker {VICTIM} to rejoin every ISR"):
            self.cluster.brokers[VICTIM].wait_ready()
            self.wait_until(self.all_in_sync)
        self.surveyor("snapshot")
        self.surveyor("show", "imbalance")
        self.surveyor("plan", "elect", "--preferred", "--name", "balance")
        self.surveyor("commit", "balance", "--apply", "--yes")
        self.surveyor("snapshot")
        self.surveyor("show", "imbalance")
        if self.has_imbalance():
            raise SurveyorError("some partitions are still not led by their preferred replica")

    def grow(self) -> None:
        self.heading(f"6. Broker {NEWCOMER} joins and receives replicas through Kafka's controller")
        with progress(f"starting broker {NEWCOMER}"):
            self.cluster.add_broker(NEWCOMER)
        self.surveyor("snapshot")
        file = Path(self.warehouse_uri) / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": self.targets()}), encoding="utf-8")
        self.surveyor("plan", "reassign", "--reassignment-json-file", str(file), "--name", "grow")
        self.surveyor("commit", "grow", "--apply", "--yes")
        self.wait_until(lambda: self.surveyor("verify", "grow", "--detailed-exitcode") == ExitCode.DONE)

    def targets(self) -> list[Row]:
        """Return the targets: the last replica of the first half of the partitions moves to the new broker."""
        chosen = sorted(self.partitions(), key=attrgetter("key"))[:8]
        return [
            {"topic": row.topic, "partition": row.partition, "replicas": [*row.replicas[:-1], NEWCOMER]}
            for row in chosen
        ]

    def diff_step(self) -> None:
        self.heading("7. History: the leaders of a partition, and the cluster before and after")
        self.surveyor("snapshot")
        self.surveyor("show", "history", "--topic", ORDERS, "--partition", str(self.a_partition_that_moved()))
        self.surveyor("show", "partitions", "--topic", ORDERS, "--as-of", "2")
        self.surveyor("show", "partitions", "--topic", ORDERS)

    def a_partition_that_moved(self) -> int:
        history = self.settings.warehouse.read("partition_history", ("topic", "=", ORDERS))
        rows = values_of(history, "partition", "leader", "replicas")
        return min((partition for partition, leader, replicas in rows if leader != replicas[0]), default=0)

    @property
    def common(self) -> list[str]:
        return ["--cluster", self.name, "--zookeeper", self.zookeeper, "--warehouse", self.warehouse_uri]

    @property
    def settings(self) -> Settings:
        """The settings that the commands receive as options."""
        return settings_from(
            cluster=self.name,
            zookeeper=self.zookeeper,
            warehouse=self.warehouse_uri,
            conf_path=None,
            command_config=None,
            as_json=False,
            result_file=None,
        )

    def partitions(self) -> list[Partition]:
        """Return the partitions of the newest snapshot."""
        return rows_as_of(self.settings.warehouse, find_snapshot(self.settings.warehouse), Partition)

    def has_imbalance(self) -> bool:
        """Whether a partition of the newest snapshot is not led by its preferred replica."""
        snapshot_id = find_snapshot(self.settings.warehouse).snapshot_id
        rows = self.settings.warehouse.read("imbalance", ("snapshot_id", "=", snapshot_id), columns=["not_led"])
        return any(rows["not_led"].to_pylist())

    def heading(self, title: str) -> None:
        stdout().print(f"\n[bold]{title}[/bold]")

    def surveyor(self, *arguments: str) -> int:
        """Show and run a command, and return its exit code; raise SurveyorError if it fails."""
        stdout().print(f"\n$ surveyor {' '.join(arguments)}", markup=False)
        code = self.run([*arguments, *self.common])
        if code in (ExitCode.INTERRUPTED, 128 + SIGTERM):
            raise KeyboardInterrupt
        if code not in (ExitCode.DONE, ExitCode.CHANGES):
            raise SurveyorError(f"`surveyor {' '.join(arguments)}` ended with exit code {code}")
        return code

    def wait_until(self, happened: Callable[[], bool]) -> None:
        if not poll_until(happened, bool, STEP_TIMEOUT_SECONDS):
            raise SurveyorError(
                f"the step did not complete within {STEP_TIMEOUT_SECONDS:g} s; broker logs: {self.cluster.folder}"
            )

    def is_ours(self) -> bool:
        return self.controller() == self.settings.conf.controller_id

    def controller(self) -> int:
        with connected(self.settings.zookeeper) as client:
            return current_controller(client)

    def has_repaired(self) -> bool:
        return all(VICTIM not in {state.leader, *state.isr} for _, state in self.states())

    def has_controller(self) -> bool:
        return self.controller() != NO_CONTROLLER

    def all_in_sync(self) -> bool:
        return all(set(state.isr) == set(row.replicas) for row, state in self.states())

    def states(self) -> Iterator[tuple[Partition, State]]:
        """Yield the partitions of the newest snapshot with their current states in ZooKeeper."""
        rows = self.partitions()
        paths = [state_path(row.key) for row in rows]
        with connected(self.settings.zookeeper) as client:
            znodes = read_many(client, paths)
        for row, znode in zip(rows, znodes, strict=True):
            yield row, decode_state(znode.data)


def run_demo(settings: Settings, run: Run) -> ExitCode:
    """Run the demo; it fails unless every acknowledged record is read back.

    `run` executes a Surveyor command line in this process.
    """
    os.environ.pop(REMOTE, None)  # the demo runs on this host only
    with raise_on_signal(), _warehouse(settings) as warehouse, EmbeddedCluster(3, overrides=SETTINGS) as cluster:
        scenario = DemoScenario(run, cluster, settings.cluster, warehouse)
        acked, read_back = scenario.execute()
    lost = acked - read_back
    result = {"acked": len(acked), "read": len(acked & read_back), "lost": len(lost)}
    emit(settings, CommandResult(result, "records " + " ".join(f"{name}={count}" for name, count in result.items())))
    return ExitCode.ERROR if lost or not acked else ExitCode.DONE


@contextmanager
def _warehouse(settings: Settings) -> Iterator[str]:
    """Yield the given warehouse, else a temporary one that is deleted afterwards."""
    if settings.warehouse_uri != DEFAULT_WAREHOUSE:
        yield settings.warehouse_uri
        return
    with tempfile.TemporaryDirectory(prefix="surveyor-demo-", ignore_cleanup_errors=True) as folder:
        try:
            yield folder
        finally:
            stop_session()


STOP_TIMEOUT_SECONDS: Final = 60.0
"""Time limit for the process to resign."""


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    process: "subprocess.Popen[bytes]"

    def until(self, happened: Callable[[], bool]) -> Callable[[], bool]:
        """Wrap a condition so that it raises SurveyorError if the process has ended."""

        def checked() -> bool:
            if self.process.poll() is not None:
                raise SurveyorError(f"`surveyor control` ended with exit code {self.process.returncode}")
            return happened()

        return checked


@contextmanager
def run_resident(arguments: Sequence[str]) -> Iterator[ResidentProcess]:
    """Run `surveyor control` within the block.

    The process has its own session, so Ctrl-C reaches only the demo, which then stops the process.
    """
    command = [sys.executable, "-m", "jobs.entry", "control", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:  # noqa: S603 - ours
        try:
            yield ResidentProcess(process)
        finally:
            process.terminate()  # a shell's background job ignores SIGINT, and so do its children
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
            process.kill()
