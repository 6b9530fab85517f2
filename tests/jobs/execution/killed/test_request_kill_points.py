"""Steps that carry out requests in /admin, killed at any point: the next ones finish, and nothing is done twice.

Two reassignments in their three steps, a preferred election and a deletion, all at once, without a controller. After a
crash either the same plan is committed again, or Kafka's controller has come and gone and a new plan is made.

Every point: KILL_POINTS=all, as in `test_kill_points.py`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.servers import EmbeddedZooKeeper, end_session
from schemas.enums import Outcome
from schemas.rows import Key
from schemas.stored_plan import Plan
from schemas.znode_codecs import State, encode_state
from tests.jobs.execution.killed.commit_audit import CommitAudit
from tests.jobs.execution.killed.crash_runner import (
    KILLED,
    CrashRunner,
    Planned,
    dumped,
    planned,
    sampled_points,
    with_id,
)
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.request_steps import store_steps
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = pytest.mark.torture

SAMPLED_POINTS: Final = 1
"""Points of each way to continue in every test run."""
DONE, STALE = 0, 21
MOVES: Final = {0: ([0, 1], [2, 1]), 1: ([1, 2], [1, 0])}
"""Replicas before and after: the leader of the first partition leaves, a follower of the second."""
GOING: Final = {0: [0, 1], 1: [1, 2]}
CYCLES: Final = 8
"""More cycles than it ever takes."""


def asked_for(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """Request everything while there is no controller, and plan the first step."""
    tree.add_topic("moves", {partition: before for partition, (before, _) in MOVES.items()})
    tree.add_topic("stray", {0: [0, 1]})
    tree.write(state_path("stray", 0), encode_state(State(controller_epoch=7, leader=1, leader_epoch=5, isr=[0, 1])))
    tree.add_topic("going", GOING)
    orders = [{"topic": "moves", "partition": number, "replicas": after} for number, (_, after) in MOVES.items()]
    requests = {"reassign_partitions": orders, "preferred_replica_election": [{"topic": "stray", "partition": 0}]}
    for name, partitions in requests.items():
        tree.write(f"/admin/{name}", json.dumps({"version": 1, "partitions": partitions}).encode())
    tree.write("/admin/delete_topics/going", b"")
    tree.client.delete("/controller")
    return first(warehouse, tree)


def first(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    plan = store_steps(warehouse, tree)
    assert plan is not None
    return plan


@dataclass
class RequestSequence:
    """One cluster until nothing is due; one of its commits may be killed."""

    cluster: Planned
    runner: CrashRunner
    brokers: FakeBrokers
    points: list[int] = field(default_factory=list)
    """The number of points that each commit passed without being killed."""
    stood: set[tuple[str, Key]] = field(default_factory=set)
    """Changes in the tree when a commit was killed, by plan: `commits` has only their intents."""

    def goes_on(self, *more: str) -> int:
        """Commit the plan and plan what is due then, until nothing is; return the last exit code."""
        for _ in range(CYCLES):
            if code := self.runner.run(self.cluster.commit(*more)):
                return code
            self.points.append(len(self.runner.points))
            if not self.plans_next():
                return DONE
        raise AssertionError(f"after {CYCLES} cycles there is still something due: {self.cluster.plan.changes}")

    def plans_next(self) -> bool:
        """Let new replicas catch up, and plan what is due; return whether anything is."""
        copied(self.cluster.tree)
        plan = store_steps(self.cluster.warehouse, self.cluster.tree)
        self.cluster.plan = plan or self.cluster.plan
        return plan is not None

    def shown(self) -> dict[str, Any]:
        """The final state: the tree without controller epochs, and the logs that brokers had to delete."""
        tree = {path: it[:2] if path.endswith("/state") else it[:1] for path, it in dumped(self.cluster.tree).items()}
        return {"tree": tree, "deleted": deleted(self.brokers), "uncounted": uncounted(self)}


@contextmanager
def request_sequence(runner: CrashRunner, server: EmbeddedZooKeeper, folder: Path) -> Iterator[RequestSequence]:
    """Brokers of its own, because they remember leader epochs and requests."""
    with FakeBrokers() as brokers, planned(server, brokers, folder, asked_for) as cluster:
        yield RequestSequence(cluster, runner, brokers)


def copied(tree: KafkaTree) -> None:
    """Let leaders add the new replicas to the ISR, as their announcement causes."""
    assigned = tree.assignment("moves")
    for partition, adding in assigned.adding_replicas.items():
        state = tree.state("moves", partition)
        isr = [*state.isr, *(broker for broker in adding if broker not in state.isr)]
        if isr != state.isr:
            after = State(
                controller_epoch=state.controller_epoch, leader=state.leader, leader_epoch=state.leader_epoch, isr=isr
            )
            tree.write(state_path("moves", partition), encode_state(after))


def deleted(brokers: FakeBrokers) -> set[tuple[int, str, int]]:
    """Broker, topic and partition of each StopReplica that deletes."""
    return {
        (broker, topic.topic_name, state.partition_index)
        for broker in range(3)
        for request in brokers[broker].of("stop_replica")
        for topic in request.request.topic_states
        for state in topic.partition_states
        if state.delete_partition
    }


def uncounted(one: RequestSequence) -> list[str]:
    """Partitions whose leader epoch was not raised exactly once for each applied change."""
    rows = [row for row in one.cluster.warehouse.rows("commits") if row["outcome"] == Outcome.APPLIED]
    applied = {(row["plan_id"], (row["topic"], row["partition"])) for row in rows} | one.stood
    epochs = {key: one.cluster.tree.state(*key).leader_epoch for key in (("stray", 0), ("moves", 0), ("moves", 1))}
    counts = {key: sum(changed == key for _, changed in applied) for key in epochs}
    return [f"{key}: {counts[key]} applied" for key, epoch in epochs.items() if epoch != 5 + counts[key]]


def standing(cluster: Planned) -> set[tuple[str, Key]]:
    """Changes of a plan that are in the tree, no matter what is recorded."""
    of_plan = {change.key: change.leader_epoch_after for change in cluster.plan.changes}
    stand = (key for key, epoch in of_plan.items() if cluster.tree.state(*key).leader_epoch == epoch)
    return {(cluster.plan.plan_id, key) for key in stand}


def expire_session(tree: KafkaTree) -> None:
    """End the controller's session, as ZooKeeper does after ten seconds."""
    stat = tree.client.exists("/controller")
    if stat is not None:
        end_session(tree.hosts, stat.ephemeralOwner)


def elect_and_resign(tree: KafkaTree) -> None:
    """Let a broker be the controller for a moment, in which it only sends the full state to all brokers."""
    tree.elect(1, int(tree.client.get("/controller_epoch")[0]) + 1)
    tree.client.delete("/controller")


@pytest.fixture(scope="module")
def uninterrupted(
    runner: CrashRunner, zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], list[int]]:
    """The final state without a crash, and how many points each commit passes."""
    with request_sequence(runner, zookeeper_server, tmp_path_factory.mktemp("uninterrupted")) as one:
        assert one.goes_on() == DONE, runner.output
        return one.shown(), one.points


def test_without_a_crash(uninterrupted: tuple[dict[str, Any], list[int]]) -> None:
    whole, steps = uninterrupted
    assert (len(steps), whole["uncounted"], whole["deleted"]) == (
        3,
        [],
        {(0, "moves", 0), (2, "moves", 1), (0, "going", 0), (1, "going", 0), (1, "going", 1), (2, "going", 1)},
    )


@pytest.mark.parametrize("again", ["same plan", "new plan"])
def test_killed_at_any_step_the_next_ones_finish(
    again: str,
    runner: CrashRunner,
    uninterrupted: tuple[dict[str, Any], list[int]],
    zookeeper_server: EmbeddedZooKeeper,
    tmp_path: Path,
) -> None:
    whole, steps = uninterrupted
    every = [(cycle, point) for cycle, passed in enumerate(steps) for point in range(1, passed + 1)]
    wrong: dict[str, Any] = {}
    for index in sampled_points(range(len(every)), SAMPLED_POINTS):
        cycle, point = every[index]
        with request_sequence(runner, zookeeper_server, tmp_path) as one:
            for _ in range(cycle):
                assert runner.run(one.cluster.commit()) == DONE, runner.output
                assert one.plans_next()
            audit = CommitAudit.begin(one.cluster)
            died = runner.run(one.cluster.commit(), point)
            at = f"killed at point {point} of {steps[cycle]} in cycle {cycle}, {again}: {runner.points[-1]}"
            faults, one.stood = audit.faults(), standing(one.cluster)
            if again == "same plan":
                code = runner.run(one.cluster.commit(*with_id(tmp_path, 2147483646)))
                faults += [] if code in {DONE, STALE} else [f"exit code {code}: {runner.output}"]
                faults += [*audit.faults(), *audit.unfinished_rows(outcomes={Outcome.APPLIED, Outcome.STALE})]
            expire_session(one.cluster.tree)
            if again == "new plan":
                elect_and_resign(one.cluster.tree)
            code = one.goes_on() if one.plans_next() else DONE
            outcome = (died, faults, code, one.shown())
        if outcome != (KILLED, [], DONE, whole):
            wrong[at] = outcome, runner.output
    assert wrong == {}
