"""Warnings of a plan that leaves fewer in-sync replicas than min.insync.replicas: shown, in a dry run, and applied."""

from pathlib import Path
from typing import Final

import pytest

from jobs.core.arrow_rows import StoredRows
from jobs.preconditions.min_isr import below_min_isr, judged_topics, short_lists
from jobs.repositories.plans.arrow_digest import plan_in_arrow
from jobs.repositories.warehouse_status import min_isr_by_topic
from schemas.rows import Change
from schemas.stored_plan import Plan
from schemas.znode_codecs import encode_config
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import write_first_snapshot
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.typed_rows import typed

ISRS: Final = {
    ("two", 0): ([0, 1, 2], [0], True),
    ("two", 1): ([0, 1, 2], [0, 1], False),
    ("two", 2): ([0], [0], False),
    ("one", 0): ([0, 1, 2], [0], False),
}
"""ISRs before and after; whether that is fewer than before and than min.insync.replicas, which are two and one."""

SAID: Final = "1 partition is left with fewer in sync than min.insync.replicas, so acks=all writes fail there: two-0"


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path) -> Surveyor:
    tree.add_topic("two", {partition: [0, 1, 2] for partition in range(3)})
    tree.add_topic("one", {0: [0, 1, 2]})
    tree.write("/config/topics/two", encode_config({"min.insync.replicas": "2"}))
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse", plans_on_stored=True)
    write_first_snapshot(surveyor)
    return surveyor


@pytest.fixture
def plan(tree: KafkaTree, surveyor: Surveyor) -> Plan:
    changes = [
        election(tree, *place, leader=0, isr_before=before, isr_after=after)
        for place, (before, after, _) in ISRS.items()
    ]
    return store_plan(surveyor.warehouse, tree, [*changes, creation("new", 0, [0])], [topic_creation("new")])


def stored(surveyor: Surveyor, plan: Plan) -> StoredRows:
    return surveyor.warehouse.rows_in_order("changes", ["topic"], ("plan_id", "=", plan.plan_id))


def test_partitions_left_with_too_few(surveyor: Surveyor, plan: Plan) -> None:
    """A new topic has the config of its plan."""
    few = [f"{topic}-{partition}" for (topic, partition), (_, _, warned) in ISRS.items() if warned]

    assert few == ["two-0"]
    minimum = min_isr_by_topic(surveyor.warehouse, 1, ["two", "one", "new"])
    assert minimum == {"two": 2, "one": 1}
    assert below_min_isr(minimum, stored(surveyor, plan)) == few


def test_topics_whose_isr_does_not_shrink_are_not_looked_up() -> None:
    kept = typed(topic="kept", isr_before=[0, 1], isr_after=[1, 0], action="elect")
    shrunk = typed(topic="shrunk", isr_before=[0, 1], isr_after=[1], action="elect")
    changes = StoredRows(plan_in_arrow("changes", [kept, shrunk, _reassigned("moved", 0, [3])]))

    assert judged_topics(changes) == {"shrunk", "moved"}


def _reassigned(topic: str, partition: int, replicas: list[int], wave: int = 0) -> Change:
    return typed(topic=topic, partition=partition, replicas_after=replicas, isr_after=replicas, wave=wave)


def test_short_replica_lists_are_judged_by_the_last_wave() -> None:
    waves = [
        _reassigned("two", 0, [3]),
        _reassigned("two", 1, [3], wave=0),
        _reassigned("two", 1, [3, 4], wave=1),
        _reassigned("one", 0, [3]),
    ]
    minimum = {"two": 2, "one": 1}
    changes = StoredRows(plan_in_arrow("changes", waves))

    assert (short_lists(minimum, changes), below_min_isr(minimum, changes)) == (["two-0"], [])


def test_broker_default_counts_without_a_topic_config(surveyor: Surveyor, plan: Plan) -> None:
    setting = {"name": "min.insync.replicas", "value": "3", "assumed": False}
    for row in surveyor.warehouse.rows("broker_configs", ("name", "=", "min.insync.replicas")):
        condition = f"name = 'min.insync.replicas' AND broker_id = {row['broker_id']}"
        surveyor.warehouse.replace("broker_configs", [row | setting], condition)
    newest = surveyor.warehouse.rows("snapshots")[0]
    versions = newest["versions"] | {"broker_configs": surveyor.warehouse.version("broker_configs")}
    surveyor.warehouse.replace("snapshots", [newest | {"versions": versions}])

    minimum = min_isr_by_topic(surveyor.warehouse, 1, ["two", "one"])
    assert below_min_isr(minimum, stored(surveyor, plan)) == ["one-0", "two-0"]


def test_no_warning_without_the_snapshot(surveyor: Surveyor, plan: Plan) -> None:
    assert below_min_isr(min_isr_by_topic(surveyor.warehouse, 7, ["two", "one"]), stored(surveyor, plan)) == []


def test_warning_is_shown_with_every_view_of_a_plan(tree: KafkaTree, surveyor: Surveyor) -> None:
    shrunk = election(tree, "two", 0, leader=0, isr_after=[0])
    plan = store_plan(surveyor.warehouse, tree, [shrunk])
    arguments = ("commit", plan.plan_id, "--mode", "batch", "--allow-silent", "0,1,2")

    assert f"  warning: {SAID}\n" in surveyor("show", "plan", plan.plan_id).stdout
    assert surveyor.json("show", "plan", plan.plan_id)["warnings"] == [SAID]
    assert f"  warning: {SAID}\n" in surveyor(*arguments).stdout
    assert tree.state("two").isr == [0, 1, 2]
    assert f"  warning: {SAID}\n" in surveyor(*arguments, "--apply").stderr
    assert tree.state("two").isr == [0]
