"""`plan drain` and `plan undrain` on the command line: plans, refusals, console output, and marks in the table."""

import json
from collections import Counter
from pathlib import Path

import pytest

from jobs.adapters.zookeeper.controllership import controllership
from jobs.repositories.drained_brokers import add
from jobs.repositories.plans.plans_reader import find_plan
from schemas.enums import DrainMode
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.held_controllership import commit_held
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

ORDERS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 1, 0]}
OURS = 2147483647
RESIDENT = ("plan", "drain", "--brokers", "1", "--mode", "resident")


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    """Brokers 0, 1 and 2, which are registered and do not listen."""
    tree.add_topic("orders", ORDERS)
    ready = Surveyor(tree.hosts, tmp_path / "warehouse", plans_on_stored=True, pace=NO_TAKEOVER)
    write_first_snapshot(ready)
    return ready


def test_demotion_has_two_waves(surveyor: Surveyor, tree: KafkaTree) -> None:
    planned = surveyor("plan", "drain", "--brokers", "1", "--name", "out")
    before = tree.dump()
    dry = surveyor("commit", "out", "--mode", "admin")

    lines = [line.strip() for line in planned.stdout.splitlines()]
    reorder = "drained: 1: order of replicas changes, no data moves"
    assert lines[1:4] == [
        "leaders per broker 1..1 → 1..2",
        "largest share: broker 2 leads 2 of 3 (67 %)",
        "wave 0: 3 changes",
    ]
    assert lines[lines.index("wave 0: 3 changes") : -2] == [
        "wave 0: 3 changes",
        f"~ orders-0  replicas [0,1,2]→[0,2,1]  {reorder}",
        f"~ orders-1  replicas [1,2,0]→[2,0,1]  {reorder}",
        f"~ orders-2  replicas [2,1,0]→[2,0,1]  {reorder}",
        "wave 1: 1 change",
        "~ orders-1  leader 1→2  drained: 1: first in sync is 2",
    ]
    assert "4 of 4 changes are due" in dry.stdout
    assert (tree.dump(), surveyor.rows("drained", "broker_id"), surveyor.rows("commits", "plan_id")) == (before, [], [])


@pytest.mark.parametrize("mode", DrainMode)
def test_leaders_are_spread_over_replicas_in_sync(surveyor: Surveyor, tree: KafkaTree, mode: DrainMode) -> None:
    """Of 9 leaders that broker 1 gives up, Kafka's order would give all to broker 2, which leads one already."""
    tree.add_topic("many", {number: [1, 2, 0] for number in range(8)})
    tree.write("/brokers/topics/many/partitions/7/state", _state(leader=1, isr=[2, 1]))
    write_first_snapshot(surveyor)

    drain = ("plan", "drain", "--brokers", "1", "--mode", mode.value)
    planned, again = surveyor.json(*drain), surveyor.json(*drain)

    changes = surveyor.warehouse.rows("changes")
    leaders = {(row["topic"], row["partition"]): row["leader_after"] for row in changes if row["leader_after"] != 1}
    assert Counter(leaders[name] for name in leaders if leaders[name] is not None) >= Counter({0: 4, 2: 4})
    assert leaders["many", 7] == 2, "0 is not in sync"
    assert planned["led_per_broker"] == [[1, 1], [5, 6]]
    assert planned["largest_share"] == {"broker_id": 2, "leaders": 6, "partitions": 11}
    assert planned["plan_id"] == again["plan_id"]


def _state(leader: int, isr: list[int]) -> bytes:
    state = {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 5, "isr": isr}
    return json.dumps(state).encode()


def test_a_partition_with_a_pending_request_is_left_alone(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Kafka's controller would start the requested move during the drain, and so undo the new order."""
    order = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[2,1]}]}'
    tree.write("/admin/reassign_partitions", order)
    write_first_snapshot(surveyor)
    ran = surveyor("plan", "drain", "--brokers", "1", "--name", "out")
    changes = surveyor.warehouse.rows("changes")
    assert "rejected orders-1  REASSIGNMENT_IN_PROGRESS: a request to move it to [2, 1] waits" in ran.stdout
    assert {row["partition"] for row in changes} == {0, 2}


def test_a_commit_that_hands_back_refuses_a_resident_drain(surveyor: Surveyor, tree: KafkaTree) -> None:
    """Also in a dry run: a resident drain would end with the commit."""
    plan = surveyor.json(*RESIDENT)["plan_id"]
    before = tree.dump()
    for options in ((), ("--apply",), ("--mode", "batch", "--apply")):
        ran = surveyor("commit", plan, *options)
        assert (ran.code, "`plan drain --mode admin`" in ran.stderr) == (23, True), ran.stderr
    assert (tree.dump(), surveyor.rows("drained", "broker_id"), surveyor.rows("commits", "plan_id")) == (before, [], [])


def test_the_mark_ends_when_another_controller_takes_over(surveyor: Surveyor, tree: KafkaTree) -> None:
    plan = surveyor.json(*RESIDENT)["plan_id"]
    with controllership(tree.endpoint, OURS) as held:
        commit_held(surveyor, plan, held, timeout_seconds=3)
        surveyor.json("snapshot")
        meanwhile, epoch = surveyor.rows("drained", "broker_id"), held.epoch
    tree.elect(0, epoch + 1)
    ended = surveyor("snapshot")

    assert (meanwhile, surveyor.rows("drained", "broker_id")) == ([(1,)], [])
    assert "broker 1 is no longer drained: another controller took over. Its replicas start again" in ended.stderr
    elected = surveyor.json("plan", "elect", "--preferred", "--imbalance-threshold", "0")
    assert elected["rejected"] == 1, "broker 1 is not in the ISR, and drained no more"


def test_the_mark_ends_when_the_broker_registers_again(surveyor: Surveyor, tree: KafkaTree) -> None:
    """A drain in admin mode persists, as the order of replicas does."""
    plan = surveyor.json(*RESIDENT)["plan_id"]
    with controllership(tree.endpoint, OURS) as held:
        commit_held(surveyor, plan, held, timeout_seconds=3)
        surveyor.json("snapshot")
        meanwhile = surveyor.rows("drained", "broker_id", "broker_epoch")
        epoch = tree.client.exists("/brokers/ids/1").czxid
        tree.bounce(1)
        status = surveyor.json("status")
        ended = surveyor("snapshot")

    assert (meanwhile, surveyor.rows("drained", "broker_id")) == ([(1, epoch)], [])
    assert "broker 1 is no longer drained: the broker registered again. Its replicas start again" in ended.stderr
    assert not [step for step in status["due"] if "drained" in step["what"]]


def test_undrain_starts_what_the_drain_stopped(surveyor: Surveyor, tree: KafkaTree) -> None:
    """A stopped replica gets LeaderAndIsr at a higher epoch than before; a replica in sync needs nothing."""
    with controllership(tree.endpoint, OURS) as held:
        commit_held(surveyor, surveyor.json(*RESIDENT)["plan_id"], held, timeout_seconds=4)
        early = surveyor("plan", "undrain", "--brokers", "1")
        assert (early.code, "run `surveyor snapshot --" in early.stderr) == (23, True)
        state = b'{"controller_epoch":8,"leader":2,"version":1,"leader_epoch":6,"isr":[2,0,1]}'
        tree.write("/brokers/topics/orders/partitions/1/state", state)
        surveyor.json("snapshot")
        undrain = surveyor.json("plan", "undrain", "--brokers", "1")
        commit_held(surveyor, undrain["plan_id"], held, timeout_seconds=4)

    changes = surveyor.warehouse.rows("changes", ("plan_id", "=", undrain["plan_id"]))
    restarts = {row["partition"]: (row["action"], sorted(row["leader_and_isr_to"])) for row in changes}
    assert restarts == {0: ("start_replica", [0, 1, 2]), 2: ("start_replica", [0, 1, 2])}
    states = [tree.state("orders", partition) for partition in ORDERS]
    assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [(0, [0, 2], 7), (2, [2, 0, 1], 6), (2, [2, 0], 7)]
    assert surveyor.rows("drained", "broker_id") == []


def test_a_broker_no_longer_drained_is_left_out(surveyor: Surveyor) -> None:
    taken = surveyor.warehouse.rows("snapshots")[0]["taken_at"]
    surveyor.warehouse.replace("drained", [{"broker_id": 1, "mode": "admin", "since": taken}])
    ran = surveyor("plan", "undrain", "--brokers", "1,2", "--json")
    assert (ran.code, ran.json["status"]) == (0, "planned")
    assert "2 not drained; drained are 1" in ran.stderr
    (plan,) = surveyor.warehouse.rows("plans", ("plan_id", "=", ran.json["plan_id"]))
    assert json.loads(plan["parameters"]) == {"brokers": [1]}


def test_a_dead_broker_is_left_out_of_a_drain(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "drain", "--brokers", "1,7", "--json")
    (plan,) = surveyor.warehouse.rows("plans", ("plan_id", "=", ran.json["plan_id"]))
    assert (ran.code, json.loads(plan["parameters"])["brokers"]) == (0, [1])
    assert "7 not live in snapshot 1; live are 0, 1, 2" in ran.stderr
    again = surveyor.json("plan", "drain", "--brokers", "1")
    assert again["plan_id"] == ran.json["plan_id"]


def test_draining_a_drained_broker_with_another(surveyor: Surveyor) -> None:
    taken = surveyor.warehouse.rows("snapshots")[0]["taken_at"]
    surveyor.warehouse.replace("drained", [{"broker_id": 1, "mode": "admin", "since": taken}])
    plan = surveyor.json("plan", "drain", "--brokers", "1,2", "--allow-offline")
    assert plan["status"] == "planned"


def test_brokers_are_undrained_one_mode_at_a_time(surveyor: Surveyor) -> None:
    taken = surveyor.warehouse.rows("snapshots")[0]["taken_at"]
    marks = [{"broker_id": b, "mode": mode, "since": taken} for b, mode in ((0, "admin"), (1, "resident"))]
    surveyor.warehouse.replace("drained", marks)
    ran = surveyor("plan", "undrain", "--brokers", "0,1")
    assert (ran.code, "0 in admin mode, 1 in resident mode" in ran.stderr) == (23, True)


def test_a_drained_broker_alone_in_sync_is_elected(surveyor: Surveyor, tree: KafkaTree) -> None:
    """The plan and its page warn about it."""
    tree.add_topic("single", {0: [1, 2]}, topic_id=None)
    write_first_snapshot(surveyor)
    drain = surveyor.json("plan", "drain", "--brokers", "1", "--mode", "admin", "--name", "out")
    assert drain["changes"]
    add(surveyor.warehouse, find_plan(surveyor.warehouse, drain["plan_id"]))
    state = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":7,"isr":[1]}'
    tree.write("/brokers/topics/single/partitions/0/state", state)
    tree.unregister(2)
    surveyor.json("snapshot")

    for question in (("recover",), ("reconcile",)):
        plan = surveyor.json("plan", *question)["plan_id"]
        changes = surveyor.warehouse.rows("changes", ("plan_id", "=", plan))
        assert [(r["leader_after"], r["isr_after"]) for r in changes if r["topic"] == "single"] == [(1, [1])]
        shown = surveyor("show", "plan", plan).stdout
        assert "no replica that is not drained can lead: drained broker 1 leads" in shown
        assert "1 partition is led by a drained broker, as no other replica can lead: single-0" in shown


@pytest.fixture
def single(surveyor: Surveyor, tree: KafkaTree) -> Surveyor:
    """A topic whose partitions have one replica each, on brokers 1 and 0."""
    tree.add_topic("single", {0: [1], 1: [0]}, topic_id=None)
    write_first_snapshot(surveyor)
    return surveyor


@pytest.mark.parametrize("mode", ["admin", "resident"])
def test_partitions_that_would_go_offline_refuse_the_plan(single: Surveyor, mode: str) -> None:
    refused = single("plan", "drain", "--brokers", "1", "--mode", mode, "--json")

    assert (refused.code, refused.json["status"], refused.json["rejected"]) == (23, "refused", 1)
    assert "single-0 (its only replica is 1)" in refused.stderr
    assert "--allow-offline" in refused.stderr
    commit = single("commit", refused.json["plan_id"], "--apply")
    assert (commit.code, "is refused; plan again" in commit.stderr) == (23, True)


@pytest.mark.parametrize("mode", ["admin", "resident"])
def test_every_view_of_a_plan_warns_of_partitions_that_go_offline(single: Surveyor, mode: str) -> None:
    allowed = single("plan", "drain", "--brokers", "1", "--mode", mode, "--name", "out", "--allow-offline")

    warning = "  warning: 1 partition goes offline when the drained brokers stop: single-0"
    assert (allowed.code, allowed.stdout.splitlines()[-3]) == (0, warning)
    assert "rejected single-0  WOULD_GO_OFFLINE: its only replica is 1" in allowed.stdout
    assert single("show", "plan", "out").stdout.splitlines()[-2] == warning
    if mode == "admin":
        assert single("commit", "out", "--mode", "admin").stdout.splitlines()[-3] == warning


REFUSED = [
    (("drain", "--brokers", "7"), 23, "7 not live in snapshot 1; live are 0, 1, 2"),
    (("drain", "--brokers", "0,1,2"), 23, "no broker of snapshot 1 could lead; name fewer"),
    (("drain", "--brokers", "x"), 2, "expected ids as in 0,1,2"),
    (("drain", "--brokers", "1", "--mode", "batch"), 2, "admin"),
    (("undrain", "--brokers", "1"), 23, "1 not drained; drained are none"),
    (("recover", "--partition", "orders"), 2, "expected TOPIC-N"),
]


@pytest.mark.usefixtures("unstarted")
def test_bad_input_is_one_message(surveyor: Surveyor) -> None:
    for arguments, code, message in REFUSED:
        ran = surveyor("plan", *arguments)
        assert (ran.code, message in ran.stderr, "Traceback" in ran.stderr) == (code, True, False), ran.stderr


def test_broker_that_is_not_understood_cannot_be_drained(surveyor: Surveyor, tree: KafkaTree) -> None:
    tree.client.set("/brokers/ids/1", b"{")
    surveyor.json("snapshot")
    ran = surveyor("plan", "drain", "--brokers", "1")
    assert (ran.code, "/brokers/ids/1 cannot be decoded" in ran.stderr) == (23, True)


EMPTY = [
    (
        ("drain", "--brokers", "1"),
        "has no broker (/brokers/ids is empty)",
        "no broker of snapshot 1 could lead",
    ),
    (
        ("reassign", "--rebalance"),
        "has no broker (/brokers/ids is empty)",
        "has no topic (/brokers/topics is empty)",
    ),
    (
        ("reassign", "--remove-brokers", "1"),
        "has no broker (/brokers/ids is empty)",
        "has no topic (/brokers/topics is empty)",
    ),
    (("reconcile",), None, None),
]


def test_an_empty_cluster_is_said_to_be_empty(bare_tree: KafkaTree, tmp_path: Path) -> None:
    """Without brokers, and with brokers without topics: no change is needed in either, and no error is reported."""
    bare_tree.lay_out(brokers=())
    surveyor = Surveyor(bare_tree.hosts, tmp_path / "warehouse", plans_on_stored=True)
    for case in (1, 2):
        write_first_snapshot(surveyor)
        for question, *messages in EMPTY:
            ran = surveyor("plan", *question)
            expected = messages[case - 1]
            assert ran.code == (0 if expected is None else 23), ran.stderr
            assert (expected or "nothing is due") in ran.stdout + ran.stderr
        if case == 1:
            bare_tree.register(1)
