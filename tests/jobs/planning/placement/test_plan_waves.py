"""`plan reassign` in waves and from files: rows stored, commit checks, console, export, and lint refusals."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jobs.adapters.zookeeper.precondition_reader import read_current
from jobs.preconditions.admin_changes import check_for_admin
from jobs.preconditions.wave_outcomes import by_wave, evaluate_waves
from schemas.rows import Change, Row
from schemas.text import pluralise
from schemas.znode_codecs import Assignment, State, decode_assignment, encode_assignment, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration, state_path

pytestmark = pytest.mark.usefixtures("spark")

RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b"}
ORDERS = {n: [n % 3, (n + 1) % 3] for n in range(6)}
FILE = "--reassignment-json-file"
WAVES = ("--max-moves-per-broker", "1", "--one-replica-at-a-time")
TWO_EACH = {0: [3, 4], 2: [4, 3], 3: [1, 0]}
"""Both replicas of two partitions of orders move, and a third changes its order."""


@pytest.fixture(scope="module")
def tree(module_tree: KafkaTree) -> KafkaTree:
    """Brokers 0 to 4, orders on the first three, one topic over all racks; 9 is dead, one topic is being deleted."""
    module_tree.lay_out(brokers=())
    for broker, rack in RACKS.items():
        module_tree.register(broker, registration(rack=rack))
    module_tree.elect(0, epoch=7)
    for topic, replicas in {"orders": ORDERS, "wide": {0: [0, 1, 2]}, "old": {0: [9, 1]}, "gone": {0: [0, 1]}}.items():
        module_tree.add_topic(topic, replicas)
    module_tree.write("/admin/delete_topics/gone", b"")
    module_tree.write(state_path("old", 0), encode_state(State(controller_epoch=1, leader=1, leader_epoch=6, isr=[1])))
    return module_tree


@pytest.fixture(scope="module")
def surveyor(tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    ready = Surveyor(tree.hosts, tmp_path_factory.mktemp("waves") / "warehouse", plans_on_stored=True)
    write_first_snapshot(ready)
    return ready


def _of_plan(surveyor: Surveyor, table: str, plan: Row) -> list[Row]:
    rows = surveyor.warehouse.rows(table, ("plan_id", "=", plan["plan_id"]))
    return sorted(rows, key=lambda row: (row.get("wave", 0), row["topic"], row["partition"]))


def _two_each(tmp_path: Path) -> str:
    return reassignment_file(tmp_path, *(("orders", partition, replicas) for partition, replicas in TWO_EACH.items()))


def _reassigned(tree: KafkaTree, wave: list[Change]) -> None:
    """Set the topic to its state after a wave."""
    path = "/brokers/topics/orders"
    assignment = decode_assignment(tree.client.get(path)[0])
    replicas = assignment.partitions | {row.partition: row.replicas_after for row in wave}
    tree.write(path, encode_assignment(Assignment(replicas, {}, {}, assignment.topic_id)))


def test_a_wave_is_due_after_the_one_before(surveyor: Surveyor, tree: KafkaTree, tmp_path: Path) -> None:
    plan = surveyor.json("plan", "reassign", FILE, _two_each(tmp_path), *WAVES)
    changes = msgspec.convert(_of_plan(surveyor, "changes", plan), list[Change])
    due, outcomes = evaluate_waves(changes, read_current(tree.client, changes))
    assert (len(due), outcomes) == (len(changes), [])
    for wave in by_wave(changes):
        came = Counter(broker for row in wave for broker in row.adding_after)
        went = Counter(broker for row in wave for broker in row.removing_after)
        assert max([*came.values(), *went.values(), 0]) <= 1
        assert check_for_admin(wave, read_current(tree.client, wave)) == (wave, [])
        _reassigned(tree, wave)
    assert {row.partition: row.replicas_after for row in changes} == TWO_EACH
    back = [replace(row, replicas_after=row.replicas_before) for row in changes]
    for wave in reversed(list(by_wave(back))):
        _reassigned(tree, wave)
    assert tree.assignment("orders").partitions == ORDERS


def test_waves_have_figures_reasons_and_one_id(surveyor: Surveyor, tmp_path: Path) -> None:
    command = ("plan", "reassign", FILE, _two_each(tmp_path), *WAVES)
    plan = surveyor.json(*command)
    changes = _of_plan(surveyor, "changes", plan)
    moves = Counter(row["wave"] for row in changes for _ in row["adding_after"])
    assert plan["waves"] == {
        "count": max(row["wave"] for row in changes) + 1,
        "fewest": 2,
        "moves": [moves[wave] for wave in range(plan["waves"]["count"])],
        "most_in": [1] * len(moves),
        "most_out": [1] * len(moves),
    }
    assert (plan["moves"], plan["lower_bound"], plan["replicas_per_broker"]) == (4, 4, [[0, 7], [2, 6]])
    assert changes[0]["reason"].startswith("step 1 of 2: adds [")
    assert "; as given: 0 → 3, 1 → 4" in changes[0]["reason"]
    assert surveyor.json(*command) == plan


def test_waves_are_shown_and_exported(surveyor: Surveyor, tmp_path: Path) -> None:
    plan = surveyor.json("plan", "reassign", FILE, _two_each(tmp_path), *WAVES)
    changes = _of_plan(surveyor, "changes", plan)
    shown = surveyor("show", "plan", plan["plan_id"]).stdout
    sizes = Counter(row["wave"] for row in changes)
    assert all(f"\n  wave {wave}: {pluralise(size, 'change')}\n" in shown for wave, size in sizes.items())
    assert f"waves {len(sizes)} (at least 2)" in shown
    for flags, side in (((), "replicas_after"), (("--inverse",), "replicas_before")):
        partitions = surveyor.json("export", plan["plan_id"], "--wave", "1", *flags)["reassignment"]["partitions"]
        assert {row["partition"]: row["replicas"] for row in partitions} == {
            row["partition"]: row[side] for row in changes if row["wave"] == 1
        }


def test_a_question_of_the_optimiser_in_waves(surveyor: Surveyor) -> None:
    command = ("plan", "reassign", "--add-brokers", "3,4", "--topics", "orders")
    plain, plan = surveyor.json(*command), surveyor.json(*command, "--max-moves-per-broker", "2")
    before, after = (
        {(r["topic"], r["partition"]): r["replicas_after"] for r in _of_plan(surveyor, "changes", p)}
        for p in (plain, plan)
    )
    assert (before, plan["moves"], "waves" in plain) == (after, plain["moves"], False)
    assert {row["wave"] for row in _of_plan(surveyor, "changes", plain) if row["action"] == "reassign"} == {0}
    assert (max(plan["waves"]["most_in"]), sum(plan["waves"]["moves"])) == (2, plan["moves"])
    assert {b for row in _of_plan(surveyor, "changes", plan) for b in row["adding_after"]} == {3, 4}


def test_a_file_with_faults_is_stored_as_refused(surveyor: Surveyor, tmp_path: Path) -> None:
    file = reassignment_file(
        tmp_path,
        ("orders", 0, [3, 1]),
        ("orders", 1, [0, 0]),
        ("orders", 2, []),
        ("orders", 3, [1, 7]),
        ("orders", 4, [3, 2]),
        ("orders", 4, [4, 2]),
        ("orders", 5, [2, 0]),
        ("gone", 0, [1, 3]),
        ("nowhere", 3, [1]),
    )
    ran = surveyor("plan", "reassign", FILE, file, "--json")
    plan = ran.json
    assert (ran.code, plan["status"], plan["changes"]) == (23, "refused", 1)
    assert sorted((row["topic"], row["partition"], row["code"]) for row in _of_plan(surveyor, "rejections", plan)) == [
        ("gone", 0, "DELETION_REQUESTED"),
        ("nowhere", 3, "UNKNOWN_PARTITION"),
        ("orders", 1, "DUPLICATE_BROKER"),
        ("orders", 1, "RACKS_LOST"),
        ("orders", 2, "NO_REPLICAS"),
        ("orders", 3, "BROKER_NOT_ALIVE"),
        ("orders", 3, "RACKS_LOST"),
        ("orders", 4, "NAMED_TWICE"),
        ("orders", 5, "ALREADY_ASSIGNED"),
    ]
    for reason in ("orders-1: names a broker twice: 0, 0", "orders-4: the plan names this partition 2 times"):
        assert reason in ran.stderr
    commit, export = (surveyor(command, plan["plan_id"]) for command in ("commit", "export"))
    assert (commit.code, export.code, "is refused" in export.stderr) == (23, 23, True)


def test_racks_count_unless_they_are_ignored(surveyor: Surveyor) -> None:
    """Rack c is emptied, and the plan says so; without racks no rack is given up."""
    command = ("plan", "reassign", "--remove-brokers", "2", "--topics", "wide")
    plan = surveyor.json(*command)
    assert (plan["status"], plan["moves"], plan["racks_given_up"]) == ("planned", 1, ["c"])
    plan = surveyor.json(*command, "--disable-rack-aware")
    assert (plan["status"], plan["moves"], plan["replicas_per_rack"]) == ("planned", 1, {})


def test_partitions_with_a_dead_replica_are_left_alone(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--rebalance", "--topics", "old|orders")
    assert plan["held"] == 1
    assert [row["code"] for row in _of_plan(surveyor, "rejections", plan) if row["topic"] == "old"] == [
        "REPLICA_NOT_ALIVE"
    ]
    assert "old" not in {row["topic"] for row in _of_plan(surveyor, "changes", plan)}


@pytest.fixture
def drained(surveyor: Surveyor) -> Iterator[int]:
    """Broker 4 is drained."""
    row: dict[str, Any] = {"broker_id": 4, "mode": "admin", "plan_id": "p", "since": None}
    taken = surveyor.warehouse.rows("snapshots")[0]["taken_at"]
    surveyor.warehouse.replace("drained", [row | {"since": taken}], "broker_id = 4")
    yield 4
    surveyor.warehouse.replace("drained", [], "broker_id = 4")


def test_a_drained_broker_gets_nothing_new(surveyor: Surveyor, drained: int) -> None:
    for question in (("--rebalance",), ("--replication-factor", "3"), ("--remove-brokers", "0")):
        plan = surveyor.json("plan", "reassign", *question, "--topics", "orders")
        given = {broker for row in _of_plan(surveyor, "changes", plan) for broker in row["adding_after"]}
        assert (drained in given, plan["status"], plan["moves"] > 0) == (False, "planned", True)
    refused = surveyor("plan", "reassign", "--add-brokers", str(drained))
    assert (refused.code, "broker 4 is drained; undrain it first" in refused.stderr) == (23, True)
