"""The steps that change a cluster by plans, on clusters of both kinds: topics, a broker that joins, and history."""

from dataclasses import dataclass
from typing import ClassVar

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.core.arrow_rows import values_of
from jobs.core.errors import ExitCode, SurveyorError
from jobs.demo_scenario.scenario import ORDERS, TEST, DemoScenario
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.progress import progress
from schemas.current_state import Leadership
from schemas.rows import Partition


@dataclass(frozen=True, slots=True)
class PlanScenario(DemoScenario):
    """The demo of plans; `change` is up to the kind of cluster."""

    cluster: EmbeddedCluster | EmbeddedKRaftCluster

    commit_options: ClassVar[list[str]]
    """Options of the commits that create the topics."""

    first_brokers: ClassVar[tuple[int, int, int]]
    """The brokers that are there from the beginning."""

    newcomer: ClassVar[int]
    """The broker that joins."""

    def prepare(self) -> None:
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
        self.surveyor("plan", "elect", "--preferred", "--apply", "--yes")
        self.surveyor("snapshot")
        self.surveyor("show", "imbalance")
        if self.has_imbalance():
            raise SurveyorError("some partitions are still not led by their preferred replica")

    def grow(self) -> None:
        self.heading(f"Broker {self.newcomer} joins and receives replicas through Kafka's controller")
        with progress(f"starting broker {self.newcomer}"):
            self.cluster.add_broker(self.newcomer)
        self.surveyor("plan", "reassign", "--add-brokers", str(self.newcomer), "--apply", "--yes")

    def show_history(self) -> None:
        self.heading("History: the leaders of a partition, and the cluster before and after")
        self.surveyor("snapshot")
        self.surveyor("show", "history", "--topic", ORDERS, "--partition", str(self.moved_partition()))
        self.surveyor("show", "partitions", "--topic", ORDERS, "--snapshot", "3")
        self.surveyor("show", "partitions", "--topic", ORDERS)

    def moved_partition(self) -> int:
        history = self.settings.warehouse.read("partition_history", ("topic", "=", ORDERS))
        rows = values_of(history, "partition", "leader", "replicas")
        return min((partition for partition, leader, replicas in rows if leader != replicas[0]), default=0)

    def verify(self, plan: str) -> None:
        """Verify a plan until it is complete."""
        self.wait_until(lambda: self.surveyor("verify", plan, "--detailed-exitcode") == ExitCode.DONE)

    def partitions(self) -> list[Partition]:
        """Return the partitions of the newest snapshot."""
        return rows_as_of(self.settings.warehouse, find_snapshot(self.settings.warehouse), Partition)

    def has_imbalance(self) -> bool:
        """Return whether a partition of the newest snapshot is not led by its preferred replica."""
        snapshot_id = find_snapshot(self.settings.warehouse).snapshot_id
        rows = self.settings.warehouse.read("imbalance", ("snapshot_id", "=", snapshot_id), columns=["not_led"])
        return any(rows["not_led"].to_pylist())

    def is_out_of_isrs(self, broker: int) -> bool:
        """Return whether a killed broker is no longer a leader or in an ISR."""
        return all(broker not in {state.leader, *state.isr} for _, state in self.states())

    def all_in_sync(self) -> bool:
        return all(set(state.isr) == set(row.replicas) for row, state in self.states())

    def states(self) -> list[tuple[Partition, Leadership]]:
        """Return the partitions of the newest snapshot with their current states."""
        rows = self.partitions()
        with self.settings.connect() as cluster:
            cluster.sync()
            current = cluster.read_partitions([row.key for row in rows])
        return [(row, current[row.key].content.get()) for row in rows]
