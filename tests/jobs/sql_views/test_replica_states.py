"""The view `replicas` gives each replica the state that the planner's rule gives it, and states nothing unread."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.sql_views.database import Summaries
from planner.rules.state_machines import replica_state
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA
from schemas.response_codes import KAFKA_STORAGE_ERROR, NO_ERROR
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

EPOCH = 10
CASES = [*product((True, False), ("live", "opaque", "dead", "failed"), (True, False), (None, NO_ERROR, 3))]
"""Whether the topic is queued for deletion, the broker, whether the partition is new, the answer to StopReplica."""


def answer(broker_id: int, api: str, of: str, leader_epoch: int, error: int) -> Row:
    row: dict[str, Any] = {"broker_id": broker_id, "api": api, "topic": of, "partition": 0}
    return row | {"broker_epoch": EPOCH, "controller_epoch": 1, "leader_epoch": leader_epoch, "error": error}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A topic for each case, with one replica: live brokers are 0 and 3, and 3 has no log dir."""
    warehouse = Warehouse(str(tmp_path / "w"), "default")
    cluster, answers = Cluster(warehouse), list[Row]()
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
    warehouse.append("answers", answers)
    return warehouse


def test_states_are_those_of_the_rule(warehouse: Warehouse) -> None:
    expected = {
        f"t{number:03d}": replica_state(
            is_deleting=deleting,
            is_reachable=fate == "live",
            is_new=is_new,
            stop_replica_sent=stopped is not None,
            is_deleted=stopped == NO_ERROR,
        ).value
        for number, (deleting, fate, is_new, stopped) in enumerate(CASES)
    }
    expected |= {
        f"t{number:03d}": "not understood"  # the rule has no state for a broker that may be live
        for number, (deleting, fate, _, stopped) in enumerate(CASES)
        if fate == "opaque" and not (deleting and stopped == NO_ERROR)
    }

    rows = Summaries(warehouse, find_snapshot(warehouse)).rows("replicas")

    assert {row["topic"]: row["state"] for row in rows} == expected


def test_show_replicas(warehouse: Warehouse) -> None:
    surveyor = Surveyor("", Path(warehouse.uri))

    offline = surveyor.json("show", "replicas", "--state", "OfflineReplica", "--broker", "2")
    one = surveyor("show", "replicas", "--topic", "t000")

    assert {(row["broker_id"], row["state"]) for row in offline["rows"]} == {(2, "OfflineReplica")}
    assert len(offline["rows"]) == 6
    assert (one.code, "NewReplica" in one.stdout) == (0, True)
    assert surveyor("show", "replicas", "--topic", "nothing").code == 2


@pytest.fixture
def unread(tmp_path: Path) -> Surveyor:
    """A partition whose state is not understood, one led by a broker that is not, and topics without known replicas."""
    warehouse = Warehouse(str(tmp_path / "u"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, EPOCH), broker(1, EPOCH, understood=False)]
    cluster.topics = [topic("led"), topic("new"), topic("state"), *(topic(name, understood=False) for name in "xy")]
    cluster.partitions = {
        ("led", 0): partition([1, 0]),
        ("new", 0): partition([0], leader=None, isr=None),
        ("state", 0): partition([0], understood=False),
        ("x", 0): partition([0], understood=False) | {"replicas": []},
    }
    paths = ("/brokers/topics/x", "/brokers/topics/y", "/brokers/topics/state/partitions/0/state", "/brokers/ids/1")
    cluster.controller["quarantined"] = len(paths)
    cluster.quarantine = [{"path": path, "reason": "cut off"} for path in paths]
    cluster.snapshot()
    return Surveyor("", Path(warehouse.uri))


def test_what_is_not_understood_is_stated_as_no_fact(unread: Surveyor) -> None:
    shown = unread.json("show", "replicas")

    columns = ("topic", "broker_id", "state", "leads", "in_sync")
    assert [tuple(row[name] for name in columns) for row in shown["rows"]] == [
        ("led", 1, "not understood", True, True),
        ("led", 0, "OnlineReplica", False, True),
        ("new", 0, "NewReplica", False, False),
        ("state", 0, "not understood", None, None),
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), ["2 topics are not understood (x, y)"]),
        (("--topic", "x"), ["1 topic is not understood (x)"]),
        (("--topic", "y"), ["1 topic is not understood (y)"]),
        (("--topic", "state"), []),
    ],
)
@pytest.mark.parametrize("subject", ["replicas", "partitions"])
def test_topics_that_are_not_understood_are_named(
    unread: Surveyor, subject: str, options: tuple[str, ...], named: list[str]
) -> None:
    meaning = "may be missing here; `surveyor show quarantine`"

    warnings = unread.json("show", subject, *options)["warnings"]
    done = unread("show", subject, *options)

    assert [(text.partition(":")[0], text.endswith(meaning)) for text in warnings] == [(text, True) for text in named]
    assert done.stderr.count(meaning) == len(named)


def test_a_choice_of_a_state_says_what_it_leaves_out(unread: Surveyor) -> None:
    offline = unread("show", "replicas", "--state", "OfflineReplica")
    on_0 = unread("show", "replicas", "--state", "OfflineReplica", "--broker", "0")

    assert "not understood, so of unknown state: 2 replicas" in offline.stdout
    assert "not understood, so of unknown state: 1 replica\n" in on_0.stdout
    assert "unknown state" not in unread("show", "replicas").stdout
