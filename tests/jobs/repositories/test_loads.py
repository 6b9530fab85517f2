"""Which hours a window has, and what is read of them: means, methods, growth, groups."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Final

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.core.errors import UnreadableError, UsageError
from jobs.repositories.loads import (
    LoadWindow,
    broker_loads,
    find_window,
    group_loads,
    newest_sample,
    newest_window,
    partition_growth,
    partition_means,
    partitions_of,
    read_assignment,
    with_assignment,
)
from jobs.repositories.snapshots import last_snapshot
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row, store_hours
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

END: Final = datetime(2026, 11, 30, 20, tzinfo=UTC)
"""The newest hour."""


def ago(*hours: int) -> tuple[datetime, ...]:
    return tuple(END - number * HOUR for number in hours)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    lay_tables(warehouse)
    return warehouse


def test_windows_of_recorded_hours(warehouse: Warehouse) -> None:
    """The hour of most bytes is eight days ago, the one of the last week a day ago; two hours have no load."""
    hours = ago(192, 30, 24, 5, 3, 2, 0)
    store_hours(warehouse, hours, [9e9, 2e6, 8e6, 1e6, 1e6, 1e6, 1e6])
    store_hours(Warehouse(warehouse.uri, "other"), ago(-5), [1.0])

    windows = {text: find_window(warehouse, text) for text in ("now", "peak", "1h", "4h", "2d", "10d")}
    assert windows == {
        "now": LoadWindow(ago(0)),
        "peak": LoadWindow(ago(24)),
        "1h": LoadWindow(ago(0), 1),
        "4h": LoadWindow(ago(3, 2, 0), 4),
        "2d": LoadWindow(ago(30, 24, 5, 3, 2, 0), 48),
        "10d": LoadWindow(hours, 240),
    }


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        ([3600, 3600, 3600], 0),
        ([3600, 3600, 1800], 0),
        ([3600, 3600, 1799], 1),
        ([3600, 60, 60], 2),
        ([60, 60, 60], 0),
        ([3600, 3600, None], 0),
    ],
)
def test_the_newest_hour_is_complete_enough(warehouse: Warehouse, covered: list[float | None], expected: int) -> None:
    """Half of it was sampled, or it was imported; of three hours that are not, the newest is shown anyway."""
    for number, seconds in zip((2, 1, 0), covered, strict=True):
        warehouse.append("broker_load", [broker_row(END - number * HOUR, 0, 1e6)])
        row = partition_row(END - number * HOUR, "orders", 0, 1.0, covered_seconds=seconds)
        warehouse.append("partition_load", [row])
    assert find_window(warehouse) == newest_window(warehouse) == LoadWindow(ago(expected))


def test_hours_before_a_time(warehouse: Warehouse) -> None:
    """For the page of an older snapshot; loads of every hour are of no time."""
    store_hours(warehouse, ago(9, 5, 0), [1.0, 1.0, 1.0])
    windows = [newest_window(warehouse, END - timedelta(hours=number)) for number in (-1, 0, 5, 8, 9)]
    assert windows == [LoadWindow(ago(0)), LoadWindow(ago(5)), LoadWindow(ago(9)), LoadWindow(ago(9)), None]


@pytest.mark.parametrize("text", ["soon", "5m", "0h", "", "-1h", "now "])
def test_a_window_that_is_none(warehouse: Warehouse, text: str) -> None:
    with pytest.raises(UsageError, match="expected now, peak, or hours, days or weeks"):
        find_window(warehouse, text)


def test_without_loads_the_commands_are_named(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableError, match="`surveyor load sample --every 5m` for an hour and `surveyor load rollup`"
    ):
        find_window(warehouse)
    warehouse.append(
        "partition_offsets", [{"sampled_at": END, "stored_at": END, "topic": "orders", "partition": 0, "leader": 1}]
    )
    with pytest.raises(UnreadableError, match="run `surveyor load rollup`, which computes them from the samples"):
        find_window(warehouse)
    assert (newest_window(warehouse), newest_sample(warehouse)) == (None, END)
    with pytest.raises(UnreadableError, match="no warehouse at"):
        find_window(Warehouse(str(tmp_path / "none"), "default"))


def test_a_warehouse_of_an_older_version_has_no_loads(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    older = Warehouse(str(tmp_path / "older"), "default")
    Path(older.uri).mkdir()
    Path(warehouse.path("snapshots")).rename(older.path("snapshots"))
    assert DeltaTable.is_deltatable(older.path("snapshots"))
    assert (newest_window(older), newest_sample(older)) == (None, None)
    with pytest.raises(UnreadableError, match="no loads of cluster 'default'"):
        find_window(older)


def test_imported_loads_alone(warehouse: Warehouse) -> None:
    """Brokers are added up by the snapshot, and one hour without a leader has that of the snapshot."""
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(1, 11)], [topic("orders")]
    cluster.partitions = {("orders", 0): partition([0, 1]), ("orders", 1): partition([1, 0])}
    cluster.snapshot()
    imported = {"leader": None, "covered_seconds": None, "samples": 0, "method": "imported"}
    warehouse.append("partition_load", [partition_row(None, "orders", 0, 5.0, **imported)])
    assert find_window(warehouse, "24h") == newest_window(warehouse) == LoadWindow()
    snapshot = last_snapshot(warehouse)
    loads = broker_loads(warehouse, LoadWindow(), snapshot)
    assert [(row.broker_id, row.leaders, row.bytes_in, row.replication_in) for row in loads] == [
        (0, 1, 5, 0),
        (1, 0, 0, 5),
    ]

    hours = [partition_row(END, "orders", 1, 7.0, **imported), partition_row(ago(1)[0], "orders", 1, 9.0, **imported)]
    warehouse.append("partition_load", hours)
    window = find_window(warehouse, "24h")
    assert window == LoadWindow(ago(1, 0), 24)
    loads = broker_loads(warehouse, window, snapshot)
    assert [(row.broker_id, row.bytes_in, row.replication_out) for row in loads] == [(0, 0, 0), (1, 8, 8)]
    rows = with_assignment(partitions_of(warehouse, END), read_assignment(warehouse, snapshot))
    assert [(row["leader"], row["replicas"], row["replication_out"]) for row in as_rows(rows)] == [(1, [1, 0], 7.0)]


def test_means_of_brokers(warehouse: Warehouse) -> None:
    """Of rates the mean, of sizes and counts the newest that is known."""
    rows = [
        broker_row(ago(2)[0], 0, 100.0, size_bytes=10, leaders=1, cpu=10.0),
        broker_row(ago(1)[0], 0, 200.0, size_bytes=30, leaders=2, across_racks=4.0),
        broker_row(END, 0, 600.0, leaders=3),
        broker_row(END, 1, 50.0, size_bytes=5),
    ]
    warehouse.append("broker_load", rows[::-1])
    first, second = broker_loads(warehouse, find_window(warehouse, "3h"), None)
    assert (first.bytes_in, first.replication_out, first.size_bytes, first.leaders) == (300, 600, 30, 3)
    assert (first.cpu, first.across_racks, first.hour) == (10, 4, END)
    assert (second.broker_id, second.bytes_in, second.cpu) == (1, 50, None)


Load = tuple[int, int, float | None, str, str | None]
"""Hours ago, partition, rate, method, flag."""

LOADS: Final = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 2),
        st.none() | st.integers(0, 100).map(float),
        st.sampled_from(["delta_size", "imported"]),
        st.sampled_from([None, "compacted"]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: (row[0], row[1], row[3]),
)


@given(LOADS)
@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_means_of_partitions_in_plain_python(warehouse: Warehouse, loads: list[Load]) -> None:
    """Sampled before imported; null counts for no hour; partitions are those of the newest hour."""
    rows = [
        partition_row(END - hour * HOUR, "t", number, rate, method=method, flags=[flag] if flag else None)
        for hour, number, rate, method, flag in loads
    ]
    warehouse.replace("partition_load", rows)
    hours = sorted({row["hour"] for row in rows})
    sampled_last = sorted(rows, key=lambda row: row["method"] != "imported")
    chosen = {(row["hour"], row["partition"]): row for row in sampled_last}

    means = partition_means(warehouse, LoadWindow(tuple(hours), 4))

    rates = {
        number: [
            row["bytes_in"] for (_, other), row in chosen.items() if other == number and row["bytes_in"] is not None
        ]
        for hour, number in chosen
        if hour == hours[-1]
    }
    found = {row["partition"]: (row["bytes_in"], row["max_5min"]) for row in as_rows(means.rows)}
    assert found == {number: (fmean(known), max(known)) if known else (None, None) for number, known in rates.items()}
    total, imported, flagged = (
        sum(row["bytes_in"] or 0 for row in chosen.values() if is_part(row))
        for is_part in (lambda _: True, lambda row: row["method"] == "imported", lambda row: row["flags"])
    )
    assert means.accuracy.methods.get("imported", 0) == pytest.approx(imported / (total or 1))
    assert means.accuracy.flags.get("compacted", 0) == pytest.approx(flagged / (total or 1))


def test_rows_after_older_hours_were_deleted(warehouse: Warehouse) -> None:
    """Which rewrites files, with text in another type."""
    rows = [partition_row(hour, "orders", 0, 5.0) for hour in ago(1, 0)]
    warehouse.append("partition_load", rows)
    warehouse.delete("partition_load", f"hour < '{END.isoformat()}'")
    warehouse.append("partition_load", [partition_row(END, "orders", 1, 5.0, method="imported")])
    means = partition_means(warehouse, LoadWindow(ago(0)))
    assert (means.rows.num_rows, means.accuracy.methods) == (2, {"delta_size": 0.5, "imported": 0.5})


def test_growth_by_sizes_of_a_day(warehouse: Warehouse) -> None:
    """Between the newest hour and the first one of the day before it; a partition that is new has none."""
    store_hours(warehouse, ago(30, 23, 1, 0), [1.0] * 4)
    day, newest = ago(23)[0], END
    rows = [
        partition_row(day, "a", 0, 1.0, size_bytes=100),
        partition_row(day, "a", 1, 1.0),
        partition_row(newest, "a", 0, 1.0, size_bytes=100 + 23 * 3600 * 5),
        partition_row(newest, "a", 1, 1.0, size_bytes=7),
        partition_row(newest, "a", 2, 1.0, size_bytes=7),
    ]
    warehouse.append("partition_load", rows)
    growth = partition_growth(warehouse, find_window(warehouse))
    assert growth is not None
    assert growth.source == "sizes since 2026-11-29 21:00 UTC"
    assert [(row["partition"], row["growth"]) for row in as_rows(growth.rows)] == [(0, 5.0)]
    assert partition_growth(warehouse, LoadWindow()) is None


def test_growth_by_the_newest_profile(warehouse: Warehouse) -> None:
    common = {"profile": "default", "topic": "a", "partition": 0}
    older = {"version": 1, "created_at": END - HOUR, "window": "Mon 20:00", "growth": 1.0}
    rows = [{"version": 2, "created_at": END, "window": window, "growth": 3.0} for window in ("Mon 20:00", "Tue 07:00")]
    for profile in (older, *rows):
        warehouse.append("load_profiles", [{**common, **profile}])
    growth = partition_growth(warehouse, LoadWindow(ago(0)))
    assert growth is not None
    assert (growth.source, as_rows(growth.rows)) == (
        "profile default, version 2",
        [{"topic": "a", "partition": 0, "growth": 3.0}],
    )


def test_growth_is_unknown_for_a_few_hours(warehouse: Warehouse) -> None:
    store_hours(warehouse, ago(5, 0), [1.0, 1.0])
    assert partition_growth(warehouse, LoadWindow(ago(0))) is None


def test_groups_add_up_topics(warehouse: Warehouse) -> None:
    """Rates are means of the hours of a topic, and the lag is that of the newest hour."""
    rows = [
        (ago(1)[0], "billing", "orders", 10.0, 100.0, 7),
        (END, "billing", "orders", 30.0, None, 5),
        (END, "billing", "refunds", 5.0, 20.0, 4),
        (ago(1)[0], "gone", "orders", 1.0, 1.0, 1),
    ]
    names = ("hour", "group_id", "topic", "records_out", "bytes_out", "lag")
    warehouse.append("group_load", [dict(zip(names, row, strict=True)) for row in rows])
    found = group_loads(warehouse, LoadWindow(ago(1, 0), 2)).sort_by("group_id")
    assert [tuple(row.values()) for row in as_rows(found)] == [
        ("billing", 2, 25.0, 120.0, 9),
        ("gone", 1, 1.0, 1.0, None),
    ]
    assert group_loads(warehouse, LoadWindow()).num_rows == 0
