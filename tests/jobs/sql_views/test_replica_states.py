"""The view `replicas` gives each replica the state that the planner's rule gives it."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.sql_views.database import Summaries
from planner.reconciliation.replica_states import with_state
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA
from schemas.response_codes import KAFKA_STORAGE_ERROR, NONE
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.lake_rows import Cluster, broker, partition, topic
from tests.planner.frames import as_rows

EPOCH = 10
CASES = [*product((True, False), ("live", "opaque", "dead", "failed"), (True, False), (None, NONE, 3))]
"""Whether the topic is queued for deletion, the broker, whether the partition is new, the answer to StopReplica."""


def answer(broker_id: int, api: str, of: str, leader_epoch: int, error: int) -> Row:
    row: dict[str, Any] = {"broker_id": broker_id, "api": api, "topic": of, "partition": 0}
    return row | {"broker_epoch": EPOCH, "controller_epoch": 1, "leader_epoch": leader_epoch, "error": error}


@pytest.fixture
def lake(tmp_path: Path) -> Warehouse:
    """A topic for each case, with one replica: live brokers are 0 and 3, and 3 has no log dir."""
    lake = Warehouse(str(tmp_path / "w"), "default")
    cluster, answers = Cluster(lake), list[Row]()
    cluster.brokers = [broker(0, EPOCH), broker(1, EPOCH, understood=False), broker(3, EPOCH)]
    ids = {"live": 0, "opaque": 1, "dead": 2, "failed": 3}
    for number, (deleting, fate, is_new, stopped) in enumerate(CASES):
        name, held = f"t{number:03d}", ids[fate]
        cluster.topics.append(topic(name, deletion_requested=deleting))
        state = {"leader": None, "isr": None} if is_new else {"leader": held, "isr": [held]}
        cluster.partitions[name, 0] = partition([held], **state)
        if stopped is not None:
            answers.append(answer(held, STOP_REPLICA, name, -2, stopped))
        if fate == "failed":
            answers.append(answer(held, LEADER_AND_ISR, name, 5, KAFKA_STORAGE_ERROR))
    cluster.snapshot()
    lake.append("answers", answers)
    return lake


def test_states_are_those_of_the_rule(spark: SparkSession, lake: Warehouse) -> None:
    worlds = [
        (f"t{number:03d}", True, deleting, fate == "live", is_new, stopped is not None, stopped == NONE)
        for number, (deleting, fate, is_new, stopped) in enumerate(CASES)
    ]
    flags = ("assigned", "deletion_requested", "in_reach", "is_new", "told", "deleted")
    frame = spark.createDataFrame(worlds, ", ".join(["topic string", *(f"{name} boolean" for name in flags)]))
    expected = {row["topic"]: row["state"] for row in as_rows(frame.transform(with_state))}

    rows = Summaries(lake, find_snapshot(lake)).rows("replicas")

    assert {row["topic"]: row["state"] for row in rows} == expected


def test_show_replicas(lake: Warehouse) -> None:
    surveyor = Surveyor("", Path(lake.warehouse))

    offline = surveyor.json("show", "replicas", "--state", "OfflineReplica", "--broker", "2")
    one = surveyor("show", "replicas", "--topic", "t000")

    assert {(row["broker_id"], row["state"]) for row in offline["rows"]} == {(2, "OfflineReplica")}
    assert len(offline["rows"]) == 6
    assert (one.code, "NewReplica" in one.stdout) == (0, True)
    assert surveyor("show", "replicas", "--topic", "nothing").code == 2
