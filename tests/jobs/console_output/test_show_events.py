"""`surveyor show events`, and other lists that grow with time: the latest rows, with their time, and filters."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from schemas.rows import Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic

HOUR: Final = timedelta(hours=1)

EVENTS: Final[list[list[tuple[str, str, str | None, str | None]]]] = [
    [("TopicCreated", "orders", None, "1"), ("TopicCreated", "orders-1", None, "1"),
     ("BrokerJoined", "broker 2", None, "7")],
    [("LeaderChanged", "orders-1", "1", "2"), ("IsrShrunk", "orders-1", "[1, 2, 3]", "[2, 3]")],
    [("BrokerBounced", "broker 2", "7", "12"), ("ControllerMoved", "controller", "2", "0"),
     ("EpochGrew", "controller", "1", "2")],
]  # fmt: skip
"""Of three snapshots, an hour apart, the last one at NOW."""


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(2, 7)], [topic("orders"), topic("orders-1")]
    for number, events in enumerate(EVENTS):
        cluster.partitions = {("orders", 1): partition([1, 2], leader_epoch=number)}
        taken = cluster.snapshot(age=(len(EVENTS) - 1 - number) * HOUR)
        warehouse.replace("events", [_row(taken, *event) for event in events], f"snapshot_id = {taken}")
    return cluster


def _row(snapshot_id: int, kind: str, subject: str, before: str | None, after: str | None) -> Row:
    return {"snapshot_id": snapshot_id, "kind": kind, "subject": subject, "before": before, "after": after}


def _rows(surveyor: Surveyor, *options: str) -> list[Row]:
    rows: list[Row] = json.loads(surveyor.run("show", "events", *options, "--json").stdout)["rows"]
    return rows


FILTERS: Final[dict[str, list[str]]] = {
    "": [
        *("BrokerJoined", "TopicCreated", "TopicCreated", "IsrShrunk", "LeaderChanged"),
        *("BrokerBounced", "ControllerMoved", "EpochGrew"),
    ],
    "--kind TopicCreated": ["TopicCreated"] * 2,
    "--kind leaderchanged": ["LeaderChanged"],
    "--topic orders": ["TopicCreated", "IsrShrunk", "LeaderChanged"],
    "--topic orders-1": ["TopicCreated"],
    "--broker 1": ["IsrShrunk", "LeaderChanged"],
    "--broker 2": ["BrokerJoined", "LeaderChanged", "BrokerBounced", "ControllerMoved"],
    "--broker 3": [],
    "--broker 2 --topic orders": ["LeaderChanged"],
    f"--since {NOW - HOUR:%Y-%m-%dT%H:%M}": [
        *("IsrShrunk", "LeaderChanged", "BrokerBounced", "ControllerMoved", "EpochGrew")
    ],
    f"--since {NOW:%Y-%m-%dT%H:%M}Z --kind EpochGrew": ["EpochGrew"],
    "--since 99999w": [
        *("BrokerJoined", "TopicCreated", "TopicCreated", "IsrShrunk", "LeaderChanged"),
        *("BrokerBounced", "ControllerMoved", "EpochGrew"),
    ],
    "--snapshot 1 --broker 2": ["BrokerJoined"],
}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("options", "kinds"), FILTERS.items())
def test_events_that_match_all_filters(surveyor: Surveyor, options: str, kinds: list[str]) -> None:
    assert [row["kind"] for row in _rows(surveyor, *options.split())] == kinds


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--since yesterday", "--since 'yesterday' is no time: expected a duration, as 2h or 7d, or a time in UTC"),
        ("--since 999999w", "--since '999999w' is no time"),
        ("--topic nothing", "no topic 'nothing' in snapshot 3"),
        ("--kind Nothing", "Invalid value for '--kind'"),
    ],
)
def test_filters_that_match_nothing_by_mistake(surveyor: Surveyor, options: str, fault: str) -> None:
    ran = surveyor.run("show", "events", *options.split())
    assert (ran.exit_code, fault in " ".join(ran.stderr.split())) == (2, True), ran.stderr


def test_the_time_of_an_event_is_that_of_its_snapshot(surveyor: Surveyor, cluster: Cluster) -> None:
    rows = _rows(surveyor, "--kind", "EpochGrew")
    assert rows == [
        {"cluster": cluster.warehouse.cluster, "taken_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
        | _row(3, "EpochGrew", "controller", "1", "2")
    ]
    assert f"{NOW:%Y-%m-%d %H:%M:%S}" in surveyor.run("show", "events").stdout


def _events(cluster: Cluster) -> None:
    rows = [_row(3, "LeaderChanged", f"t-{number:04}", "1", "2") for number in range(1706)]
    cluster.warehouse.replace("events", rows, "snapshot_id > 0")


def _history(cluster: Cluster) -> None:
    cluster.warehouse.replace(
        "partition_history",
        [{**partition([1]), "snapshot_id": number, "topic": "orders", "partition": 1} for number in range(-1702, 3)],
        "snapshot_id < 3",
    )


def _snapshots(cluster: Cluster) -> None:
    taken = [{"snapshot_id": number, "taken_at": NOW, "controller_id": 0} for number in range(-1702, 1)]
    cluster.warehouse.append("snapshots", taken)


def _plans(cluster: Cluster) -> None:
    plans = [plan_record(plan_id=f"{n:04}", created_at=NOW + n * HOUR).columns() for n in range(1706)]
    cluster.warehouse.append("plans", plans)


def _commits(cluster: Cluster) -> None:
    cluster.warehouse.append("plans", [plan_record(plan_id="long").columns()])
    row = {"plan_id": "long", "action": "elect", "topic": "orders", "outcome": "applied", "committed_at": NOW}
    cluster.warehouse.append("commits", [{**row, "attempt": 1, "partition": number} for number in range(1706)])


@pytest.mark.parametrize(
    ("command", "fill", "first", "last", "remedy"),
    [
        ("events", _events, r"t-1506\b", r"t-1705\b", "--json gives all"),
        ("history --topic orders", _history, r"^-196\b", r"^3\b", "--json gives all"),
        ("snapshots", _snapshots, r"^-196\b", r"^3\b", "--json gives all"),
        ("plans", _plans, r"^1506\b", r"^1705\b", "--json gives all"),
        ("commits long", _commits, r"\b1506\b", r"\b1705\b", "`surveyor show commits long --all"),
    ],
)
def test_the_latest_rows_are_shown_and_the_cut_is_counted(  # noqa: PLR0913, PLR0917 - the columns of the table
    surveyor: Surveyor,
    cluster: Cluster,
    command: str,
    fill: Callable[[Cluster], None],
    first: str,
    last: str,
    remedy: str,
) -> None:
    fill(cluster)

    text = surveyor.run("show", *command.split()).stdout

    lines = [line.strip() for line in text.splitlines() if "│" in line]
    assert (len(lines), bool(re.search(first, lines[0])), bool(re.search(last, lines[-1]))) == (200, True, True), text
    assert f"the latest 200 of 1,706; {remedy}" in text
