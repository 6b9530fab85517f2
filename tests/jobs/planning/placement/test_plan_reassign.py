"""`plan reassign` on the command line: each goal once, partitions left out, refusals and console output."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from schemas.rows import Row
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.input_files import input_file, reassignment_file, reassignment_json
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration, state_path

pytestmark = pytest.mark.usefixtures("spark")

RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b"}
ORDERS = {n: [n % 3, (n + 1) % 3] for n in range(6)}
ONE_RACK = {0: [0, 3], 1: [3, 0]}
"""Both replicas in rack a."""
LATE = [0, 1, 2]
"""Broker 1 lags."""


@pytest.fixture(scope="module")
def surveyor(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Brokers 0 to 4, orders on the first three; 9 is dead, 5 not understood; one topic moves, one is being deleted."""
    module_tree.lay_out(brokers=())
    for broker, rack in RACKS.items():
        module_tree.register(broker, registration(rack=rack))
    module_tree.register(5, b"{")
    module_tree.elect(0, epoch=7)
    for topic, replicas in {"orders": ORDERS, "narrow": ONE_RACK, "old": {0: [9, 1]}, "gone": {0: [0, 1]}}.items():
        module_tree.add_topic(topic, replicas)
    module_tree.add_topic("moving", {0: [0, 1, 2]})
    moving = Assignment({0: [0, 1, 2]}, {0: [2]}, {0: [1]}, "r8iTzkX6SnyvLkbjRRRoow")
    module_tree.write("/brokers/topics/moving", encode_assignment(moving))
    module_tree.write("/admin/delete_topics/gone", b"")
    module_tree.write(state_path("old", 0), encode_state(State(controller_epoch=1, leader=1, leader_epoch=6, isr=[1])))
    module_tree.add_topic("late", {0: LATE})
    module_tree.write(
        state_path("late", 0), encode_state(State(controller_epoch=1, leader=0, leader_epoch=5, isr=[0, 2]))
    )
    ready = Surveyor(module_tree.hosts, tmp_path_factory.mktemp("reassign") / "warehouse", plans_on_stored=True)
    ready.json("snapshot")
    return ready


def _changes(surveyor: Surveyor, plan: Row) -> dict[tuple[str, int], Row]:
    """Return the moves without the elections that follow them."""
    rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]), ("action", "=", "reassign"))
    return {(row["topic"], row["partition"]): row for row in rows}


def _rejected(surveyor: Surveyor, plan: Row) -> dict[str, str]:
    rows = surveyor.warehouse.rows("rejections", ("plan_id", "=", plan["plan_id"]))
    return {f"{row['topic']}-{row['partition']}": row["code"] for row in rows}


def _orders(surveyor: Surveyor, plan: Row) -> dict[int, list[int]]:
    """Return the target replicas of orders."""
    changed = {partition: row["replicas_after"] for (topic, partition), row in _changes(surveyor, plan).items()}
    return {partition: changed.get(partition, replicas) for partition, replicas in ORDERS.items()}


# goal (for orders only), moves, brokers of orders after
QUESTIONS = [
    (["--add-brokers", "4"], 5, {0, 1, 2, 4}),
    (["--remove-brokers", "2"], 4, {0, 1, 3, 4}),
    (["--replace", "2=4"], 4, {0, 1, 3, 4}),
    (["--replication-factor", "3"], 6, {0, 1, 2, 3, 4}),
    (["--replication-factor", "1"], 0, {0, 1, 2}),
    (["--rebalance", "--max-moves", "1"], 1, {0, 1, 2, 4}),
]


@pytest.mark.parametrize(("question", "moves", "brokers"), QUESTIONS)
def test_question(surveyor: Surveyor, question: list[str], moves: int, brokers: set[int]) -> None:
    command = ("plan", "reassign", *question, "--topics", "orders")
    plan = surveyor.json(*command)
    after = _orders(surveyor, plan)
    assert (plan["status"], plan["moves"]) == ("planned", moves)
    assert {broker for replicas in after.values() for broker in replicas} == brokers
    assert all(len({RACKS[broker] for broker in replicas}) == len(replicas) for replicas in after.values())
    assert surveyor.json(*command) == plan


def test_lagging_replica_is_the_one_to_leave(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--replication-factor", "2", "--topics", "late")
    assert _changes(surveyor, plan)["late", 0]["replicas_after"] == [0, 2]


def test_topics_to_move_go_to_the_brokers_listed(surveyor: Surveyor, tmp_path: Path) -> None:
    file = input_file(tmp_path, {"version": 1, "topics": [{"topic": "orders"}]})
    plan = surveyor.json("plan", "reassign", "--topics-to-move-json-file", file, "--broker-list", "2,3,4")
    held = Counter(broker for replicas in _orders(surveyor, plan).values() for broker in replicas)
    assert (plan["rejected"], set(held)) == (0, {2, 3, 4})
    onto = surveyor.json("plan", "reassign", "--onto", "2,3,4", "--topics", "orders")
    assert (onto["rejected"], _orders(surveyor, onto)) == (0, _orders(surveyor, plan))


def test_unmoved_partitions_keep_their_order_unless_requested(surveyor: Surveyor) -> None:
    """Every partition of `orders` could be led by another broker; one has a replica on broker 3, which is replaced."""
    command = ("plan", "reassign", "--remove-brokers", "3", "--exclude", "old|gone|moving")
    plan, wide = surveyor.json(*command), surveyor.json(*command, "--reorder-leaders")
    changes, more = _changes(surveyor, plan), _changes(surveyor, wide)
    assert {topic for topic, _ in changes} == {"narrow"}
    reordered = [row for row in more.values() if {*row["replicas_before"]} == {*row["replicas_after"]}]
    assert plan["leaders_given_up"]["reorders"] == len(reordered) > 0
    assert plan["leaders_given_up"]["leaders_per_broker"] == wide["leaders_per_broker"][1]
    assert wide["leaders_given_up"] is None
    shown = surveyor("show", "plan", plan["plan_id"]).stdout
    low, high = wide["leaders_per_broker"][1]
    assert f"with --reorder-leaders {low}..{high}: {len(reordered)} more partitions would change their order" in shown


def test_emptied_rack_keeps_partitions_in_two_others(surveyor: Surveyor) -> None:
    command = ("plan", "reassign", "--remove-brokers", "2", "--topics", "orders|late")
    for caps in ((), ("--one-replica-at-a-time",)):
        plan = surveyor.json(*command, *caps)
        after = [row["replicas_after"] for row in _changes(surveyor, plan).values()]
        assert {frozenset(RACKS[broker] for broker in replicas) for replicas in after} == {frozenset("ab")}
        assert (plan["status"], plan["racks_given_up"], plan["fewer_racks"]) == ("planned", ["c"], 1)
    shown = surveyor("show", "plan", plan["plan_id"]).stdout
    assert "racks given up c: 1 partition is in fewer racks than now" in shown


def test_racks_are_fixed_where_they_are_narrow(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--fix-racks", "--exclude", "old|gone|moving")
    changes = _changes(surveyor, plan)
    spans = {key: len({RACKS[b] for b in row["replicas_after"]}) for key, row in changes.items() if key[0] == "narrow"}
    assert (plan["moves"], plan["lower_bound"], spans) == (2, 2, {("narrow", 0): 2, ("narrow", 1): 2})
    assert "racks 1 → 2" in changes["narrow", 0]["reason"]


def test_what_may_not_change_is_rejected(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--rebalance")
    assert _rejected(surveyor, plan) == {
        "gone-0": "DELETION_REQUESTED",
        "moving-0": "REASSIGNMENT_IN_PROGRESS",
        "old-0": "REPLICA_NOT_ALIVE",
    }
    assert {topic for topic, _ in _changes(surveyor, plan)} <= {"orders", "narrow", "late"}
    low, high = plan["replicas_per_broker"][1]
    assert (plan["moves"], high - low <= 1) == (plan["lower_bound"], True)


def test_dead_broker_is_emptied_and_the_plan_says_why(surveyor: Surveyor) -> None:
    plan = surveyor.json("plan", "reassign", "--remove-brokers", "9")
    (change,) = (row for (topic, _), row in _changes(surveyor, plan).items() if topic == "old")
    assert (plan["moves"], plan["lower_bound"], plan["rejected"]) == (1, 1, 0)
    assert 9 not in change["replicas_after"]
    assert change["reason"].startswith("empties 9, racks 1 → 2: 9 → ")


def test_unplaceable_partitions_are_rejected(surveyor: Surveyor) -> None:
    """Topic late has three replicas, and two brokers remain."""
    plan = surveyor.json("plan", "reassign", "--remove-brokers", "2,3,4", "--topics", "orders|late")
    rejections = surveyor.warehouse.rows("rejections", ("plan_id", "=", plan["plan_id"]))
    after = {broker for replicas in _orders(surveyor, plan).values() for broker in replicas}
    assert (plan["status"], plan["rejected"], after) == ("planned", 1, {0, 1})
    assert [(row["topic"], row["partition"], row["code"]) for row in rejections] == [("late", 0, "TOO_FEW_BROKERS")]
    assert rejections[0]["reason"] == (
        "it would have more replicas than the 2 brokers that may hold them: "
        "allow more brokers or ask for fewer replicas"
    )


def test_remaining_replicas_of_an_emptied_broker_are_reported(surveyor: Surveyor) -> None:
    """Broker 2 holds four replicas of orders and one of late; topics gone and moving have some as well."""
    limited = surveyor("plan", "reassign", "--remove-brokers", "2", "--topics", "orders")
    lines = limited.stdout.splitlines()
    (number,) = (number for number, line in enumerate(lines) if "still holds" in line)
    assert lines[number] == ("  broker 2 still holds 2 replicas after this plan, so it is not empty: late 1, moving 1")
    assert not any(line.startswith("  ~") for line in lines[number:])


def test_what_is_gone_does_not_stop_the_rest(surveyor: Surveyor, tmp_path: Path) -> None:
    """A dead broker without replicas, and a deleted topic."""
    both = surveyor("plan", "reassign", "--remove-brokers", "2,7", "--topics", "orders", "--json")
    alone = surveyor.json("plan", "reassign", "--remove-brokers", "2", "--topics", "orders")
    assert (both.code, both.json["moves"]) == (0, alone["moves"])
    assert "brokers 7 are unknown" in both.stderr
    assert "planned for 2" in both.stderr
    file = input_file(tmp_path, {"version": 1, "topics": [{"topic": "orders"}, {"topic": "nowhere"}]})
    plan = surveyor.json("plan", "reassign", "--topics-to-move-json-file", file, "--broker-list", "2,3,4")
    assert (plan["status"], plan["moves"] > 0) == ("planned", True)
    assert _rejected(surveyor, plan) == {"nowhere--1": "UNKNOWN_TOPIC"}


def test_as_people_read_it(surveyor: Surveyor) -> None:
    shown = surveyor("plan", "reassign", "--add-brokers", "4", "--topics", "orders").stdout.splitlines()
    assert [line.strip().split(" (")[0] for line in shown[1:6]] == [
        "moves 5",
        "replicas per broker 0..9 → 2..7",
        "preferred leaders per broker 0..6 → 1..4",
        "leaders per broker 0..6 → 1..4",
        "replicas per rack a 11 → 9, b 8 → 10",
    ]


FOREIGN: list[tuple[object, str, dict[str, str]]] = [
    (reassignment_json(("orders", 0, [0, 3])), "orders-0: racks 2 → 1: [a]", {"orders-0": "RACKS_LOST"}),
]


@pytest.mark.parametrize(("content", "message", "codes"), FOREIGN)
def test_foreign_plan_that_fails_the_lint(
    surveyor: Surveyor, tmp_path: Path, content: object, message: str, codes: dict[str, str]
) -> None:
    command = ("plan", "reassign", "--reassignment-json-file", input_file(tmp_path, content))
    ran = surveyor(*command, "--json")
    assert (ran.code, message in ran.stderr, ran.json["status"]) == (23, True, "refused")
    assert _rejected(surveyor, ran.json) == codes
    assert surveyor.json(*command, "--disable-rack-aware")["status"] == "planned"


def test_dead_replica_that_stays_is_a_warning(surveyor: Surveyor, tmp_path: Path) -> None:
    ran = surveyor("plan", "reassign", "--reassignment-json-file", reassignment_file(tmp_path, ("old", 0, [1, 9])))
    assert ran.code == 0, ran.stderr
    unknown = "its rack is unknown, because no snapshot contains its registration; its replicas count as in no rack"
    assert ran.stdout.splitlines()[-4:-2] == [
        "  warning: 1 partition keeps a replica on a broker that is not live: old-0",
        f"  warning: broker 9: {unknown}",
    ]


WRONG: list[tuple[list[str], object, int, str]] = [
    ([], None, 2, "expected exactly one of --reassignment-json-file"),
    (["--rebalance", "--fix-racks"], None, 2, "not --rebalance and --fix-racks"),
    (["--rebalance", "--broker-list", "1"], None, 2, "must be given together"),
    (["--topics-to-move-json-file", "FILE"], {"topics": [{"topic": "orders"}]}, 2, "must be given together"),
    (["--topics-to-move-json-file", "FILE", "--broker-list", "1"], "{", 2, "truncated"),
    (["--topics-to-move-json-file", "FILE", "--broker-list", "1"], {"topics": []}, 2, "names no topic"),
    (["--topics-to-move-json-file", "FILE", "--broker-list", "1,2"], {"topics": [{"topic": "x"}]}, 23, "topics x are"),
    (["--reassignment-json-file", "FILE", "--max-moves", "1"], reassignment_json(), 2, "leave out --topics"),
    (["--fix-racks", "--disable-rack-aware"], None, 2, "contradict"),
    (["--rebalance", "--topics", "("], None, 2, "--topics '(' is not a regular expression"),
    (["--rebalance", "--topics", "orders, late"], None, 2, "expected one regular expression, as in 'orders|late'"),
    (["--rebalance", "--exclude", "orders,late"], None, 2, "--exclude 'orders,late': expected one regular expression"),
    (["--rebalance", "--topics", "none"], None, 23, "no partition of snapshot 1"),
    (["--add-brokers", "x"], None, 2, "--add-brokers 'x': expected ids as in 0,1,2"),
    (["--add-brokers", "7"], None, 23, "broker 7 is not live in snapshot 1; live are 0, 1, 2, 3, 4, 5"),
    (["--add-brokers", "9"], None, 23, "broker 9 is not live"),
    (["--add-brokers", "5"], None, 23, "/brokers/ids/5 is not understood"),
    (["--remove-brokers", "7"], None, 23, "brokers 7 are unknown"),
    (["--remove-brokers", "0,1,2,3,4"], None, 23, "no broker may hold replicas"),
    (
        ["--remove-brokers", "2,3,4", "--topics", "late"],
        None,
        23,
        "1 partition would have more replicas than the 2 brokers that may",
    ),
    (["--replace", "7"], None, 2, "expected a broker and its successor as in 7=107"),
    (["--replace", "2=2"], None, 2, "names a broker twice"),
    (["--replace", "2=7"], None, 23, "--replace: broker 7 is not live"),
    (["--replication-factor", "6", "--topics", "orders"], None, 23, "only 5 brokers may hold replicas"),
    (["--rebalance", "--snapshot", "99"], None, 2, "no snapshot 99"),
    (["--to-snapshot", "99"], None, 2, "no snapshot 99"),
]


@pytest.mark.usefixtures("unstarted")
def test_wrong_input_is_one_message(surveyor: Surveyor, tmp_path: Path) -> None:
    failures: list[Any] = []
    for arguments, content, code, message in WRONG:
        given = [input_file(tmp_path, content) if argument == "FILE" else argument for argument in arguments]
        ran = surveyor("plan", "reassign", *given)
        if (ran.code, message in ran.stderr, "Traceback" in ran.stderr) != (code, True, False):
            failures.append((arguments, ran.code, ran.stderr))
    assert failures == []
