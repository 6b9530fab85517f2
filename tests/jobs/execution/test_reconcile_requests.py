"""Requests in /admin, carried out by plans and commits without a controller; brokers only receive."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.core.errors import FencedError
from jobs.execution.batch.standalone_operations import write_tasks
from jobs.execution.preflight import Preflight, check_before_commit
from jobs.runtime.settings import Settings
from schemas.enums import OperationKind, Outcome, PlanKind
from schemas.rows import Change, Operation, Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import State, decode_partitions, encode_state
from tests.docs.command_checks import fault
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.held_controllership import commit_held
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.kafka.fake_brokers import FakeBrokers, ReceivedRequest
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.rows.request_steps import steps_due, store_steps
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree, state_path

REASSIGN, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"
REJECTED = ("topic", "partition", "code")
GOING = "/admin/delete_topics/going"

Compared = tuple[list[Row], list[Row]]
"""Rows planned by Spark, and rows computed in Python."""


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    """There is no controller before and after a commit."""
    tree.client.delete("/controller")
    return Surveyor(tree.hosts, tmp_path / "warehouse", pace=dataclasses.replace(NO_TAKEOVER, first_pause=0.0))


def asks(tree: KafkaTree, path: str, *partitions: dict[str, Any]) -> None:
    tree.write(path, json.dumps({"version": 1, "partitions": partitions}).encode())


def led_by(tree: KafkaTree, topic: str, leader: int, isr: list[int]) -> None:
    tree.write(state_path(topic, 0), encode_state(State(controller_epoch=7, leader=leader, leader_epoch=5, isr=isr)))


def all_is_asked_for(tree: KafkaTree) -> None:
    """All kinds of requests, along with a leaderless partition that must not keep it running."""
    tree.add_topic("lonely", {0: [9]})
    tree.add_topic("moves", {0: [0, 1]})
    tree.add_topic("stray", {0: [0, 1]})
    led_by(tree, "stray", 1, [0, 1])
    tree.add_topic("going", {0: [0, 1], 1: [1, 2]})
    asks(tree, REASSIGN, {"topic": "moves", "partition": 0, "replicas": [1, 2]})
    asks(tree, ELECTION, {"topic": "stray", "partition": 0}, {"topic": "unknown", "partition": 3})
    tree.write(GOING, b"")
    tree.write("/admin/delete_topics/nosuch", b"")


def in_sync_once_told(tree: KafkaTree, brokers: FakeBrokers) -> None:
    """The leader of a moving partition adds the new replica to the ISR."""

    def copied(request: ReceivedRequest) -> None:
        if request.api == "leader_and_isr" and ("moves", 0) in request.partitions and 2 not in tree.state("moves").isr:
            before = tree.state("moves")
            after = State(
                controller_epoch=before.controller_epoch,
                leader=before.leader,
                leader_epoch=before.leader_epoch,
                isr=[*before.isr, 2],
            )
            tree.write(state_path("moves", 0), encode_state(after))

    brokers[0].on_request = copied


def stops(brokers: FakeBrokers, topic: str) -> set[tuple[int, int, bool]]:
    """Broker, partition and whether the log is deleted, of each StopReplica."""
    return {
        (broker, state.partition_index, state.delete_partition)
        for broker in (0, 1, 2)
        for received in brokers[broker].of("stop_replica")
        for of_topic in received.request.topic_states
        for state in of_topic.partition_states
        if of_topic.topic_name == topic
    }


def compared(tree: KafkaTree, surveyor: Surveyor) -> tuple[Callable[..., Preflight], list[Compared]]:
    """Wraps the assessment of plans, and records for each plan its rows and those of `steps_due`."""
    pairs: list[Compared] = []
    unnamed = {"plan_id": "", "cluster": ""}

    def noting(settings: Settings, cluster: Cluster, plan: Plan, *others: Any) -> Preflight:  # noqa: ANN401 - as `assess` takes them
        due = [*chain(*steps_due(surveyor.warehouse, tree))]
        changes = msgspec.convert([row | unnamed for row in due if "action" in row], list[Change])
        tasks = msgspec.convert([row for row in due if "kind" in row], list[Operation])
        pairs.append((_bare([*plan.changes, *plan.operations]), _bare([*changes, *tasks])))
        return check_before_commit(settings, cluster, plan, *others)

    return noting, pairs


def _bare(rows: Sequence[Change | Operation]) -> list[Row]:
    """Rows without names and reasons, of existing and requested changes."""
    named = {"plan_id": "", "cluster": "", "reason": "", "sequence": 0}
    as_dicts = (asdict(row) for row in rows if row.topic in {"moves", "stray", "going"})
    bare = ({name: value for name, value in row.items() if name not in named} for row in as_dicts)
    return sorted(bare, key=str)


@pytest.mark.usefixtures("spark", "fake_brokers")
def test_a_request_whose_target_is_down_stays(surveyor: Surveyor, tree: KafkaTree) -> None:
    """An impossible request in the same znode is removed."""
    tree.add_topic("moves", {0: [0, 1]})
    waits = {"topic": "moves", "partition": 0, "replicas": [9, 1]}
    asks(tree, REASSIGN, waits, {"topic": "nosuch", "partition": 0, "replicas": [1]})

    for _ in range(2):
        ran = surveyor("reconcile", "--requests", "--apply", "--yes")
        assert ran.code == 0, ran.stderr

    [left] = json.loads(tree.client.get(REASSIGN)[0])["partitions"]
    assert {name: left[name] for name in waits} == waits
    rejected = surveyor.rows("rejections", "topic", "code", "reason")
    assert ("moves", "TARGET_NOT_ALIVE", "not live: 9; the request waits for them") in rejected


@pytest.mark.usefixtures("spark")
def test_all_requests_are_completed(
    surveyor: Surveyor, tree: KafkaTree, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each plan on the way equals what `steps_due` computes without Spark."""
    noting, pairs = compared(tree, surveyor)
    monkeypatch.setattr("jobs.execution.reconcile.check_before_commit", noting)
    all_is_asked_for(tree)
    in_sync_once_told(tree, fake_brokers)
    fake_brokers[2].slow["leader_and_isr"] = 0.2
    requests = fake_brokers.in_order("moves")

    ran = surveyor("reconcile", "--apply", "--until-quiet", "--json")

    assert ran.code == 0, ran.stderr + ran.stdout
    assert [planned for planned, _ in pairs] == [due for _, due in pairs]
    assert {name: ran.json[name] for name in ("cycles", "stale", "due")} == {"cycles": 3, "stale": 0, "due": 0}
    assert [step["what"] for step in ran.json["next"]] == ["see why"]
    assert [step["command"] for step in ran.json["next"] if fault(step["command"].split()[1:])] == []
    assignment = tree.assignment("moves")
    assert (assignment.partitions, assignment.adding_replicas, assignment.removing_replicas) == ({0: [1, 2]}, {}, {})
    assert (tree.state("moves").leader, tree.state("moves").isr) == (1, [1, 2])
    assert (tree.state("stray").leader, tree.state("lonely").leader) == (0, -1)
    left = [path for path in (REASSIGN, ELECTION, GOING, "/brokers/topics/going") if tree.client.exists(path)]
    assert (left, tree.client.get_children("/admin/delete_topics")) == ([], [])
    assert stops(fake_brokers, "moves") == {(0, 0, True)}
    stopped = requests.index((0, "stop_replica"))  # as in Kafka, once the target replica knows its leader
    assert {*requests[stopped - 5 : stopped]} == {
        *((broker, "leader_and_isr") for broker in (1, 2)),
        *((broker, "update_metadata") for broker in (0, 1, 2)),
    }
    holders = {(0, 0), (1, 0), (1, 1), (2, 1)}
    assert stops(fake_brokers, "going") == {(*holder, delete) for holder in holders for delete in (False, True)}
    assert "surveyor: cycle 3: plan" in ran.stderr
    rejected = {(topic, partition, code) for topic, partition, code in surveyor.rows("rejections", *REJECTED)}
    assert rejected == {
        ("lonely", 0, "NO_ELIGIBLE_LEADER"),
        ("unknown", 3, "UNKNOWN_PARTITION"),
        ("nosuch", -1, "UNKNOWN_TOPIC"),
    }


@pytest.mark.parametrize("between", [0, 1])
def test_a_topic_is_removed_only_by_the_next_controller(tree: KafkaTree, control: Controllership, between: int) -> None:
    """Another controller in between may have started its replicas again."""
    tree.add_topic("going", {0: [0, 1], 1: [1, 2]})
    tree.write(GOING, b"")
    data = {"topic_id": TOPIC_ID, "controller_epoch": control.epoch - 1 - between, "topic_version": 0}
    task = Operation(sequence=0, kind=OperationKind.REMOVE_TOPIC, topic="going", data=json.dumps(data))

    ((outcome,),) = write_tasks(control, [task], max_hold=30)

    assert outcome.outcome == (Outcome.STALE if between else Outcome.APPLIED)
    assert bool(tree.client.exists("/brokers/topics/going")) is bool(tree.client.exists(GOING)) is bool(between)


@pytest.mark.parametrize("between", [0, 1])
def test_a_move_is_ended_only_by_the_next_controller(surveyor: Surveyor, tree: KafkaTree, between: int) -> None:
    """Another controller in between has restarted the removed replicas; then the request stays, too."""
    tree.add_topic("moves", {0: [0, 1]})
    asks(tree, REASSIGN, {"topic": "moves", "partition": 0, "replicas": [2, 1]})
    codes = []
    for step in ("start", "narrow", "end"):
        plan = store_steps(surveyor.warehouse, tree)
        assert plan is not None
        assert [change.action.split("_")[0] for change in plan.changes] == [step]
        if step == "end":
            tree.write("/controller_epoch", str(int(tree.client.get("/controller_epoch")[0]) + between).encode())
        codes.append(surveyor("commit", plan.plan_id, "--mode", "batch", "--apply").code)
        tree.write(state_path("moves", 0), encode_state(replace(tree.state("moves"), isr=[1, 2])))

    removing = tree.assignment("moves").removing_replicas
    assert codes == [0, 0, 21 if between else 0]
    assert (removing, tree.client.exists(REASSIGN) is not None) == (({0: [0]}, True) if between else ({}, False))


@pytest.mark.parametrize("fenced", [False, True])
def test_election_is_withdrawn_alone_and_under_the_fence(
    tree: KafkaTree, control: Controllership, *, fenced: bool
) -> None:
    stray, others = {"topic": "stray", "partition": 0}, {"topic": "later", "partition": 1}
    asks(tree, ELECTION, stray, others)
    if fenced:
        tree.touch("/controller_epoch")
    task = Operation(sequence=0, kind=OperationKind.WITHDRAW_ELECTION, topic="stray", data='{"partitions": [0]}')

    outcomes = []
    with pytest.raises(FencedError) if fenced else nullcontext():
        outcomes += [outcome for (outcome,) in write_tasks(control, [task], max_hold=30)]

    left = decode_partitions(tree.client.get(ELECTION)[0])
    assert [election.topic for election in left] == (["stray", "later"] if fenced else ["later"])
    assert [outcome.outcome for outcome in outcomes] == ([] if fenced else [Outcome.APPLIED])


def test_two_requests_for_one_topic_are_both_recorded(tree: KafkaTree, control: Controllership, tmp_path: Path) -> None:
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse")
    asks(tree, ELECTION, {"topic": "stray", "partition": 0})
    asks(tree, REASSIGN, {"topic": "stray", "partition": 0, "replicas": [0]})
    data = {
        OperationKind.WITHDRAW_ELECTION: {"partitions": [0]},
        OperationKind.WITHDRAW_REASSIGNMENT: {"orders": {"0": [0]}},
    }
    operations = [
        {"sequence": number, "kind": kind.value, "topic": "stray", "data": json.dumps(data[kind])}
        for number, kind in enumerate(data)
    ]
    plan = store_plan(surveyor.warehouse, tree, [], operations, kind=PlanKind.RECONCILE.value)
    tree.touch("/controller_epoch")

    with pytest.raises(FencedError):
        commit_held(surveyor, plan.plan_id, control)

    outcomes = {
        (action, outcome) for action, outcome in surveyor.rows("commits", "action", "outcome") if outcome != "pending"
    }
    assert outcomes == {("withdraw_election", "fenced"), ("withdraw_reassignment", "skipped")}
    assert tree.client.exists(ELECTION)
    assert tree.client.exists(REASSIGN)
