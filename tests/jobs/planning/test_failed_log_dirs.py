"""Stored responses with error 56: a cycle skips the replica that sent it, and stops when no replica is left."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.broker_responses import event_lines, failed_replicas, record
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.snapshots import find_snapshot
from schemas.enums import NO_LEADER
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

T: Final = "t"
BATCH: Final = ("--mode", "batch", "--max-hold", "1s", "--apply")

# seconds, error, other columns -> whether broker 1 counts as failed
ANSWERS: Final[list[tuple[list[tuple[int, int, dict[str, object]]], bool]]] = [
    ([], False),
    ([(0, 56, {})], True),
    ([(0, 0, {}), (1, 56, {})], True),
    ([(0, 56, {}), (1, 0, {})], False),
    ([(0, 56, {}), (1, 0, {}), (2, 56, {})], True),
    ([(0, 56, {}), (1, 11, {}), (2, -1, {}), (3, 77, {})], True),
    ([(0, 56, {}), (1, 0, {"partition": 1}), (1, 0, {"broker_id": 2}), (1, 0, {"topic": "u"})], True),
    ([(0, 56, {"broker_epoch": 100})], False),
    ([(0, 56, {}), (1, 56, {"broker_epoch": 100})], False),
    ([(0, 56, {"broker_id": 9})], False),
    ([(0, 56, {"api": "StopReplica"})], False),
]


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(1, 101), broker(2, 102)]
    return cluster


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("answers", "failed"), ANSWERS)
def test_the_last_word_of_the_present_registration_counts(
    cluster: Cluster,
    answers: list[tuple[int, int, dict[str, object]]],
    failed: bool,  # noqa: FBT001 - from the table
    one_by_one: bool,  # noqa: FBT001 - from the table
) -> None:
    """Whether recorded one by one, or all appended as an older version did."""
    common = {"broker_id": 1, "api": "LeaderAndIsr", "topic": T, "partition": 0, "broker_epoch": 101, "leader_epoch": 6}
    rows = [common | {"at": NOW + timedelta(seconds=at), "error": error} | more for at, error, more in answers]
    if one_by_one:
        for row in rows:
            named = [row | {"cluster": cluster.warehouse.cluster}]
            record(cluster.warehouse, pa.Table.from_pylist(named, schema=schema_of("answers")))
    else:
        cluster.warehouse.append("answers", rows)
    cluster.snapshot()

    replicas = failed_replicas(cluster.warehouse, find_snapshot(cluster.warehouse))

    assert [(row.broker_id, row.topic, row.partition, row.leader_epoch) for row in replicas] == (
        [(1, T, 0, 6)] if failed else []
    )


def test_a_log_dir_event_is_shown(cluster: Cluster) -> None:
    event = {"kind": "log_dir", "broker_id": 2, "path": "/log_dir_event_notification/log_dir_event_0000000000"}
    cluster.warehouse.replace("requests", [event | {"snapshot_id": 1}])
    cluster.snapshot()

    (line,) = event_lines(cluster.warehouse, find_snapshot(cluster.warehouse))

    assert line.startswith("broker 2 reports a failed log dir, and no controller has asked it yet")


def cycle(surveyor: Surveyor, *arguments: str) -> tuple[list[tuple[str, int]], Any]:
    """Snapshot and plan; return the rows planned, and the plan."""
    plan = read_plan(surveyor.warehouse, surveyor.json("plan", "reconcile", *arguments)["plan_id"])
    return [(change.action, change.leader_after) for change in plan.changes], plan


@pytest.mark.usefixtures("spark")
def test_no_replica_is_elected_twice_whose_log_dir_failed(
    tree: KafkaTree, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    surveyor = Surveyor(tree.hosts, tmp_path / "warehouse", pace=NO_TAKEOVER)
    tree.add_topic(T, {0: [1, 0, 2]})
    state = State(controller_epoch=1, leader=NO_LEADER, leader_epoch=3, isr=[1, 0])
    tree.write(state_path(T, 0), encode_state(state))
    elected = []
    for failing in (1, 0):
        fake_brokers[failing].errors[T, 0] = 56
        due, plan = cycle(surveyor)
        elected += due
        done = surveyor("commit", plan.plan_id, *BATCH)
        assert (done.code, "1 partition has no leader (t-0)" in done.stderr) == (1, True)
        assert surveyor.json("show", "plan", plan.plan_id)["status"] == "partial"

    due, plan = cycle(surveyor)

    assert (elected, due) == ([("elect", 1), ("elect", 0)], [("take_offline", NO_LEADER)])
    assert (plan.rejections[0].reason or "").endswith("failed log dir on broker 0, 1 (error 56)")
    unclean = read_plan(surveyor.warehouse, surveyor.json("plan", "reconcile", "--allow-unclean")["plan_id"])
    assert [(change.leader_after, change.isr_after) for change in unclean.changes] == [(2, [2])]
