"""Rounds in a KRaft cluster: drawn from the seed and the round's number, carried out, and checked."""

import random
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.errors import KafkaError

from jobs.adapters.brokers.admin import connected_admin
from schemas.enums import PlanStatus
from tests.jobs.support.kafka.real_cluster import create_topics, eventually
from tests.jobs.torture.kraft_faults import AT_KRAFT_COMMITTERS, AT_NODES, BLUR_THE_LEASE
from tests.jobs.torture.kraft_invariants import (
    Plans,
    executed_twice,
    leases,
    outside_lease,
    unsettled,
    untrue_outcomes,
)
from tests.jobs.torture.kraft_torture_cluster import KRaftTortureCluster
from tests.jobs.torture.metadata_log import MetadataHistory, read_log
from tests.jobs.torture.rounds import RECOVERY_SECONDS, REPLICAS, Faults, Injection, alone
from tests.jobs.torture.steps import ADMIN, Step, Steps
from tests.jobs.torture.traffic import MOVED, Traffic, flowing

KRAFT_KINDS: Final = ("create", "expand", "elect", "drain", "move", "move", "cancel", "roll back", "config", "delete")

_INTERFERED: Final = frozenset({"move", "cancel"})
"""Kinds whose plans another client's reassignment may precede."""


@dataclass(frozen=True, slots=True)
class KRaftRoundPlan:
    """Everything about a round that is decided at random."""

    steps: tuple[tuple[Step, tuple[Injection, ...]], ...]

    @property
    def blurs_lease(self) -> bool:
        return any(injection.fault in BLUR_THE_LEASE for _, injections in self.steps for injection in injections)


def draw(seed: int, number: int) -> KRaftRoundPlan:
    """Draw a round; the result depends on the seed and the number only."""
    chance = random.Random(f"kraft/{seed}/{number}")  # noqa: S311 - any will do
    steps = []
    for _ in range(chance.randint(2, 3)):
        step = Step(chance.choice(KRAFT_KINDS), chance.randrange(10_000), chance.random() < 0.25)
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

    @property
    def _modes(self) -> list[str]:
        return []

    def _plan(self, step: Step) -> str | None:
        plan = self._last_move() if step.kind == "roll back" else super()._plan(step)
        if plan is not None and step.kind in _INTERFERED and step.choice % 4 == 0:
            self._interfere(step.choice)
        return plan

    def _command(self, step: Step, plan: str, rate: str) -> list[str]:
        if step.kind != "roll back":
            return super()._command(step, plan, rate)
        return ["rollback", plan, "--name", f"back-{plan}", "--apply", "--yes", "--throttle", rate]

    def _last_move(self) -> str | None:
        """Return the newest plan of moves that was committed, if it is no rollback."""
        rows = sorted(self._rows("plans"), key=lambda row: row["created_at"])
        moves = [row for row in rows if row["kind"] == "reassign" and row["status"] == PlanStatus.COMMITTED]
        return str(moves[-1]["plan_id"]) if moves and "rollback_of" not in moves[-1]["parameters"] else None

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
) -> tuple[list[str], list[str]]:
    """Run one round; return the violations, and the result of each step.

    Records of the metadata log before the offset `since` are not judged.
    """
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
    held, overlaps = leases(cluster.warehouse)
    of_lease = [] if drawn.blurs_lease else [*overlaps, *outside_lease(history, held, foreign)]
    wrong = [
        *(*steps.wrong, *faults.wrong, *unsettled(cluster), *history.wrong, *traffic.wrong()),
        *(*executed_twice(history, plans, foreign, [*REPLICAS]), *untrue_outcomes(history, plans), *of_lease),
    ]
    figures = (
        f"{len(traffic.acked)} records acknowledged, {len(history.retargeted)} targets requested, {len(foreign)} "
        f"of them by another client, {len(held)} leases"
    )
    return wrong, [*steps.summary, figures]
