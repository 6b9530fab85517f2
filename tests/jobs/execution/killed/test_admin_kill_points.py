"""Commits in admin mode, and cancellations, killed at any point: the next one finishes what Kafka was asked for.

Every point: KILL_POINTS=all, as in `test_kill_points.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.servers import EmbeddedZooKeeper, end_session
from jobs.adapters.zookeeper.plan_submission import announce_resident
from jobs.execution.admin.throttles import set_throttle
from jobs.repositories.actor import this_process
from schemas.enums import PlanKind, PlanStatus
from schemas.stored_plan import Plan
from schemas.znode_codecs import State, encode_state
from tests.jobs.execution.killed import crash_runner
from tests.jobs.execution.killed.commit_audit import CommitAudit
from tests.jobs.execution.killed.crash_runner import KILLED, CrashRunner, Planned, planned, sampled_points
from tests.jobs.execution.killed.fake_admin import FakeAdmin
from tests.jobs.support.controllers.kafka_controller import KafkaController
from tests.jobs.support.controllers.throttled_tree import ConfigBrokers, overrides
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.torture

SAMPLED_POINTS: Final = 1
T: Final = "moves"
BEFORE: Final = {0: [0, 1], 1: [1, 2], 2: [2, 0]}
AFTER: Final = {0: [2, 1], 1: [1, 0], 2: [2, 1]}


def move(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """Two partitions in the first wave, one in the second."""
    tree.add_topic(T, BEFORE)
    rows = [reassignment(tree, T, partition, AFTER[partition], wave=partition // 2) for partition in BEFORE]
    return store_plan(warehouse, tree, rows, kind=PlanKind.REASSIGN.value)


def drain(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """Broker 0 becomes the last replica and leads no partition any more."""
    tree.add_topic(T, BEFORE)
    orders = [reassignment(tree, T, 0, [1, 0])]
    elected = election(tree, T, 0, leader=1, wave=1, replicas_before=[1, 0], replicas_after=[1, 0])
    parameters = json.dumps({"brokers": [0], "mode": "admin"})
    return store_plan(warehouse, tree, [*orders, elected], kind=PlanKind.DRAIN.value, parameters=parameters)


def prefer(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """Each partition is led by its second replica."""
    tree.add_topic(T, BEFORE)
    for partition, replicas in BEFORE.items():
        state = State(controller_epoch=7, leader=replicas[1], leader_epoch=5, isr=replicas)
        tree.write(state_path(T, partition), encode_state(state))
    return store_plan(
        warehouse, tree, [election(tree, T, partition, leader=BEFORE[partition][0]) for partition in BEFORE]
    )


def ordered(make: Callable[[Warehouse, KafkaTree], Plan]) -> Callable[[Warehouse, KafkaTree], Plan]:
    """The controller takes requests in /admin, as `surveyor control` does."""

    def made(warehouse: Warehouse, tree: KafkaTree) -> Plan:
        assert announce_resident(tree.client, this_process("control"))
        return make(warehouse, tree)

    return made


def called_back(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """A cancelled plan whose requested reassignments continue."""
    tree.add_topic(T, BEFORE)
    rows = [reassignment(tree, T, partition, AFTER[partition]) for partition in BEFORE]
    plan = store_plan(warehouse, tree, rows, kind=PlanKind.REASSIGN.value, status=PlanStatus.CANCELLED.value)
    KafkaController(tree).reassign({(T, partition): AFTER[partition] for partition in BEFORE})
    return plan


def throttled(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """A cancelled plan whose requested reassignments continue under a throttle."""
    plan = called_back(warehouse, tree)
    set_throttle(warehouse, ClientCluster(tree.client), ConfigBrokers(tree), plan.plan_id, plan.changes, 1000)
    return plan


@dataclass(frozen=True)
class Kind:
    make: Callable[[Warehouse, KafkaTree], Plan]
    command: tuple[str, ...]
    status: PlanStatus = PlanStatus.COMMITTED
    is_begun: bool = False
    """Whether an earlier commit has requested its reassignments, none of which is complete."""
    stuck: bool = False
    """Whether reassignments do not complete while the command runs."""


ADMIN: Final = ("commit", "--mode", "admin")
KINDS: Final = {
    "create": Kind(crash_runner.create, ADMIN),
    "expand": Kind(crash_runner.KINDS["expand"], ADMIN),
    "elect": Kind(prefer, ADMIN),
    "config": Kind(crash_runner.KINDS["config"], ADMIN),
    "delete": Kind(crash_runner.KINDS["delete"], ADMIN),
    "reassign": Kind(move, (*ADMIN, "--throttle", "1MB/s")),
    "drain": Kind(drain, ADMIN),
    "orders": Kind(ordered(move), ("commit", "--wait")),
    "ordered drain": Kind(ordered(drain), ("commit", "--wait")),
    "cancel": Kind(move, ("cancel",), PlanStatus.CANCELLED, is_begun=True),
    "throttle": Kind(called_back, ("commit", "--throttle", "1MB/s"), PlanStatus.CANCELLED, stuck=True),
    "lift": Kind(throttled, ("commit", "--throttle", "none"), PlanStatus.CANCELLED, stuck=True),
}


@pytest.mark.parametrize("name", KINDS)
def test_killed_at_any_point_the_next_one_finishes(
    name: str, runner: CrashRunner, zookeeper_server: EmbeddedZooKeeper, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    kind = KINDS[name]
    commits = kind.status is PlanStatus.COMMITTED
    with planned(zookeeper_server, fake_brokers, tmp_path, kind.make) as cluster:
        begin(kind, runner, cluster)
        audit = CommitAudit.begin(cluster, by_kafka=True)
        assert (run(kind, runner, cluster), audit.faults(), audit.unfinished_rows(plan=commits)) == (0, [], []), (
            runner.output
        )
        arrive(kind, cluster)
        whole, every = shown(cluster), range(1, len(runner.points) + 1)
    assert whole["status"] == kind.status

    wrong: dict[str, Any] = {}
    for die_at in sampled_points(every, SAMPLED_POINTS):
        with planned(zookeeper_server, fake_brokers, tmp_path, kind.make) as cluster:
            begin(kind, runner, cluster)
            audit = CommitAudit.begin(cluster, by_kafka=True)
            died = run(kind, runner, cluster, die_at)
            at, lies = f"killed at point {die_at} of {len(every)}: {runner.points[-1]}", audit.faults()
            expire_session(cluster)
            again = run(kind, runner, cluster)
            arrive(kind, cluster)
            lies += [*audit.faults(), *audit.unfinished_rows(plan=commits)]
            outcome = (died, lies, again, shown(cluster))
        if outcome != (KILLED, [], 0, whole):
            wrong[at] = outcome, runner.output
    assert wrong == {}


def begin(kind: Kind, runner: CrashRunner, cluster: Planned) -> None:
    """Request the first wave without waiting for it."""
    if kind.is_begun:
        command = cluster.command(*ADMIN, "--max-wait", "0s")
        assert runner.run(command, asks=cluster.tree.hosts, stuck=True) == 25, runner.output


def run(kind: Kind, runner: CrashRunner, cluster: Planned, die_at: int = 0) -> int:
    return runner.run(cluster.command(*kind.command), die_at, asks=cluster.tree.hosts, stuck=kind.stuck)


def arrive(kind: Kind, cluster: Planned) -> None:
    """Complete all reassignments, as no command waits for the last request of an earlier commit."""
    for _ in range(0 if kind.stuck else 2):
        FakeAdmin(cluster.tree, lambda _: None, stuck=False).step()


def expire_session(cluster: Planned) -> None:
    """End the session that holds the lease, as ZooKeeper does after ten seconds."""
    lease = cluster.tree.client.exists("/surveyor/commit")
    if lease is not None:
        end_session(cluster.tree.hosts, lease.ephemeralOwner)


def shown(cluster: Planned) -> dict[str, Any]:
    """Everything that matters: replicas, leaders and their epochs, throttles, and the tables."""
    tree, topics = cluster.tree, {}
    for topic in tree.client.get_children("/brokers/topics"):
        assignment = tree.assignment(topic)
        topics[topic] = assignment, {number: tree.state(topic, number) for number in assignment.partitions}
    left = tree.client.get_children("/admin") + tree.client.get_children("/admin/delete_topics")
    changes = tree.client.get_children("/config/changes") if tree.client.exists("/config/changes") else []
    drained = [row["broker_id"] for row in cluster.warehouse.rows("drained")]
    rows = cluster.warehouse.rows("throttles")
    throttles = sorted((row["resource"], row["name"], row["before"], row["set_to"]) for row in rows)
    rest = {"left": left, "alterations": len(changes), "config": overrides(tree), "throttles": throttles}
    return {"topics": topics, "drained": drained, "status": cluster.status, **rest}
