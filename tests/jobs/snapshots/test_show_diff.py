"""What differs between two snapshots: each kind of difference, both ways, and of partitions against an oracle."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.snapshots import find_snapshot
from jobs.snapshots.diff import STATE, differences, pairs
from schemas.rows import Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

MOVED = {"listener": "INSIDE", "security_protocol": "SSL", "host": "new", "port": 9}

EXPECTED = [
    ("controller changed", "controller", "controller_id", 0, 1),
    ("controller changed", "controller", "controller_epoch", 7, 8),
    ("broker gone", "broker 0", "broker_epoch", 10, None),
    ("broker bounced", "broker 1", "broker_epoch", 11, 21),
    ("broker changed", "broker 2", "endpoints", ["INSIDE://h:9094 (PLAINTEXT)"], ["INSIDE://new:9 (SSL)"]),
    ("broker changed", "broker 2", "rack", None, "r1"),
    ("broker joined", "broker 3", "broker_epoch", None, 13),
    ("topic vanished", "gone", "topic_id", "gone-id", None),
    ("topic created", "made", "topic_id", None, "made-id"),
    ("topic changed", "orders", "deletion_requested", False, True),
    ("topic config", "orders", "cleanup.policy", "compact", None),
    ("topic config", "orders", "retention.ms", "1", "2"),
    ("no longer quarantined", "/bad", "reason", "no JSON", None),
    ("quarantined", "/worse", "reason", None, "no JSON"),
    ("partition vanished", "gone-0", "replicas", [0, 1], None),
    ("partition vanished", "gone-0", "leader", 0, None),
    ("partition vanished", "gone-0", "isr", [0, 1], None),
    ("partition vanished", "gone-0", "leader_epoch", 5, None),
    ("partition vanished", "gone-0", "partition_state", "Online", None),
    ("partition created", "made-0", "replicas", None, [2]),
    ("partition created", "made-0", "leader", None, 2),
    ("partition created", "made-0", "isr", None, [2]),
    ("partition created", "made-0", "leader_epoch", None, 5),
    ("partition created", "made-0", "partition_state", None, "Online"),
    ("partition changed", "orders-2", "isr", [1, 2], [2, 1]),
    ("partition changed", "orders-10", "replicas", [1, 2], [1, 2, 3]),
    ("partition changed", "orders-10", "adding_replicas", None, [3]),
    ("partition changed", "orders-10", "leader", 1, -1),
    ("partition changed", "orders-10", "leader_epoch", 5, 6),
]


@pytest.fixture
def changed(warehouse: Warehouse) -> Warehouse:
    """Three snapshots; all that can change does so from the first to the third, and something back and forth."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 10), broker(1, 11), broker(2, 12)]
    config = {"retention.ms": "1", "cleanup.policy": "compact", "same": "x"}
    cluster.topics = [topic("gone"), topic("orders", config=config), topic("same")]
    cluster.quarantine = [{"path": path, "reason": "no JSON"} for path in ("/bad", "/still bad")]
    cluster.partitions = {("orders", number): partition([1, 2]) for number in (0, 1, 2, 10)}
    cluster.partitions["gone", 0] = partition([0, 1])
    cluster.snapshot()
    cluster.partitions["orders", 1] = partition([1, 2], leader=2)
    cluster.snapshot()
    cluster.controller = {"controller_id": 1, "controller_epoch": 8}
    cluster.brokers = [broker(1, 21), broker(2, 12, endpoints=[MOVED], rack="r1"), broker(3, 13)]
    changed_config = {"same": "x", "retention.ms": "2"}
    cluster.topics = [topic("made"), topic("orders", config=changed_config, deletion_requested=True), topic("same")]
    cluster.quarantine = [{"path": path, "reason": "no JSON"} for path in ("/worse", "/still bad")]
    cluster.partitions["orders", 1] = partition([1, 2])
    cluster.partitions["orders", 2] = partition([1, 2], isr=[2, 1])
    cluster.partitions["orders", 10] = partition([1, 2, 3], adding_replicas=[3], leader=-1, isr=[1, 2], leader_epoch=6)
    del cluster.partitions["gone", 0]
    cluster.partitions["made", 0] = partition([2])
    cluster.snapshot()
    return warehouse


def diff_rows(surveyor: Surveyor, before: int, after: int) -> list[tuple[Any, ...]]:
    ran = surveyor.run("show", "diff", str(before), str(after), "--json")
    return [tuple(row.values()) for row in json.loads(ran.stdout)["rows"]]


def test_all_that_differs_is_shown(changed: Warehouse) -> None:
    assert diff_rows(Surveyor(changed), 1, 3) == EXPECTED


def test_the_other_way_shows_the_reverse(changed: Warehouse) -> None:
    back = {(subject, column, after, before) for _, subject, column, before, after in map(_hashable, EXPECTED)}
    assert {row[1:] for row in map(_hashable, diff_rows(Surveyor(changed), 3, 1))} == back


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) for value in row)


def test_people_see_a_table(changed: Warehouse) -> None:
    shown = Surveyor(changed).run("show", "diff", "1", "2").stdout.splitlines()
    assert [[cell.strip() for cell in line.split("│")] for line in shown[1:] if "orders-1" in line] == [
        ["partition changed", "orders-1", "leader", "1", "2"],
    ]


@pytest.mark.parametrize("snapshot", [1, 3])
def test_a_snapshot_does_not_differ_from_itself(changed: Warehouse, snapshot: int) -> None:
    ran = Surveyor(changed).run("show", "diff", str(snapshot), str(snapshot))
    assert (ran.exit_code, ran.stdout) == (0, f"snapshots {snapshot} and {snapshot} do not differ\n")


@pytest.mark.parametrize(("before", "after"), [("1", "4"), ("0", "1")])
def test_unknown_snapshots_are_usage_errors(changed: Warehouse, before: str, after: str) -> None:
    ran = Surveyor(changed).run("show", "diff", before, after)
    assert (ran.exit_code, "the oldest is 1, the newest is 3" in ran.stderr) == (2, True)


def test_another_cluster_is_not_looked_at(changed: Warehouse) -> None:
    other = Cluster(Warehouse(changed.uri, "other"))
    other.partitions = {("orders", 0): partition([9])}
    other.snapshot()
    other.partitions = {("orders", 0): partition([8])}
    other.snapshot()
    assert diff_rows(Surveyor(changed), 1, 3) == EXPECTED


PLACES = st.dictionaries(
    st.tuples(st.sampled_from(["a", "a-1", "b"]), st.integers(0, 12)),
    st.builds(
        partition,
        st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True),
        leader=st.sampled_from([-1, 1, None]),
        isr=st.sampled_from([None, [1], [1, 2]]),
    ),
    max_size=5,
)


@given(st.lists(PLACES, min_size=3, max_size=3))
@settings(max_examples=4)  # the first is three empty worlds
def test_partitions_differ_as_a_loop_over_all_would_find(
    tmp_path_factory: pytest.TempPathFactory,
    worlds: list[dict[tuple[str, int], Row]],
) -> None:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("warehouse")), "default")
    cluster = Cluster(warehouse)
    for world in worlds:
        cluster.partitions = world
        cluster.snapshot()
    snapshots = [find_snapshot(warehouse, number) for number in range(1, len(worlds) + 1)]
    for before, rows_before in zip(snapshots, worlds, strict=True):
        for after, rows_after in zip(snapshots, worlds, strict=True):
            rows = differences(warehouse, before, after)
            shown = [(row.subject, row.column, row.before, row.after) for row in rows]
            assert shown == oracle(rows_before, rows_after)


def oracle(rows_before: dict[tuple[str, int], Row], rows_after: dict[tuple[str, int], Row]) -> list[tuple[Any, ...]]:
    return [
        (f"{name}-{number}", column, before, after)
        for name, number in sorted({*rows_before, *rows_after})
        for column in STATE
        for before, after in [(_value(rows_before, (name, number), column), _value(rows_after, (name, number), column))]
        if before != after
    ]


def _value(world: dict[tuple[str, int], Row], key: tuple[str, int], column: str) -> Any:  # noqa: ANN401
    value = world.get(key, {}).get(column)
    return None if value == [] else value


def test_nulls_and_empty_texts_are_not_the_same() -> None:
    rows = [pa.table({"key": [1, 2], "value": pa.array(values, pa.string())}) for values in (["", None], [None, None])]
    assert pairs(rows[0], rows[1], ["key"], ["value"]) == [({"key": 1, "value": ""}, {"key": 1, "value": None})]
