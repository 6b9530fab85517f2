"""`surveyor export`: Kafka's bytes, the last wave, and refusals; and what Kafka's tool printed, read again."""

import json
from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import RefusedError
from jobs.runtime.input_files import read_reassignment
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

KAFKAS = (
    '{"version":1,"partitions":['
    '{"topic":"b.ar","partition":2,"replicas":[2,0],"log_dirs":["any","any"]},'
    '{"topic":"b.ar","partition":10,"replicas":[0],"log_dirs":["any"]},'
    '{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
)
"""As ReassignPartitionsCommand of 3.9.2 prints it."""


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """A partition moves twice, and another one has an election only."""
    tree.add_topic("foo", {0: [0, 1], 1: [0, 1]})
    tree.add_topic("b.ar", {partition: [0, 1] for partition in range(11)})
    changes = [
        reassignment(tree, "foo", 0, [1, 2], wave=1, before=[0, 2]),
        reassignment(tree, "foo", 0, [0, 2]),
        reassignment(tree, "b.ar", 10, [0]),
        reassignment(tree, "b.ar", 2, [2, 0]),
        election(tree, "foo", 1, leader=1),
    ]
    return store_plan(warehouse, tree, changes, name="moves")


@pytest.mark.usefixtures("plan")
def test_to_the_byte_as_kafka_writes_it(surveyor: Surveyor, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"

    stdout = surveyor.run("export", "moves", "--format", "kafka").stdout
    surveyor.run("export", "moves", "--out", str(file))

    assert (stdout, file.read_text()) == (f"{KAFKAS}\n", f"{KAFKAS}\n")


def test_json_is_one_object(surveyor: Surveyor, plan: Plan) -> None:
    exported = json.loads(surveyor.run("export", "moves", "--json").stdout)
    options = f"--warehouse {surveyor.warehouse.uri}"
    assert [step["command"] for step in exported.pop("next")] == [f"surveyor verify moves {options}"]

    assert exported == {
        "plan_id": plan.plan_id,
        "format": "kafka",
        "partitions": 3,
        "file": None,
        "reassignment": json.loads(KAFKAS),
    }


# flags -> partitions and replicas
PARTS: list[tuple[tuple[str, ...], list[tuple[str, int, list[int]]]]] = [
    (("--wave", "0"), [("b.ar", 2, [2, 0]), ("b.ar", 10, [0]), ("foo", 0, [0, 2])]),
    (("--wave", "1"), [("foo", 0, [1, 2])]),
    (("--wave", "1", "--inverse"), [("foo", 0, [0, 2])]),
    (("--wave", "0", "--inverse"), [("b.ar", 2, [0, 1]), ("b.ar", 10, [0, 1]), ("foo", 0, [0, 1])]),
    (("--inverse",), [("b.ar", 2, [0, 1]), ("b.ar", 10, [0, 1]), ("foo", 0, [0, 1])]),
]


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(("flags", "expected"), PARTS)
def test_a_wave_and_what_takes_it_back(
    surveyor: Surveyor, flags: tuple[str, ...], expected: list[tuple[str, int, list[int]]]
) -> None:
    rows = json.loads(surveyor.run("export", "moves", *flags).stdout)["partitions"]

    assert [(row["topic"], row["partition"], row["replicas"]) for row in rows] == expected


@pytest.mark.usefixtures("plan")
def test_as_kafka_generates(surveyor: Surveyor, tmp_path: Path) -> None:
    """What it prints can be planned from: the proposal is found in it."""
    file = tmp_path / "generated.txt"
    file.write_text(surveyor.run("export", "moves", "--format", "kafka-generate").stdout)

    first, now, blank, second, proposed = file.read_text().splitlines()

    assert (first, blank) == ("Current partition replica assignment", "")
    assert (second, proposed) == ("Proposed partition reassignment configuration", KAFKAS)
    assert [row["replicas"] for row in json.loads(now)["partitions"]] == [[0, 1], [0, 1], [0, 1]]
    assert [row.replicas for row in read_reassignment(file)] == [[2, 0], [0], [1, 2]]


def test_refused_plan_is_not_exported(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    tree.add_topic("foo", {0: [0, 1]})
    plan = store_plan(warehouse, tree, [reassignment(tree, "foo", 0, [1, 2])], status="refused")

    done = surveyor.run("export", plan.plan_id)

    assert (done.exit_code, done.stdout, "is refused" in done.stderr) == (23, "", True)


def test_plan_that_moves_nothing_is_refused(tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor) -> None:
    tree.add_topic("foo", {0: [0, 1]})
    plan = store_plan(warehouse, tree, [election(tree, "foo", 0, leader=1)])

    done = surveyor.run("export", plan.plan_id)

    assert (done.exit_code, done.stdout, "moves no replicas" in done.stderr) == (23, "", True)


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--format", "yaml"), "yaml"),
        (("--out", "/no/such/file"), "cannot be written"),
        (("--wave", "2"), "has no wave 2; its waves are 0, 1"),
    ],
)
def test_usage(surveyor: Surveyor, flags: tuple[str, ...], message: str) -> None:
    done = surveyor.run("export", "moves", *flags)

    assert (done.exit_code, done.stdout, message in done.stderr) == (2, "", True)


def test_log_dirs_are_not_ignored_silently(tmp_path: Path) -> None:
    path = tmp_path / "reassignment.json"
    path.write_text(KAFKAS.replace('["any"]', '["/data/1"]'))

    with pytest.raises(RefusedError, match=r"wants log dirs for b\.ar-10 \(/data/1\)"):
        read_reassignment(path)
