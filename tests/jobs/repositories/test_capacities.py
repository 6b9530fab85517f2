"""Which capacity of a broker counts. Oracle: one source after the other, in plain Python."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.repositories.capacities import CAPACITY_COLUMNS, EVERY_BROKER, broker_capacities
from jobs.runtime.settings import CapacityConf, ClusterConf, Settings, load_conf
from tests.jobs.support.rows.empty_tables import lay_tables

NOW: Final = datetime(2026, 11, 25, tzinfo=UTC)

Stored = tuple[int, int, str | None, str, float | None, float | None, str]
"""Hour of recording, broker, log dir, resource, capacity, share, source."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("capacities") / "warehouse"), "default")
    lay_tables(warehouse)
    return warehouse


def _store(warehouse: Warehouse, rows: list[Stored]) -> None:
    names = ("broker_id", "log_dir", "resource", "capacity", "limit_share", "source")
    stored = [{"valid_from": NOW + timedelta(hours=hour), **dict(zip(names, row, strict=True))} for hour, *row in rows]
    warehouse.replace("broker_capacity", stored)


def _store_log_dirs(warehouse: Warehouse, rows: list[tuple[int, str, int | None, int | None]]) -> None:
    names = ("broker_id", "log_dir", "total_bytes", "usable_bytes")
    warehouse.replace("log_dirs", [{"taken_at": NOW, **dict(zip(names, row, strict=True))} for row in rows])


def _read(warehouse: Warehouse, *brokers: int, **conf: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - CapacityConf
    settings = Settings(warehouse.cluster, warehouse.uri, ClusterConf(capacity=CapacityConf(**conf)))
    return [tuple(row.values()) for row in as_rows(broker_capacities(settings, brokers).rows)]


CASES: Final[list[tuple[str, list[Stored], dict[str, Any], list[tuple[Any, ...]]]]] = [
    ("nothing is known", [], {}, []),
    (
        "the newest row of a source",
        [(2, 1, None, "in", 20.0, None, "file"), (1, 1, None, "in", 10.0, 0.5, "file")],
        {},
        [(1, None, "in", 20.0, None, "file")],
    ),
    (
        "a file precedes measurements, also by its row for every broker",
        [
            (1, -1, None, "in", 5.0, None, "file"),
            (2, 1, None, "in", 6.0, None, "prometheus"),
            (2, 1, "/a", "disk", 7.0, None, "log_dirs"),
        ],
        {},
        [(1, "/a", "disk", 7.0, None, "log_dirs"), (1, None, "in", 5.0, None, "file")],
    ),
    (
        "a broker's own row precedes the one for every broker",
        [(1, 1, None, "in", 10.0, None, "file"), (2, -1, None, "in", 5.0, 0.7, "file")],
        {},
        [(1, None, "in", 10.0, None, "file")],
    ),
    (
        "the configuration file precedes a file's row for every broker only",
        [
            (1, 1, None, "in", 10.0, None, "file"),
            (1, -1, None, "in", 5.0, None, "file"),
            (1, -1, None, "out", 5.0, 0.6, "file"),
        ],
        {"in_": "1kB/s", "out": "2kB/s", "limit_share": 0.9},
        [(1, None, "in", 10.0, 0.9, "file"), (1, None, "out", 2000.0, 0.9, "conf")],
    ),
    (
        "disks as a whole and by log dir: the newer statement",
        [
            (1, 1, None, "disk", 30.0, None, "file"),
            (2, 1, "/b", "disk", 20.0, None, "file"),
            (2, 1, "/a", "disk", 10.0, 0.5, "file"),
            (2, 2, None, "disk", 40.0, None, "file"),
        ],
        {},
        [
            (1, "/a", "disk", 10.0, 0.5, "file"),
            (1, "/b", "disk", 20.0, None, "file"),
            (2, None, "disk", 40.0, None, "file"),
        ],
    ),
    (
        "a log dir that is gone has 0",
        [
            (1, 1, "/a", "disk", 10.0, None, "log_dirs"),
            (1, 1, "/b", "disk", 20.0, None, "log_dirs"),
            (2, 1, "/a", "disk", 0.0, None, "log_dirs"),
        ],
        {},
        [(1, "/b", "disk", 20.0, None, "log_dirs")],
    ),
    (
        "a withdrawn row leaves the next source",
        [
            (1, 1, None, "cpu", 100.0, None, "file"),
            (2, 1, None, "cpu", None, None, "file"),
            (1, 1, None, "cpu", 50.0, None, "prometheus"),
        ],
        {},
        [(1, None, "cpu", 50.0, None, "prometheus")],
    ),
]


@pytest.mark.parametrize(("rows", "conf", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_capacity_that_counts(
    tables: Warehouse, rows: list[Stored], conf: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    _store(tables, rows)
    _store_log_dirs(tables, [])
    assert _read(tables, *({row[1] for row in rows} - {EVERY_BROKER} or {1}), **conf) == expected


def test_disks_of_surveyor_sizes_count_where_no_capacity_of_log_dirs_is_stored(tables: Warehouse) -> None:
    _store(tables, [(1, 3, "/a", "disk", 7.0, None, "log_dirs")])
    _store_log_dirs(
        tables, [(1, "/a", 100, 10), (1, "/b", 100, 10), (1, "/c", 50, 10), (2, "/a", None, None), (3, "/a", 9, 1)]
    )
    assert _read(tables, 1, 2, 3) == [
        (1, None, "disk", 150.0, None, "log_dirs"),
        (3, "/a", "disk", 7.0, None, "log_dirs"),
    ]


ON_TWO: Final = [(1, "/a", 100, 10), (1, "/b", 50, 10)]
"""The log dirs of broker 1."""
FAILED: Final = [(1, "/a", 100, 10), (1, "/b", None, None)]
OTHERS: Final = ["broker 1: the capacities in a file are not of its log dirs (/b): ignored"]
B_FAILED: Final = ["broker 1: the capacity of its disk is unknown, because /b failed"]

DISKS: Final[list[tuple[list[Stored], list[Any], list[tuple[str | None, float]], list[str]]]] = [
    (
        [(1, 1, "/a", "disk", 7.0, None, "file"), (1, 1, "/b", "disk", 8.0, None, "file")],
        ON_TWO,
        [("/a", 7), ("/b", 8)],
        [],
    ),
    ([(1, 1, "/a", "disk", 7.0, None, "file")], ON_TWO, [(None, 150)], OTHERS),
    ([(1, -1, "/a", "disk", 7.0, None, "file")], ON_TWO, [(None, 150)], OTHERS),
    ([(1, -1, None, "disk", 9.0, None, "file"), (1, 1, "/a", "disk", 7.0, None, "file")], ON_TWO, [(None, 9)], OTHERS),
    ([(1, 1, "/a", "disk", 7.0, None, "file")], [(1, "/a", None, None), (1, "/b", None, None)], [], OTHERS),
    (
        [(1, 1, "/a", "disk", 7.0, None, "file"), (1, 1, "/b", "disk", 8.0, None, "file")],
        ON_TWO[:1],
        [(None, 100)],
        OTHERS,
    ),
    ([(1, 1, "/a", "disk", 7.0, None, "file")], [], [("/a", 7)], []),
    ([(1, 1, None, "disk", 7.0, None, "file")], ON_TWO, [(None, 7)], []),
    ([], FAILED, [], B_FAILED),
    ([(1, 1, None, "disk", 7.0, None, "file")], FAILED, [], B_FAILED),
    ([(1, 1, "/a", "disk", 7.0, None, "log_dirs"), (2, 1, "/b", "disk", None, None, "log_dirs")], [], [], B_FAILED),
    ([(1, 1, "/b", "disk", None, None, "log_dirs"), (2, 1, "/b", "disk", 8.0, None, "log_dirs")], [], [("/b", 8)], []),
]


@pytest.mark.parametrize(("rows", "log_dirs", "expected", "notes"), DISKS)
def test_the_capacity_of_a_disk_is_that_of_all_its_log_dirs_or_unknown(
    tables: Warehouse,
    rows: list[Stored],
    log_dirs: list[Any],
    expected: list[tuple[str | None, float]],
    notes: list[str],
) -> None:
    _store(tables, rows)
    _store_log_dirs(tables, log_dirs)
    found = broker_capacities(Settings(tables.cluster, tables.uri, ClusterConf()), [1])
    assert ([(row["log_dir"], row["capacity"]) for row in as_rows(found.rows)], found.notes) == (expected, notes)


def test_the_warehouse_of_an_older_version_has_no_capacities(warehouse: Warehouse) -> None:
    assert _read(warehouse, 1, in_="5MB/s") == [(1, None, "in", 5e6, None, "conf")]


def test_an_invalid_rate_of_the_configuration_file_is_named(tmp_path: Path) -> None:
    (path := tmp_path / "surveyor.toml").write_text('[clusters.east.capacity]\nin = "fast"\n')
    assert "capacity: in 'fast' is no rate" in getattr(load_conf(path).clusters["east"], "reason", "")


ROWS: Final = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([-1, 1, 2]),
        st.sampled_from([None, "/a", "/b"]),
        st.sampled_from(["in", "disk"]),
        st.one_of(st.none(), st.floats(1, 9)),
        st.sampled_from([None, 0.5]),
        st.sampled_from(["file", "prometheus", "log_dirs"]),
    ),
    max_size=8,
    unique_by=lambda row: (row[0], *row[1:4], row[6]),
)


@given(rows=ROWS)
@hypothesis_settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_source_in_turn(tables: Warehouse, rows: list[Stored]) -> None:
    _store(tables, rows)
    _store_log_dirs(tables, [])
    assert _read(tables, 1, 2) == [
        row for broker in (1, 2) for name in ("disk", "in") for row in _oracle(rows, broker, name)
    ]


def _oracle(rows: list[Stored], broker: int, resource: str) -> list[tuple[Any, ...]]:
    of_log_dirs = [row for row in rows if (row[1], row[3], row[6]) == (broker, "disk", "log_dirs")]
    reported = {row[2]: row[4] for row in sorted(of_log_dirs, key=lambda row: row[0])}
    if resource == "disk" and any(path and size is None for path, size in reported.items()):
        return []
    for source, owner in [
        ("file", broker),
        ("file", -1),
        ("prometheus", broker),
        ("prometheus", -1),
        ("log_dirs", broker),
    ]:
        of_source = [row for row in rows if (row[1], row[3], row[6]) == (owner, resource, source)]
        newest = {row[2]: row for row in sorted(of_source, key=lambda row: row[0])}
        if not newest:
            continue
        last = max(row[0] for row in newest.values())
        is_whole = (newest[None][0] if None in newest else -1) == last
        kept = [row for log_dir, row in newest.items() if (log_dir is None) == is_whole and row[4] is not None]
        if kept:
            return [(broker, *row[2:]) for row in sorted(kept, key=lambda row: row[2] or "")]
    return []


def test_columns(tables: Warehouse) -> None:
    settings = Settings(tables.cluster, tables.uri, ClusterConf())
    assert tuple(broker_capacities(settings, ()).rows.column_names) == CAPACITY_COLUMNS
