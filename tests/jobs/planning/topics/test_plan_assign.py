"""`surveyor plan assign --topics-json-file`: many topics in one plan, and all faults reported at once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.input_files import input_file
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

pytestmark = pytest.mark.usefixtures("spark")

TopicRequest = dict[str, Any]


def _surveyor(folder: Path, racks: str = "") -> Surveyor:
    """Brokers 0 to 3, in these racks; topics orders and a.b, which have no partitions, and done exist."""
    cluster = Cluster(Warehouse(str(folder), "default"))
    named = dict(enumerate(racks))
    cluster.brokers = [broker(number, 100 + number, rack=named.get(number)) for number in (3, 1, 0, 2)]
    cluster.topics = [topic("orders"), topic("a.b"), topic("done", config={"retention.ms": "1"})]
    cluster.partitions = {("done", 0): partition([0, 1]), ("done", 1): partition([1, 2])}
    cluster.snapshot()
    return Surveyor("", folder)


@pytest.fixture(scope="module")
def surveyor(tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    return _surveyor(tmp_path_factory.mktemp("assign") / "warehouse")


def _sized(name: str, partitions: int = 1, factor: int = 1, **more: object) -> TopicRequest:
    return {"topic": name, "partitions": partitions, "replication_factor": factor, **more}


def _placed(surveyor: Surveyor, *arguments: str) -> dict[str, list[list[int]]]:
    """Plan, and return the replicas of each topic's partitions."""
    plan = read_plan(surveyor.warehouse, surveyor.json("plan", "assign", *arguments)["plan_id"])
    refuse_edited(plan)
    placed: dict[str, list[list[int]]] = {}
    for change in plan.changes:
        placed.setdefault(change.topic, []).append(change.replicas_after)
    return placed


def test_many_topics_in_one_plan(surveyor: Surveyor, tmp_path: Path) -> None:
    """In order of names: a starts at the first broker, b where a ended, as one topic of both sizes would."""
    by_hand = {"topic": "c", "replica_assignment": [[3, 0], [0, 1]]}
    topics = [by_hand, _sized("b", 3, 2, config={"retention.ms": "1"}), _sized("a", 2, 2)]
    first = ("--start-index", "0", "--shift", "0")

    placed = _placed(surveyor, "--topics-json-file", input_file(tmp_path, topics), *first, "--name", "many")

    assert placed == {"a": [[0, 1], [1, 2]], "b": [[2, 3], [3, 0], [0, 1]], "c": [[3, 0], [0, 1]]}
    plan = read_plan(surveyor.warehouse, "many")
    operations = [(op.sequence, op.kind, op.topic, json.loads(op.data)) for op in plan.operations]
    ids = {change.topic: change.topic_id for change in plan.changes}
    assert len(set(ids.values())) == len(ids)
    assert operations == [
        (0, "create_topic", "a", {"topic_id": ids["a"], "config": {}}),
        (1, "create_topic", "b", {"topic_id": ids["b"], "config": {"retention.ms": "1"}}),
        (2, "create_topic", "c", {"topic_id": ids["c"], "config": {}}),
    ]


def test_the_order_of_the_file_is_no_matter(surveyor: Surveyor, tmp_path: Path) -> None:
    listed = [_sized("a", 5, 2), _sized("b", 3, 3), {"topic": "c", "replica_assignment": [[0]]}]
    plans = [
        surveyor.json("plan", "assign", "--topics-json-file", input_file(tmp_path, topics))
        for topics in (listed, listed[::-1], listed)
    ]
    assert plans[0] == plans[1] == plans[2]


def test_small_topics_do_not_pile_up(surveyor: Surveyor, tmp_path: Path) -> None:
    topics = [_sized(f"small-{number}", 1, 2) for number in range(12)]

    placed = _placed(surveyor, "--topics-json-file", input_file(tmp_path, topics)).values()

    assert Counter(replicas[0][0] for replicas in placed) == dict.fromkeys(range(4), 3)
    assert Counter(replicas[0][1] for replicas in placed) == dict.fromkeys(range(4), 3)


def test_one_topic_lands_where_the_command_line_puts_it(surveyor: Surveyor, tmp_path: Path) -> None:
    placed = _placed(surveyor, "--topics-json-file", input_file(tmp_path, [_sized("t", 9, 3)]))
    assert placed == _placed(surveyor, "--topic", "t", "--partitions", "9", "--replication-factor", "3")


def test_options_hold_for_all_topics(surveyor: Surveyor, tmp_path: Path) -> None:
    file = input_file(tmp_path, [_sized("a", 2, 2), _sized("b", 2, 2)])

    placed = _placed(surveyor, "--topics-json-file", file, "--brokers", "3,1,0", "--strategy", "simple")

    assert placed == {"a": [[3, 1], [1, 0]], "b": [[3, 1], [1, 0]]}


def test_topics_spread_over_racks(tmp_path: Path) -> None:
    racked = _surveyor(tmp_path / "warehouse", racks="aabb")
    file = input_file(tmp_path, [_sized("a", 6, 2), _sized("b", 5, 3)])

    placed = _placed(racked, "--topics-json-file", file)

    pairs = [{replica // 2 for replica in replicas} for listed in placed.values() for replicas in listed]
    assert pairs == [{0, 1}] * 11


DONE: Final[list[tuple[list[TopicRequest], int]]] = [
    ([_sized("done", 2, 2)], 0),
    ([_sized("done", 2, 2, config={"retention.ms": "1"})], 0),
    ([{"topic": "done", "replica_assignment": [[0, 1], [1, 2]]}], 0),
    ([{"topic": "done", "replica_assignment": [[0, 1], [2, 1]]}], 23),
    ([_sized("done", 2, 2, config={"retention.ms": "2"})], 23),
    ([_sized("done", 3, 2)], 23),
    ([_sized("done", 2, 2), _sized("t")], 23),
]


@pytest.mark.parametrize(("topics", "code"), DONE)
def test_only_a_topic_that_exists_as_requested_is_nothing_to_do(
    surveyor: Surveyor, tmp_path: Path, topics: list[TopicRequest], code: int
) -> None:
    ran = surveyor("plan", "assign", "--topics-json-file", input_file(tmp_path, topics))
    assert (ran.code, "nothing is due" in ran.stdout, "done exists" in ran.stderr) == (code, not code, bool(code))


SPOKEN: Final = [
    (["2.8-IV1", "3.9-IV0"], True),
    (["2.7-IV2", "3.9-IV0"], False),
    (["2.8-IV0"], False),
    (["2.7", None], False),
    (["3.9", None], True),  # existing topics have ids
]


@pytest.mark.parametrize(("spoken", "known"), SPOKEN)
def test_topics_get_ids_where_brokers_know_of_them(tmp_path: Path, spoken: list[str | None], known: bool) -> None:  # noqa: FBT001
    cluster = Cluster(Warehouse(str(tmp_path / "warehouse"), "default"))
    cluster.brokers, cluster.topics = [broker(0, 100), broker(1, 101)], [topic("orders")]
    name = {"name": "inter.broker.protocol.version", "snapshot_id": 1}
    rows = [name | {"broker_id": at, "value": value, "assumed": not value} for at, value in enumerate(spoken)]
    cluster.broker_configs = rows
    cluster.snapshot()
    surveyor = Surveyor("", tmp_path / "warehouse")

    planned = surveyor.json("plan", "assign", "--topic", "t", "--partitions", "1", "--replication-factor", "1")

    plan = read_plan(surveyor.warehouse, planned["plan_id"])
    ids = {plan.changes[0].topic_id, json.loads(plan.operations[0].data)["topic_id"]}
    assert (len(ids), ids != {None}) == (1, known)


ONE: Final = _sized("t")
FILES: Final = [
    ("{", 2, "truncated"),
    ("[]", 2, "names no topic"),
    ({"topics": []}, 2, "Expected `array`, got `object`"),
    ([_sized("t", 0)], 2, ">= 1"),
    ([{"topic": "t", "partitons": 1}], 2, "unknown field `partitons`"),
    ([_sized("t", config={"retention.ms": "abc"})], 2, "topic t: config: retention.ms='abc': expected a whole number"),
    ([_sized("t", config={"retention.sm": "1"})], 2, "topic t: config: retention.sm is not a topic config"),
    ([_sized("t", config={"a": 1})], 2, "Expected `str`, got `int`"),
    ([{"topic": "t", "replica_assignment": [[]]}], 2, "length >= 1"),
    ([{"topic": "t"}], 2, "topic t: expected partitions and replication_factor, or replica_assignment"),
    ([{"topic": "t", "partitions": 1, "replica_assignment": [[0]]}], 2, "topic t: replica_assignment sets the sizes"),
    ([ONE, ONE, _sized("u")], 2, "topic t is requested 2 times"),
    ([_sized("a/b")], 2, "'a/b' is not a topic name"),
    ([_sized("orders")], 23, "topic orders exists in snapshot 1"),
    ([_sized("a_b")], 23, "topic a_b collides with a.b"),
    ([_sized("x.y"), _sized("x_y")], 23, "topic x.y collides with x_y"),
    ([_sized("__cluster_metadata")], 23, "KRaft's own log"),
    ([_sized("t", 1, 5)], 23, "topic t: replication factor 5 is larger than the 4 brokers"),
    ([_sized("t", 99999, 3)], 23, "/brokers/topics/t would take about"),
    ([{"topic": "t", "replica_assignment": [[0, 9]]}], 23, "topic t: brokers 9 are not live"),
    ([{"topic": "t", "replica_assignment": [[0, 0]]}], 23, "topic t: partition 0 names a broker twice"),
    ([{"topic": "t", "replica_assignment": [[0, 1], [0]]}], 23, "partition 1 has 1 replica, partition 0 has 2"),
]


@pytest.mark.parametrize(("content", "code", "fault"), FILES)
def test_bad_file(surveyor: Surveyor, tmp_path: Path, content: object, code: int, fault: str) -> None:
    before = surveyor.rows("plans", "plan_id")

    ran = surveyor("plan", "assign", "--topics-json-file", input_file(tmp_path, content))

    assert (ran.code, ran.stdout, fault in ran.stderr, "Traceback" in ran.stderr) == (code, "", True, False), ran.stderr
    assert surveyor.rows("plans", "plan_id") == before


def test_all_faults_are_said_at_once(surveyor: Surveyor, tmp_path: Path) -> None:
    refused = [_sized("orders", 1, 9), _sized("fine"), _sized("a_b")]
    ran = surveyor("plan", "assign", "--topics-json-file", input_file(tmp_path, refused), "--brokers", "0,7")
    assert ran.code == 23
    for fault in ("4 faults, nothing was planned", "orders exists", "a_b collides", "brokers 7 are not", "factor 9"):
        assert fault in ran.stderr

    meant = [*refused, {"topic": "bad\u001b[31m name"}]
    ran = surveyor("plan", "assign", "--topics-json-file", input_file(tmp_path, meant))
    assert (ran.code, "5 faults" in ran.stderr, "\u001b" in ran.stderr) == (2, True, False), ran.stderr


def test_some_brokers_without_a_rack(tmp_path: Path) -> None:
    half = _surveyor(tmp_path / "warehouse", racks="ab")
    file = input_file(tmp_path, [_sized("a", 2, 2), _sized("orders")])

    ran = half("plan", "assign", "--topics-json-file", file)

    assert ran.code == 23
    assert "brokers 2, 3 have no rack, brokers 0, 1 do" in ran.stderr
    assert "orders exists" in ran.stderr
    by_hand = input_file(tmp_path, [{"topic": "h", "replica_assignment": [[2, 3]]}])
    assert _placed(half, "--topics-json-file", by_hand) == {"h": [[2, 3]]}


CONFLICTING_OPTIONS: Final = [
    (("--topic", "t"), "leave out --topic"),
    (("--partitions", "1", "--config", "a=b"), "leave out --partitions, --config"),
    (("--replica-assignment", "0"), "leave out --replica-assignment"),
]


@pytest.mark.parametrize(("arguments", "message"), CONFLICTING_OPTIONS)
def test_the_file_says_it_all(surveyor: Surveyor, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = surveyor("plan", "assign", "--topics-json-file", input_file(tmp_path, [ONE]), *arguments)
    assert (ran.code, message in ran.stderr) == (2, True)


def test_some_topic_has_to_be_said(surveyor: Surveyor) -> None:
    ran = surveyor("plan", "assign", "--partitions", "1", "--replication-factor", "1")
    assert (ran.code, "--topic, or --topics-json-file" in ran.stderr) == (2, True)
