"""The steps of a round: planned as an operator would, and committed by processes that may be killed.

Plans are made in this process over direct connections; commits use the cluster's links. A commit without a result is
run again once the faults are lifted, until nothing of its plan is due.
"""

import json
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

from deltalake.exceptions import DeltaError
from kazoo.client import KazooClient

from jobs.core.errors import ExitCode
from schemas.enums import PlanStatus
from schemas.rows import Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.torture.torture_cluster import SURVEYOR_IDS, CommandedCluster, Run, TortureCluster
from tests.jobs.torture.traffic import MOVED, ORDERS

BATCH, ADMIN, CONTROL = "batch", "admin", "control"

KINDS: Final = {
    BATCH: ("create", "expand", "lead", "lead", "lead", "repair", "repair", "config", "delete"),
    ADMIN: ("create", "expand", "elect", "drain", "move", "move", "cancel", "config", "delete"),
    CONTROL: ("create", "expand", "lead", "lead", "drain", "move", "config", "delete"),
}
COPYING: Final = frozenset({"create", "expand", "move", "cancel"})
"""Kinds that add replicas to brokers.

They are not used with a broker that has lost ZooKeeper. Such a broker (3.9.2) stores the leader epoch, fails to read
the topic's config, and never follows at that epoch, no matter which controller sends the request again. With a folder
in two log dirs it cannot start any more.
"""

CHURNED: Final = "churned-"
"""Prefix of the topics that are created and deleted."""

DOCUMENTED: Final = {-9, *(ExitCode.DONE, ExitCode.ERROR, ExitCode.FENCED, ExitCode.STALE, ExitCode.UNREADABLE)} | {
    ExitCode.REFUSED,
    ExitCode.RUNNING,
}
SLOW, FAST = "300KB/s", "50MB/s"
_TIMEOUT_SECONDS: Final = 300.0
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Step:
    """A requested change.

    `choice` selects the target among the existing ones; `twice`: by two commits at the same time.
    """

    kind: str
    choice: int
    twice: bool


@dataclass
class Steps(ABC):
    """Carries out the steps of a round, in one mode."""

    cluster: CommandedCluster
    mode: str
    wrong: list[str] = field(default_factory=list)
    planned: list[tuple[Step, str]] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)
    """Plans without changes."""
    summary: list[str] = field(default_factory=list)
    """The result of each step, in short."""

    def begin(self, step: Step) -> list[Run]:
        """Plan a step, and start its commits."""
        plan = self._plan(step)
        if plan is None:
            self.summary.append(f"{step.kind}: no plan")
            return []
        self.planned.append((step, plan))
        runs = [self.cluster.start(*self._command(step, plan, SLOW))]
        if step.twice:
            time.sleep(step.choice % 10 / 20)
            runs.append(self._start_second(*self._command(step, plan, SLOW)))
        return runs

    def _start_second(self, *command: str) -> Run:
        """Start a second commit of the same plan."""
        return self.cluster.start(*command)

    def end(self, step: Step, runs: list[Run]) -> None:
        """Wait for the started commits, and cancel the plans that are to be cancelled."""
        codes = [self.ended(run) for run in runs]
        if runs and step.kind == "cancel":
            codes.append(
                self.ended(self.cluster.start("cancel", self.planned[-1][1], "--apply", "--yes", "--skip-unsafe"))
            )
        if runs:
            self.summary.append(f"{step.kind}: {codes}")

    def finish(self) -> None:
        """Run every commit again until its plan has ended one way or the other."""
        for step, plan in self.planned:
            if plan in self.empty and not self.cluster.warehouse.rows("plans", ("plan_id", "=", plan)):
                continue  # a later plan for the same has replaced it
            if step.kind == "cancel":
                self._until_done("cancel", plan, "--apply", "--yes", "--skip-unsafe")
                self._until_done("commit", plan, "--apply", *self._modes, "--throttle", "none", "--max-wait", "60s")
            else:
                self._until_done(*self._command(step, plan, FAST))

    def ended(self, run: Run) -> int:
        """Wait for a process and return its exit code, which must be a documented one."""
        try:
            code = run.process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            run.process.kill()
            self.wrong.append(f"it did not end within {_TIMEOUT_SECONDS:g} s: {run.output}")
            return run.process.wait()
        if code not in DOCUMENTED or "Traceback" in run.output:
            self.wrong.append(f"it ended with {code}: {run.output}")
        return code

    def _until_done(self, *command: str) -> None:
        for _ in range(_TRIES):
            code = self.ended(run := self.cluster.start(*command))
            if code in {ExitCode.DONE, ExitCode.STALE}:
                return
            if code == ExitCode.REFUSED and command[0] != "rollback" and self._is_closed(command[1]):
                return
            time.sleep(2)
        self.summary.append(f"unfinished: {run.output}")

    def _is_closed(self, plan: str) -> bool:
        (row,) = self.cluster.warehouse.rows("plans", ("plan_id", "=", plan))
        return row["status"] in {PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK}

    @property
    def _modes(self) -> list[str]:
        """The option that chooses the mode of a commit."""
        return ["--mode", "auto" if self.mode == CONTROL else self.mode]

    def _command(self, step: Step, plan: str, rate: str) -> list[str]:
        moves = step.kind in {"move", "cancel", "roll back"} and self.mode == ADMIN
        waits = ["--throttle", rate, "--max-wait", "3s" if step.kind == "cancel" else "60s"] if moves else []
        return ["commit", plan, "--apply", "--yes", *self._modes, *waits]

    def _plan(self, step: Step) -> str | None:
        question = self._question(step)
        if question is None:
            return None
        where = [*self.cluster.where, "--json"]
        try:
            ran = Surveyor(self.cluster.warehouse).run("plan", *question, *where)
        except Exception as error:  # noqa: BLE001 - reported with the rest: a command reports its errors as text
            self.wrong.append(f"plan {question} raised {error!r}")
            return None
        if ran.exit_code != ExitCode.DONE:
            self.summary.append(f"plan {question[0]} ended with {ran.exit_code}: {ran.stderr.strip()[-300:]}")
            return None
        result = json.loads(ran.stdout)
        if not result["changes"]:
            self.empty.add(result["plan_id"])
        return str(result["plan_id"])

    def _question(self, step: Step) -> list[str] | None:
        churned = sorted(topic for topic in self._topics() if topic.startswith(CHURNED))
        topic = churned[step.choice % len(churned)] if churned else None
        drained = [str(row["broker_id"]) for row in self._rows("drained")]
        broker = str(self.cluster.broker_ids[step.choice % len(self.cluster.broker_ids)])
        if topic is None and step.kind in {"expand", "config", "delete"}:
            return None
        if step.kind == "create":
            name = f"{CHURNED}{step.choice}"
            return ["assign", "--topic", name, "--partitions", "3", "--replication-factor", "3"]
        if topic is not None and step.kind == "expand":
            return ["expand", "--topic", topic, "--partitions", str(len(self._replicas(topic)) + 2)]
        if topic is not None and step.kind == "config":
            return ["config", "--topic", topic, "--set", f"retention.ms={86_400_000 + step.choice}"]
        if topic is not None and step.kind == "delete":
            return ["delete", "--topics", topic]
        resident = ["--mode", "resident"] if self.mode == CONTROL else []
        questions = {
            "elect": ["elect", "--preferred", "--imbalance-threshold", "0"],
            "repair": ["reconcile"],
            "drain": ["undrain", "--brokers", drained[0]] if drained else ["drain", "--brokers", broker, *resident],
        }
        return questions.get(step.kind) or ["reassign", "--reassignment-json-file", self._targets(step.choice)]

    def _rows(self, table: str) -> list[Row]:
        return self.cluster.warehouse.rows(table) if self.cluster.warehouse.has(table) else []

    @abstractmethod
    def _topics(self) -> list[str]:
        """The topics that exist."""

    @abstractmethod
    def _replicas(self, topic: str) -> dict[int, list[int]]:
        """The current or target replicas of each partition."""

    def _targets(self, choice: int) -> str:
        """Write a file that moves one replica of each partition to the broker that has none."""
        moves: list[tuple[str, int, list[int]]] = []
        for number, replicas in self._replicas(MOVED).items():
            (free,) = {*self.cluster.broker_ids} - {*replicas}
            target = [replicas[0], free] if (choice + number) % 2 else [free, replicas[1]]
            moves.append((MOVED, number, target))
        return reassignment_file(self.cluster.folder, *moves)


@dataclass(kw_only=True)
class ZooKeeperSteps(Steps):
    """Steps in a cluster with ZooKeeper."""

    cluster: TortureCluster
    client: KazooClient

    def _start_second(self, *command: str) -> Run:
        return self.cluster.start(*command, controller_id=SURVEYOR_IDS[1])

    def _plan(self, step: Step) -> str | None:
        if step.kind != "lead":
            return super()._plan(step)
        try:
            return self._lead(step.choice)
        except (DeltaError, OSError) as error:  # the disk of the warehouse is full
            self.summary.append(f"no plan: {error}")
            return None

    def _lead(self, choice: int) -> str:
        """Plan another in-sync leader for each partition of a topic, as an election may choose."""
        tree = KafkaTree(self.cluster.hosts, self.client)
        rows = []
        for number in range(6):
            isr = tree.state(ORDERS, number).isr
            rows.append(election(tree, ORDERS, number, leader=isr[(choice + number) % len(isr)]))
        moved = [row for row in rows if row["leader_before"] != row["leader_after"]]
        return store_plan(self.cluster.warehouse, tree, moved).plan_id

    def _topics(self) -> list[str]:
        topics: list[str] = self.client.get_children("/brokers/topics")
        return topics

    def _replicas(self, topic: str) -> dict[int, list[int]]:
        assignment = KafkaTree(self.cluster.hosts, self.client).assignment(topic)
        return {
            number: [broker for broker in replicas if broker not in assignment.removing_replicas.get(number, ())]
            for number, replicas in assignment.partitions.items()
        }
