"""The steps that the demo has on clusters of both kinds, while a producer writes.

Every step runs a Surveyor command as a user would type it, and shows the command before its output.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from pathlib import Path
from signal import SIGTERM
from typing import ClassVar, Final

from jobs.adapters.delta.warehouse import values_of
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.zookeeper.connection import poll_until
from jobs.core.errors import ExitCode, SurveyorError, UnreadableError
from jobs.demo_scenario.traffic import Traffic, read_everything
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from jobs.runtime.settings import ADDRESS_OPTIONS, Settings, settings_from
from schemas.current_state import Leadership
from schemas.rows import Partition, Row

ORDERS: Final = "orders"
TEST: Final = "test"

TOPICS: Final = (ORDERS, TEST)
"""Topics that the producer writes to."""

STEP_TIMEOUT_SECONDS: Final = 600.0
"""Time limit of each step on a busy machine; errors end the demo earlier."""

Run = Callable[[list[str]], int]


@dataclass(frozen=True, slots=True)
class DemoScenario(ABC):
    """The steps of the demo, in order."""

    run: Run
    name: str
    warehouse_uri: str
    cluster: EmbeddedCluster | EmbeddedKRaftCluster
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False)

    commit_options: ClassVar[list[str]]
    """Options of the commits that create the topics."""

    first_brokers: ClassVar[tuple[int, int, int]]
    """The brokers that are there from the beginning."""

    newcomer: ClassVar[int]
    """The broker that joins."""

    @property
    @abstractmethod
    def address(self) -> dict[str, str]:
        """The cluster's address: the name of its setting, and the value."""

    @property
    def bootstrap(self) -> str:
        """The brokers, for clients."""
        return self.cluster.bootstrap

    @abstractmethod
    def change(self) -> None:
        """Run the steps that change the cluster while the producer writes."""

    def execute(self) -> tuple[set[bytes], set[bytes]]:
        """Run every step; return the records acknowledged and the records read back."""
        stdout().print(f"Every command below also has the options {' '.join(self.common[2:])}")
        self.heading("A snapshot of the empty cluster")
        self.surveyor("snapshot")
        self.create_topics()
        self.heading("A producer starts: acks=all, idempotent; it writes until the end")
        traffic = Traffic(self.bootstrap, TOPICS)
        with progress("waiting for the first acknowledged record"):
            traffic.start()
        self.change()
        self.heading("Verification: every acknowledged record is read back")
        traffic.stop()
        with progress("reading every record"):
            return traffic.acked, read_everything(self.bootstrap, TOPICS)

    def create_topics(self) -> None:
        self.heading("Two topics, one placed by the algorithm, one manually")
        config = ["--config", "min.insync.replicas=2"]
        size = ["--partitions", "12", "--replication-factor", "3"]
        self.surveyor("plan", "assign", "--topic", ORDERS, *size, *config, "--name", "create-orders")
        a, b, c = self.first_brokers
        by_hand = ["--replica-assignment", f"{a}:{b}:{c},{b}:{c}:{a},{c}:{b}:{a}"]
        self.surveyor("plan", "assign", "--topic", TEST, *by_hand, "--name", "create-test")
        for name in ("create-orders", "create-test"):
            self.surveyor("commit", name, *self.commit_options, "--apply", "--yes")

    def balance(self) -> None:
        self.surveyor("snapshot")
        self.surveyor("show", "imbalance")
        self.surveyor("plan", "elect", "--preferred", "--name", "balance")
        self.surveyor("commit", "balance", "--apply", "--yes")
        self.surveyor("snapshot")
        self.surveyor("show", "imbalance")
        if self.has_imbalance():
            raise SurveyorError("some partitions are still not led by their preferred replica")

    def grow(self) -> None:
        self.heading(f"Broker {self.newcomer} joins and receives replicas through Kafka's controller")
        with progress(f"starting broker {self.newcomer}"):
            self.cluster.add_broker(self.newcomer)
        self.surveyor("snapshot")
        file = Path(self.warehouse_uri) / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": self.targets()}), encoding="utf-8")
        self.surveyor("plan", "reassign", "--reassignment-json-file", str(file), "--name", "grow")
        self.surveyor("commit", "grow", "--apply", "--yes")
        self.verify("grow")

    def targets(self) -> list[Row]:
        """Return the targets: the last replica of the first half of the partitions moves to the new broker."""
        chosen = sorted(self.partitions(), key=attrgetter("key"))[:8]
        return [
            {"topic": row.topic, "partition": row.partition, "replicas": [*row.replicas[:-1], self.newcomer]}
            for row in chosen
        ]

    def show_history(self) -> None:
        self.heading("History: the leaders of a partition, and the cluster before and after")
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
        """The options of every command."""
        ((setting, where),) = self.address.items()
        return ["--cluster", self.name, ADDRESS_OPTIONS[setting], where, "--warehouse", self.warehouse_uri]

    @property
    def settings(self) -> Settings:
        """The settings that the commands receive as options."""
        return settings_from(
            cluster=self.name,
            zookeeper=self.address.get("zookeeper"),
            bootstrap_servers=self.address.get("bootstrap_servers"),
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

    def is_without(self, broker: int) -> bool:
        """Whether a broker that was killed is no leader and in no ISR any more."""
        return all(broker not in {state.leader, *state.isr} for _, state in self.states())

    def all_in_sync(self) -> bool:
        return all(set(state.isr) == set(row.replicas) for row, state in self.states())

    def states(self) -> list[tuple[Partition, Leadership]]:
        """Return the partitions of the newest snapshot with their current states."""
        rows = self.partitions()
        with self.settings.connection as cluster, cluster.reading() as reader:
            reader.sync()
            current = reader.read_partitions([row.key for row in rows])
        return [(row, current[row.key].content.get()) for row in rows]

    def heading(self, title: str) -> None:
        stdout().print(f"\n[bold]{next(self._numbers)}. {title}[/bold]")

    def surveyor(self, *arguments: str) -> int:
        """Show and run a command, and return its exit code; raise SurveyorError if it fails."""
        stdout().print(f"\n$ surveyor {' '.join(arguments)}", markup=False)
        code = self.run([*arguments, *self.common])
        if code in (ExitCode.INTERRUPTED, 128 + SIGTERM):
            raise KeyboardInterrupt
        if code not in (ExitCode.DONE, ExitCode.CHANGES):
            raise SurveyorError(f"`surveyor {' '.join(arguments)}` ended with exit code {code}")
        return code

    def verify(self, plan: str) -> None:
        """Verify a plan until it is complete."""
        self.wait_until(lambda: self.surveyor("verify", plan, "--detailed-exitcode") == ExitCode.DONE)

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait until something happened; while a quorum has no leader, nothing can be read."""

        def has_happened() -> bool:
            try:
                return happened()
            except UnreadableError:
                return False

        if not poll_until(has_happened, bool, STEP_TIMEOUT_SECONDS):
            raise SurveyorError(
                f"the step did not complete within {STEP_TIMEOUT_SECONDS:g} s; logs: {self.cluster.folder}"
            )
