"""The views for people: what each says of a small cluster that has lived through something."""

from collections import Counter
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.repositories.snapshots import find_snapshot
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import health_of
from jobs.sql_views.database import Summaries
from jobs.sql_views.views import VIEWS
from jobs.web.snapshot_views import summaries
from schemas.columns import TABLE_COLUMNS
from schemas.rows import LastSeenBroker, Row, Snapshot
from tests.jobs.support.rows.page_rows import HOSTILE, lived_in
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster, broker, partition, topic

BACK: Final = ("cancel", "restore_order")

EXPECTED: Final[dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]] = {
    "health": (
        ("snapshot_id", "brokers", "brokers_gone", "racks", "topics", "partitions", "offline", "under_replicated"),
        [(3, 3, 1, 2, 2, 3, 1, 2)],
    ),
    "partition_health": (
        ("topic", "partition", "judged", "is_offline", "is_under_replicated", "is_reassigned", "missing"),
        [
            (HOSTILE, 0, True, False, True, False, [3]),
            ("orders", 0, True, False, False, False, []),
            ("orders", 1, True, True, True, False, [3]),
        ],
    ),
    "staying": (("topic", "partition"), [(HOSTILE, 0), ("orders", 0), ("orders", 1)]),
    "leadership": (
        ("broker_id", "rack", "registered", "leaders", "preferred", "replicas", "out_of_sync"),
        [
            (0, "a", True, 1, 1, 2, 0),
            (1, "a", True, 1, 0, 1, 0),
            (2, None, False, 0, 2, 2, 0),
            (3, HOSTILE, True, 0, 0, 2, 2),
        ],
    ),
    "leader_history": (
        ("topic", "partition", "leader", "leader_before", "changed", "from_snapshot", "until_snapshot"),
        [
            ("orders", 1, -1, 2, True, 3, None),
            ("orders", 0, 1, 2, True, 2, None),
            (HOSTILE, 0, 0, None, False, 1, None),
            ("orders", 0, 2, None, False, 1, 2),
            ("orders", 1, 2, None, False, 1, 3),
        ],
    ),
    "leaders_over_time": (
        ("snapshot_id", "broker_id", "leaders", "presence"),
        [
            (1, 0, 1, "registered"),
            (1, 1, 0, "registered"),
            (1, 2, 2, "registered"),
            (1, 3, 0, "not there"),
            (2, 0, 1, "registered"),
            (2, 1, 1, "registered"),
            (2, 2, 1, "registered"),
            (2, 3, 0, "registered"),
            (3, 0, 1, "registered"),
            (3, 1, 1, "registered"),
            (3, 2, 0, "gone"),
            (3, 3, 0, "registered"),
        ],
    ),
    "imbalance_history": (
        ("snapshot_id", "broker_id", "ratio", "exceeds"),
        [
            (1, 0, 0.0, False),
            (1, 2, 0.0, False),
            (2, 0, 0.0, False),
            (2, 2, 0.5, True),
            (3, 0, 0.0, False),
            (3, 2, 1.0, True),
        ],
    ),
    "plan_summary": (
        ("names", "kind", "status", "changes", "rejected", "topics", "why", "reasons", "attempts"),
        [(["grow"], "reassign", "planned", 2, 1, 2, "evens out", 1, 2)],
    ),
    "commit_rows": (
        ("attempt", "kind", "action", "topic", "outcome"),
        [
            (1, "commit", "reassign", "orders", "applied"),
            (1, "commit", "reassign", HOSTILE, "stale"),
            (2, "commit", "reassign", "orders", "pending"),
        ],
    ),
    "commit_log": (
        ("attempt", "kind", "names", "plan_kind", "changes", "outcome", "applied", "stale", "failed", "pending"),
        [
            (2, "commit", ["grow"], "reassign", 2, "pending", 0, 0, 0, 1),
            (1, "commit", ["grow"], "reassign", 2, "stale", 1, 1, 0, 0),
        ],
    ),
    "under_replicated": (
        ("topic", "partition", "partition_state", "missing", "offline_replicas"),
        [("orders", 1, "Offline", [3], [2]), (HOSTILE, 0, "Online", [3], None)],
    ),
    "replicas": (
        ("topic", "partition", "broker_id", "state", "preferred", "leads", "in_sync"),
        [
            (HOSTILE, 0, 0, "OnlineReplica", True, True, True),
            (HOSTILE, 0, 3, "OnlineReplica", False, False, False),
            ("orders", 0, 2, "OfflineReplica", True, False, True),
            ("orders", 0, 0, "OnlineReplica", False, False, True),
            ("orders", 0, 1, "OnlineReplica", False, True, True),
            ("orders", 1, 2, "OfflineReplica", True, False, True),
            ("orders", 1, 3, "OnlineReplica", False, False, False),
        ],
    ),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("views") / "warehouse"), "default")
    lived_in(warehouse)
    return warehouse


def test_every_view_has_its_case() -> None:
    assert EXPECTED.keys() == VIEWS.keys()


@pytest.mark.parametrize("view", VIEWS)
def test_what_a_view_says(warehouse: Warehouse, view: str) -> None:
    columns, rows = EXPECTED[view]
    actual = Summaries(warehouse, find_snapshot(warehouse)).rows(view)
    if view in {"partition_health", "staying"}:  # others are made of the first, and they have no order
        actual.sort(key=itemgetter(*columns))
    assert [tuple(row[column] for column in columns) for row in actual] == rows


def test_deleted_or_unreadable_topics_are_no_trouble_as_in_status(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, 10 + number) for number in range(2)]
    cluster.topics = [topic("going", deletion_requested=True), topic("kept")]
    bad = {"leader": 1, "isr": [1], "under_replicated": True, "under_min_isr": True, "understood": True}
    cluster.partitions = {
        ("going", 0): partition([0, 1], **bad),
        ("kept", 0): partition([0, 1], **bad),
        ("kept", 1): partition([0, 1], **bad | {"understood": False}),
    }
    cluster.snapshot()
    snapshot = find_snapshot(warehouse)

    at = Summaries(warehouse, snapshot)
    (shown,) = at.rows("health")
    health = health_of(view_of(warehouse, snapshot), default_min_isr=2, threshold=0.1)
    trouble = ("offline", "under_replicated", "under_min_isr", "not_understood", "deleting_topics", "partitions")
    assert {name: shown[name] for name in trouble} == {name: getattr(health, name) for name in trouble}
    assert (shown["under_replicated"], shown["not_led_by_preferred"]) == (1, health.imbalance[0].not_led)
    assert [(row["topic"], row["partition"]) for row in at.rows("under_replicated")] == [("kept", 0)]
    of_broker = at.rows("leadership")[0]
    assert [of_broker[name] for name in ("preferred", "replicas", "out_of_sync")] == [2, 3, 1]


def test_a_broker_that_is_gone_is_as_last_seen(warehouse: Warehouse) -> None:
    """Its host and rack are those that a snapshot before kept; as of an older snapshot it is there."""
    copy = Warehouse(f"{warehouse.uri}-seen", "default")
    copytree(warehouse.uri, copy.uri)
    last_seen = LastSeenBroker(broker_id=2, broker_epoch=2, snapshot_id=2, host="k2", rack="b", last_seen_at=NOW)
    copy.replace("brokers_last_seen", [last_seen])
    newest = find_snapshot(copy)
    newest = replace(newest, versions=newest.versions | {"brokers_last_seen": copy.version("brokers_last_seen")})

    def third(snapshot: Snapshot) -> tuple[object, ...]:
        row = Summaries(copy, snapshot).rows("leadership")[2]
        return tuple(row[name] for name in ("broker_id", "registered", "host", "rack"))

    assert [third(newest), third(find_snapshot(copy, 1))] == [(2, False, "k2", "b"), (2, True, "h", "b")]


def committed(action: str, number: int | None, outcome: str, **columns: Any) -> Row:  # noqa: ANN401 - of `commits`
    named = {} if number is None else {"topic": "t", "partition": number, "wave": 0}
    return {"plan_id": "p", "action": action, "outcome": outcome, "who": "me", "message": "", **named, **columns}


def test_a_row_is_counted_once_and_a_cancellation_is_no_commit(tmp_path: Path) -> None:
    """Of eight partitions, all were asked for and three failed; five were called back, and their order restored."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    Cluster(warehouse).snapshot()
    warehouse.append(
        "plans", [{"plan_id": "p", "kind": "reassign", "names": ["grow"], "changes": 8, "status": "cancelled"}]
    )
    limit = "topic t: leader.replication.throttled.replicas=0:1"
    became = ["failed" if number < 3 else "applied" for number in range(8)]
    rows = [
        committed("throttle", None, "pending", attempt=1, message=limit),
        committed("throttle", None, "applied", attempt=1, message=f"{limit}: accepted"),
        *(committed("reassign", number, "pending", attempt=1) for number in range(8)),
        *(committed("reassign", number, outcome, attempt=1) for number, outcome in enumerate(became)),
        committed("cancel", None, "applied", attempt=2, message="closed; it was partial"),
        *(committed(step, n, o, attempt=2) for o in ("pending", "applied") for n in range(3, 8) for step in BACK),
        committed("lift_throttle", None, "pending", attempt=3, message=limit),
    ]
    warehouse.append("commits", [{**row, "committed_at": NOW + timedelta(seconds=at)} for at, row in enumerate(rows)])

    at = Summaries(warehouse, find_snapshot(warehouse))
    log = [
        tuple(row[name] for name in ("attempt", "kind", "outcome", "applied", "failed", "changes"))
        for row in at.rows("commit_log")
    ]
    assert log == [
        (3, "throttle", "pending", 0, 0, 8),
        (2, "cancel", "applied", 5, 0, 8),
        (1, "commit", "failed", 5, 3, 8),
    ]
    assert {*at.table("commit_rows").column_names} == {*TABLE_COLUMNS["commits"].names, "kind"}
    counts = Counter((row["attempt"], row["kind"], row["action"], row["outcome"]) for row in at.rows("commit_rows"))
    assert counts == {
        (1, "commit", "throttle", "applied"): 1,
        (1, "commit", "reassign", "failed"): 3,
        (1, "commit", "reassign", "applied"): 5,
        (2, "cancel", "cancel", "applied"): 6,
        (2, "cancel", "restore_order", "applied"): 5,
        (3, "throttle", "lift_throttle", "pending"): 1,
    }


def test_as_of_a_snapshot_nothing_later_was_planned_or_committed(warehouse: Warehouse) -> None:
    """A plan on snapshot 3 is none of snapshot 2; one on 2 that was committed after 3 had no commit then."""
    copy = Warehouse(f"{warehouse.uri}-later", "default")
    copytree(warehouse.uri, copy.uri)
    common = {"kind": "elect", "changes": 1, "names": [], "created_at": NOW - timedelta(minutes=30)}
    copy.append(
        "plans", [{**common, "plan_id": name, "snapshot_id": 2, "status": name} for name in ("committed", "refused")]
    )
    copy.append(
        "commits", [committed("elect", 0, "applied", attempt=1) | {"plan_id": "committed", "committed_at": NOW}]
    )

    def listed(snapshot_id: int) -> tuple[list[tuple[str, str]], list[str]]:
        at = summaries(copy, find_snapshot(copy, snapshot_id))
        plans = [(row["plan_id"], row["status"]) for row in at.rows("plan_summary")]
        return sorted(plans), [row["plan_id"] for row in at.rows("commit_log")]

    assert listed(1) == ([], [])
    assert listed(2) == ([("committed", "planned"), ("refused", "refused")], [])
    assert len(listed(3)[0]) == 3
    assert "committed" in listed(3)[1]


def test_an_older_snapshot_knows_nothing_of_later_ones(warehouse: Warehouse) -> None:
    at = Summaries(warehouse, find_snapshot(warehouse, 1))
    assert (at.rows("health")[0]["snapshot_id"], at.rows("under_replicated")) == (1, [])
    assert {row["from_snapshot"] for row in at.rows("leader_history")} == {1}
    assert [row["leaders"] for row in at.rows("leadership")] == [1, 0, 2, 0]


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("view", ["leaders_over_time", "imbalance_history"])
def test_the_newest_rows_are_the_last_ones(warehouse: Warehouse, view: str, count: int) -> None:
    at = Summaries(warehouse, find_snapshot(warehouse), imbalance_of=count)
    every = Summaries(warehouse, find_snapshot(warehouse)).rows(view)
    newest = sorted({row["snapshot_id"] for row in every})[-count:]

    assert as_rows(at.newest_rows(view, count)) == [row for row in every if row["snapshot_id"] in newest]
    if view == "imbalance_history":
        assert at.rows(view) == [row for row in every if row["snapshot_id"] in newest]


def test_of_other_clusters_nothing_is_seen(warehouse: Warehouse) -> None:
    other = Warehouse(warehouse.uri, "other")
    versions = {name: other.version(name) for name in ("partitions", "brokers", "topics")}
    other.append("snapshots", [{"snapshot_id": 1, "taken_at": NOW, "versions": versions}])
    at = Summaries(other, find_snapshot(other))
    assert at.rows("health")[0]["partitions"] == 0
    assert (at.rows("plan_summary"), at.rows("commit_log"), at.rows("leader_history")) == ([], [], [])
