"""Rounds in a KRaft cluster: drawn from the seed and the round's number, carried out, and checked."""

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.errors import KafkaError

from jobs.adapters.brokers.admin_client import connected_admin
from schemas.enums import PlanKind, PlanStatus
from schemas.stored_plan import CLOSED
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.torture.kraft_faults import AT_KRAFT_COMMITTERS, AT_NODES, BLUR_THE_LEASE
from tests.jobs.torture.kraft_invariants import (
    Plans,
    executed_twice,
    lease_version,
    leases,
    moved_back,
    outside_lease,
    unsettled,
    untrue_outcomes,
)
from tests.jobs.torture.kraft_torture_cluster import KRaftTortureCluster
from tests.jobs.torture.metadata_log import MetadataHistory, read_log
from tests.jobs.torture.rounds import RECOVERY_SECONDS, REPLICAS, Faults, Injection, alone
from tests.jobs.torture.steps import ADMIN, FAST, Step, Steps
from tests.jobs.torture.traffic import MOVED, Traffic, flowing

KRAFT_KINDS: Final = ("create", "expand", "elect", "drain", "move", "move", "cancel", "config", "delete")

ROLL_BACK: Final = "roll back"
"""The kind of a step that undoes the newest moves; it follows the step that makes them."""

_SHARE_ROLLED_BACK: Final = 0.5
"""Share of the rounds that end by rolling back moves that were committed or cancelled."""

_INTERFERED: Final = frozenset({"move", "cancel"})
"""Kinds whose plans another client's reassignment may precede."""


@dataclass(frozen=True, slots=True)
class KRaftRoundPlan:
    """Everything about a round that is decided at random."""

    steps: tuple[tuple[Step, tuple[Injection, ...]], ...]

    @property
    def blurs_lease(self) -> bool:
        return any(injection.fault in BLUR_THE_LEASE for _, injections in self.steps for injection in injections)

    @property
    def rolls_back(self) -> bool:
        return any(step.kind == ROLL_BACK for step, _ in self.steps)


@dataclass(frozen=True, slots=True)
class KRaftRoundResult:
    """The violations of a round, the result of each step, and how many partitions a rollback moved."""

    wrong: list[str]
    summary: list[str]
    moved_back: int


def draw(seed: int, number: int) -> KRaftRoundPlan:
    """Draw a round; the result depends on the seed and the number only."""
    chance = random.Random(f"kraft/{seed}/{number}")  # noqa: S311 - any will do
    kinds = [chance.choice(KRAFT_KINDS) for _ in range(chance.randint(2, 3))]
    if chance.random() < _SHARE_ROLLED_BACK:
        kinds = [*kinds[:-1], chance.choice(("move", "move", "cancel")), ROLL_BACK]
    steps = []
    for kind in kinds:
        step = Step(kind, chance.randrange(10_000), chance.random() < 0.25)
        families = [sorted(AT_KRAFT_COMMITTERS), sorted(AT_NODES)]
        injections = [
            Injection(chance.choice(family), chance.choice((0, 1, 2)), chance.uniform(0.5, 4), chance.uniform(3, 20))
            for family in chance.sample(families, chance.choice([1, 1, 2]))
        ]
        steps.append((step, tuple(injections)))
    return KRaftRoundPlan(tuple(steps))


@dataclass(kw_only=True)
class KRaftSteps(Steps):
    """Steps in a KRaft cluster; before some commits another client moves a partition of the plan."""

    cluster: KRaftTortureCluster
    mode: str = ADMIN
    undone: list[str] = field(default_factory=list)
    """Plans that are rolled back."""

    @property
    def _modes(self) -> list[str]:
        return []

    def _plan(self, step: Step) -> str | None:
        plan = self._undo(step) if step.kind == ROLL_BACK else super()._plan(step)
        if plan is not None and step.kind in _INTERFERED and step.choice % 4 == 0:
            self._interfere(step.choice)
        return plan

    def _command(self, step: Step, plan: str, rate: str) -> list[str]:
        if step.kind != ROLL_BACK:
            return super()._command(step, plan, rate)
        return ["rollback", plan, "--name", f"back-{plan}", "--apply", "--yes", "--throttle", rate]

    def _undo(self, step: Step) -> str | None:
        """Return the newest plan of moves once it is committed or cancelled; None if it cannot be rolled back."""
        rows = sorted(self._rows("plans"), key=lambda row: row["created_at"])
        moves = [row for row in rows if row["kind"] == PlanKind.REASSIGN and "rollback_of" not in row["parameters"]]
        if not moves:
            return None
        plan = str(moves[-1]["plan_id"])
        if moves[-1]["status"] == PlanStatus.PLANNED or step.choice % 2:
            self._until_done(*super()._command(replace(step, kind="move"), plan, FAST))
        if self._status(plan) in {PlanStatus.COMMITTING, PlanStatus.PARTIAL}:  # as the refusal of a rollback advises
            self._until_done("cancel", plan, "--apply", "--yes", "--skip-unsafe")
        if self._status(plan) not in {PlanStatus.COMMITTED, PlanStatus.CANCELLED}:
            return None
        self.undone.append(plan)
        return plan

    def _status(self, plan: str) -> str:
        return next(str(row["status"]) for row in self._rows("plans") if row["plan_id"] == plan)

    def finish(self) -> None:
        """A plan that is rolled back is not committed again, which would stop its rollback.

        Of one that is closed by now, a commit maintains the throttle only.
        """
        statuses = {row["plan_id"]: row["status"] for row in self._rows("plans")}
        self.planned = [
            (step, plan)
            for step, plan in self.planned
            if step.kind == ROLL_BACK or plan not in self.undone or statuses[plan] in CLOSED
        ]
        super().finish()

    def _interfere(self, choice: int) -> None:
        """Swap the replicas of a partition, as another tool would; it may fail while the quorum has no leader."""
        replicas = self._replicas(MOVED)
        partition = choice % len(replicas)
        target = replicas[partition][::-1]
        try:
            with connected_admin(self.cluster.bootstrap.split(","), {}) as admin:
                admin.reassign({(MOVED, partition): target})
        except KafkaError as error:
            self.summary.append(f"the other client failed: {error!r}")
        self.cluster.foreign.append((MOVED, partition, tuple(target)))

    def _topics(self) -> list[str]:
        return sorted(
            AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
        )

    def _replicas(self, topic: str) -> dict[int, list[int]]:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        with connected_admin(self.cluster.bootstrap.split(","), {}) as other:
            moving = other.reassignments()
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: moving.get((topic, number), list(row.replicas)) for number, row in partitions.items()}


def prepare(cluster: KRaftTortureCluster) -> None:
    """Create the topics that the traffic writes to."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = [
        NewTopic(name, partitions, replicas, config={"min.insync.replicas": str(replicas - 1)})
        for name, (partitions, replicas) in REPLICAS.items()
    ]
    create_topics(admin, *new)
    assert eventually(lambda: not unsettled(cluster)), unsettled(cluster)


SCRIPT: Final = KRaftRoundPlan(
    (
        (
            Step("move", choice=1, twice=True),
            (
                Injection("kill committer", 0, after=1.2, lasts=0.1),
                Injection("kill quorum leader", 0, after=1.0, lasts=0.1),
            ),
        ),
    )
)
"""Replicas move by two commits at the same time; both are killed, and so is the leader of the quorum."""


def run_round(
    cluster: KRaftTortureCluster, traffic: Traffic, drawn: KRaftRoundPlan, since: int = 0
) -> KRaftRoundResult:
    """Run one round. Records of the metadata log before the offset `since` are not judged."""
    began, leases_before = time.time(), lease_version(cluster.warehouse)
    steps = KRaftSteps(cluster=cluster)
    faults = Faults(cluster, AT_NODES, *alone(AT_KRAFT_COMMITTERS))
    with ExitStack() as stack:
        stack.callback(faults.lifted)
        for step, injections in drawn.steps:
            runs = steps.begin(step)
            faults.schedule(injections)
            steps.end(step, runs)
    if not flowing(traffic, eventually, RECOVERY_SECONDS):
        steps.wrong.append(f"nothing is acknowledged any more: {traffic.failed}")
    steps.finish()
    eventually(lambda: not unsettled(cluster), RECOVERY_SECONDS)
    history = MetadataHistory.of(read_log(cluster.nodes[cluster.quorum_leader()].folder / "data"), since)
    plans, foreign = Plans(cluster.warehouse), cluster.foreign
    held, overlaps = leases(cluster.warehouse, leases_before)
    of_lease = [] if drawn.blurs_lease else [*overlaps, *outside_lease(history, held, foreign, began)]
    wrong = [
        *(*steps.wrong, *faults.wrong, *unsettled(cluster), *history.wrong, *traffic.wrong()),
        *(*executed_twice(history, plans, foreign, [*REPLICAS]), *untrue_outcomes(history, plans), *of_lease),
    ]
    back = moved_back(history, plans, steps.undone)
    figures = (
        f"{len(traffic.acked)} records acknowledged, {len(history.retargeted)} targets requested, {len(foreign)} "
        f"of them by another client, {back} by rollbacks of this round, {len(held)} leases"
    )
    return KRaftRoundResult(wrong, [*steps.summary, figures], back)
