"""Plans on the command line: rows stored, equal plans for equal input, and refusals."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import first_snapshot_of, write_first_snapshot
from tests.jobs.support.rows.input_files import input_file, reassignment_json
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.zookeeper]

ORDERS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}
BY_HAND = ("plan", "assign", "--topic", "test", "--replica-assignment", "0:1:2,1:2:0,2:1:0")


@pytest.fixture
def surveyor(request: pytest.FixtureRequest, tmp_path: Path) -> Surveyor:
    """A cluster with one snapshot; tests share copies of it unless they change the tree."""
    if "tree" not in request.fixturenames:
        untouched: Surveyor = request.getfixturevalue("untouched")
        return untouched.copied_to(tmp_path / "warehouse")
    tree: KafkaTree = request.getfixturevalue("tree")
    tree.add_topic("orders", ORDERS)
    ready = Surveyor(tree.hosts, tmp_path / "warehouse", plans_on_stored=True)
    write_first_snapshot(ready)
    return ready


@pytest.fixture(scope="module")
def untouched(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """A cluster with its snapshot, for invalid input that changes neither."""
    return first_snapshot_of(module_tree, tmp_path_factory.mktemp("untouched"), {"orders": ORDERS})


def test_explicit_replicas(surveyor: Surveyor) -> None:
    plan = surveyor.json(*BY_HAND)
    assert (plan["status"], plan["changes"], plan["rejected"], plan["moves"]) == ("planned", 3, 0, 0)
    assert surveyor.rows("changes", "partition", "action", "leader_after", "isr_after", "leader_epoch_after") == [
        (0, "create", 0, [0, 1, 2], 0),
        (1, "create", 1, [1, 2, 0], 0),
        (2, "create", 2, [2, 1, 0], 0),
    ]
    assert surveyor.rows("operations", "kind", "topic") == [("create_topic", "test")]


def test_planning_again_is_the_same_plan(surveyor: Surveyor) -> None:
    size = ["--partitions", "4", "--replication-factor", "2"]
    first = surveyor.json("plan", "assign", "--topic", "t", *size)
    assert surveyor.json("plan", "assign", "--topic", "t", *size) == first
    assert len(surveyor.rows("plans", "plan_id")) == 1


def test_a_name_is_refused_for_other_parameters(surveyor: Surveyor, tmp_path: Path) -> None:
    """Otherwise an election could return leadership to a broker about to be drained."""
    file = input_file(tmp_path, {"partitions": [{"topic": "orders", "partition": 0}]})
    first = surveyor.json("plan", "elect", "--preferred", "--path-to-json-file", file, "--name", "taken")
    for other in (("drain", "--brokers", "1"), ("elect", "--preferred"), ("reconcile",)):
        ran = surveyor("plan", *other, "--name", "taken")
        assert (ran.code, f"the name 'taken' is taken by plan {first['plan_id']}" in ran.stderr) == (23, True)


@pytest.fixture
def incident(surveyor: Surveyor, tree: KafkaTree) -> Any:  # noqa: ANN401 - JSON
    """Plan a healthy cluster under the name repair; then broker 2 dies, and a new snapshot shows it."""
    before = surveyor.json("plan", "reconcile", "--name", "repair")
    tree.unregister(2)
    surveyor.json("snapshot")
    return before


def test_a_name_does_not_hide_an_incident(surveyor: Surveyor, incident: Any) -> None:  # noqa: ANN401
    refused = surveyor("plan", "reconcile", "--name", "repair", "--json")
    assert (refused.code, refused.json["exit_code"]) == (23, 23)
    for hint in (incident["plan_id"], "snapshot 2 is newer", "another --name", "--snapshot 1", "--replace-name"):
        assert hint in refused.stderr
    assert surveyor.json("show", "plan", "repair")["plan_id"] == incident["plan_id"]


def test_the_same_plan_again_by_its_snapshot(surveyor: Surveyor, incident: Any) -> None:  # noqa: ANN401
    assert surveyor.json("plan", "reconcile", "--name", "repair", "--snapshot", "1") == incident
    other = surveyor("plan", "reconcile", "--name", "repair", "--snapshot", "2")
    assert (other.code, "the name 'repair' is taken" in other.stderr) == (23, True)


def test_a_name_can_be_moved(surveyor: Surveyor, incident: Any) -> None:  # noqa: ANN401
    planned = surveyor.json("plan", "reconcile", "--name", "repair", "--replace-name")
    assert (planned["name"], planned["changes"], planned["snapshot_id"]) == ("repair", 3, 2)
    assert surveyor.json("show", "plan", "repair")["plan_id"] == planned["plan_id"]
    assert surveyor.rows("plans", "snapshot_id", "name", "names") == [(1, None, []), (2, "repair", ["repair"])]
    assert surveyor.json("show", "plan", incident["plan_id"])["name"] is None
    assert surveyor.json("plan", "reconcile", "--name", "repair") == planned


def test_a_plan_may_have_several_names(surveyor: Surveyor) -> None:
    first = surveyor.json("plan", "reconcile")
    for name in ("nightly", "before-upgrade", "nightly"):
        named = surveyor.json("plan", "reconcile", "--name", name)
        assert (named["plan_id"], named["name"]) == (first["plan_id"], name)
        assert surveyor.json("show", "plan", name)["plan_id"] == first["plan_id"]
    assert surveyor.rows("plans", "name", "names") == [("nightly", ["nightly", "before-upgrade"])]
    assert "nightly, before-upgrade" in surveyor("show", "plans").stdout
    assert "(nightly, before-upgrade)" in surveyor("show", "plan", "before-upgrade").stdout


def test_plans_of_an_older_version_keep_their_names(surveyor: Surveyor) -> None:
    """Their table has no column `names`, and no version of its schema."""
    planned = surveyor.json("plan", "reconcile", "--name", "old")
    older = surveyor.warehouse.read("plans").drop_columns("names")
    path = surveyor.warehouse.path("plans")
    shutil.rmtree(path)
    write_deltalake(path, older, partition_by=["cluster"])
    assert surveyor.json("show", "plan", "old")["plan_id"] == planned["plan_id"]
    assert surveyor.json("show", "plans")["rows"][0]["names"] == ["old"]
    assert surveyor.json("plan", "reconcile", "--name", "new")["names"] == ["old", "new"]
    assert surveyor.json("show", "plan", "old") == surveyor.json("show", "plan", "new")


def test_stored_plan_hashes_to_its_id(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.unregister(2)
    write_first_snapshot(surveyor)
    plan = read_plan(surveyor.warehouse, surveyor.json("plan", "reconcile")["plan_id"])
    refuse_edited(plan)
    assert len(plan.changes) == 3


def test_planning_writes_nothing_to_the_cluster(surveyor: Surveyor, tree: KafkaTree) -> None:
    before = tree.dump()
    surveyor.json("plan", "reconcile")
    surveyor.json("plan", "elect", "--preferred")
    surveyor.json(*BY_HAND)
    assert tree.dump() == before


def test_reconcile_after_a_death(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.unregister(2)
    write_first_snapshot(surveyor)
    ran = surveyor("plan", "reconcile", "--detailed-exitcode")
    assert ran.code == 10
    assert (
        "orders-2  leader 2→0  isr [2,0,1]→[0,1]  broker 2 is not live; first live in-sync replica is 0" in ran.stdout
    )
    assert surveyor.rows("changes", "partition", "action", "requires_live", "requires_dead", "leader_and_isr_to") == [
        (0, "shrink_isr", [0], [2], [0, 1]),
        (1, "shrink_isr", [1], [2], [1, 0]),
        (2, "elect", [0], [2], [0, 1]),
    ]


def test_elect_rewrites_the_imbalance_with_its_threshold(surveyor: Surveyor, tree: KafkaTree) -> None:
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":6,"isr":[0,1,2]}'
    tree.write("/brokers/topics/orders/partitions/0/state", state)
    write_first_snapshot(surveyor)
    assert surveyor.json("plan", "elect", "--preferred")["changes"] == 1
    assert surveyor.json("plan", "elect", "--preferred", "--imbalance-threshold", "1")["changes"] == 0
    rows = surveyor.json("show", "imbalance")["rows"]
    assert [(row["broker_id"], row["not_led"], row["exceeds"], row["threshold"]) for row in rows] == [
        (0, 1, False, 1.0),
        (1, 0, False, 1.0),
        (2, 0, False, 1.0),
    ]


def test_election_file_names_rejections(surveyor: Surveyor, tmp_path: Path) -> None:
    elections = {"partitions": [{"topic": "orders", "partition": 0}, {"topic": "nope", "partition": 3}]}
    plan = surveyor.json("plan", "elect", "--preferred", "--path-to-json-file", input_file(tmp_path, elections))
    assert plan["rejected"] == 2
    assert surveyor.rows("rejections", "topic", "code") == [
        ("nope", "UNKNOWN_PARTITION"),
        ("orders", "ALREADY_PREFERRED"),
    ]


SIZE = ("--partitions", "3", "--replication-factor", "3")
REFUSED = [
    (("assign", "--topic", "orders", "--partitions", "4", "--replication-factor", "3"), 23, "topic orders exists"),
    (("assign", "--topic", "t", "--replica-assignment", "0:1,2"), 23, "same replication factor"),
    (("assign", "--topic", "t", "--replica-assignment", "0,x"), 2, "expected brokers as in 0:1:2"),
    (("assign", "--topic", "t", "--replica-assignment", "0:1", *SIZE), 2, "leave out --partitions"),
    (("assign", "--topic", "t"), 2, "expected --partitions and --replication-factor"),
    (("assign", "--topic", "t", *SIZE, "--config", "x"), 2, "expected key=value"),
    (("assign", "--topic", "t", *SIZE, "--config", "segment.bytes=13"), 2, "--config: segment.bytes='13': expected a"),
    (("assign", "--topic", "t", *SIZE, "--config", "x=y"), 2, "--allow-unknown-config accepts it unchecked"),
    (("assign", "--topic", "t", *SIZE, "--strategy", "best"), 2, "expected one of kafka, simple"),
    (("reconcile", "--snapshot", "99"), 2, "no snapshot 99"),
    (("reassign", "--reassignment-json-file", "/no/such/file"), 2, "No such file"),
]


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_bad_input_is_one_message_and_no_plan(
    untouched: Surveyor, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ran = untouched("plan", *arguments)
    assert (ran.code, ran.stdout) == (code, "")
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert untouched.rows("plans", "plan_id") == []


FILES = [
    ("{", 2, "truncated"),
    ('{"partitions":[{"topic":"orders","partition":0}]}', 2, "replicas"),
    ('{"partitions":[{"topic":"orders","partition":-1,"replicas":[1]}]}', 2, ">= 0"),
    ('{"partitions":[{"topic":"orders","partition":0,"replicas":[99999999999]}]}', 2, "<= 2147483647"),
    (reassignment_json(), 2, "names no partition"),
]


@pytest.mark.parametrize(("content", "code", "message"), FILES)
def test_bad_reassignment_file(untouched: Surveyor, tmp_path: Path, content: object, code: int, message: str) -> None:
    ran = untouched("plan", "reassign", "--reassignment-json-file", input_file(tmp_path, content))
    assert ran.code == code
    assert message in ran.stderr
    assert untouched.rows("plans", "plan_id") == []


def test_world_in_which_nothing_can_be_planned(surveyor: Surveyor, tree: KafkaTree) -> None:
    for broker in (0, 1, 2):
        tree.unregister(broker)
    write_first_snapshot(surveyor)
    dead = surveyor("plan", "assign", "--topic", "t", *SIZE)
    assert (dead.code, "no broker is live" in dead.stderr) == (23, True)
    tree.write("/migration", b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":4}')
    write_first_snapshot(surveyor)
    migrating = surveyor("plan", "reconcile")
    assert (migrating.code, "migration to KRaft" in migrating.stderr) == (23, True)
