"""`surveyor load import` of files: what is stored, what is refused. Oracle: dictionaries of the rows, updated."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.adapters.delta.warehouse import Warehouse
from jobs.measurement.imported_loads import known_loads, store_loads
from jobs.measurement.load_files import LOAD_COLUMNS, read_load_file
from jobs.repositories.snapshots import find_snapshot
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

TEN: Final = datetime(2026, 11, 20, 10, tzinfo=UTC)
HEADER: Final = "topic,partition,hour,bytes_in,bytes_out,size_bytes"


@pytest.fixture
def cluster(warehouse: Warehouse) -> Cluster:
    """Topics a with partitions 0 and 1, and b with partition 0, on brokers 1 and 2."""
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(1, 10), broker(2, 20)]
    cluster.topics = [topic("a"), topic("b", topic_id=None)]
    cluster.partitions = {("a", 0): partition([1, 2]), ("a", 1): partition([2, 1]), ("b", 0): partition([1])}
    cluster.snapshot()
    return cluster


@pytest.fixture
def surveyor(cluster: Cluster) -> Surveyor:
    return Surveyor(cluster.warehouse)


def _file(folder: Path, *lines: str, name: str = "loads.csv") -> str:
    (path := folder / name).write_text("\n".join(lines) + "\n")
    return str(path)


def _stored(warehouse: Warehouse) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    rows = warehouse.rows("partition_load")
    return {(row["topic"], row["partition"], row["hour"]): tuple(row[name] for name in LOAD_COLUMNS) for row in rows}


def test_rows_as_stored(surveyor: Surveyor, tmp_path: Path) -> None:
    ran = surveyor.run("load", "import", _file(tmp_path, HEADER, "a,1,2026-11-20T10:00Z,1,2,3"))
    (row,) = surveyor.warehouse.rows("partition_load")
    assert (ran.exit_code, {name: value for name, value in row.items() if value is not None}) == (
        0,
        {
            "cluster": "default",
            "hour": TEN,
            "topic": "a",
            "topic_id": "a-id",
            "partition": 1,
            "bytes_in": 1.0,
            "bytes_out": 2.0,
            "size_bytes": 3,
            "samples": 0,
            "method": "imported",
        },
    )


def test_counts(surveyor: Surveyor, tmp_path: Path) -> None:
    file = _file(tmp_path, "topic,partition,hour,bytes_in", "a,0,2026-11-20,1", "a,0,2026-11-21,1", "b,0,2026-11-20,1")
    ran = surveyor.run("load", "import", file)
    assert ran.stdout.splitlines()[0] == (
        f"{file}: 3 rows of 2 partitions in 2 topics, 2 hours from 2026-11-20 00:00 to 2026-11-21 00:00 UTC: bytes_in"
    )
    assert json.loads(surveyor.run("load", "import", file, "--json").stdout)["file"] == {
        "file": file,
        "columns": ["bytes_in"],
        "rows": 3,
        "topics": 2,
        "partitions": 2,
        "hours": 2,
        "rows_for_every_hour": 0,
        "first_hour": "2026-11-20T00:00:00Z",
        "last_hour": "2026-11-21T00:00:00Z",
        "skipped": 0,
        "unknown": [],
    }


@pytest.mark.parametrize(
    ("lines", "period"),
    [
        (
            ["a,0,2026-11-20,1", "a,1,,2"],
            "1 hour from 2026-11-20 00:00 to 2026-11-20 00:00 UTC and 1 row for every hour",
        ),
        (["a,0,,1", "a,1,,2"], "for every hour"),
    ],
)
def test_rows_for_every_hour_are_named(surveyor: Surveyor, tmp_path: Path, lines: list[str], period: str) -> None:
    file = _file(tmp_path, "topic,partition,hour,bytes_in", *lines)
    ran = surveyor.run("load", "import", file)
    assert ran.stdout.splitlines()[0] == f"{file}: 2 rows of 2 partitions in 1 topic, {period}: bytes_in"
    assert ("some hours have loads: those of every hour count only in plans" in ran.stderr) == ("1 hour" in period)


REFUSED: Final[list[tuple[list[str], list[str], int, str]]] = [
    # lines of the file, options, exit code, message
    ([HEADER, "a,0,,1,,", "a,0,x,1,,"], [], 2, "line 3: hour has 'x'"),
    (
        [HEADER, "a,0,,1,,", "a,2,,1,,", "c,0,,1,,", "c,1,,1,,"],
        [],
        23,
        "3 rows of topics or partitions that the newest snapshot lacks: a-2, c; nothing was imported",
    ),
    ([HEADER, "c,0,,1,,"], ["--skip-unknown"], 23, "lacks: c; nothing was imported"),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_nothing_is_stored_of_a_file_with_a_fault(
    surveyor: Surveyor, tmp_path: Path, refused: tuple[list[str], list[str], int, str]
) -> None:
    lines, options, code, message = refused
    ran = surveyor.run("load", "import", _file(tmp_path, *lines), *options)
    assert (ran.exit_code, message in ran.stderr, _stored(surveyor.warehouse)) == (code, True, {})


def test_unknown_partitions_are_skipped_on_request(surveyor: Surveyor, tmp_path: Path) -> None:
    file = _file(tmp_path, HEADER, "a,0,,1,,", "a,2,,1,,", "c,0,,1,,")
    ran = surveyor.run("load", "import", file, "--skip-unknown")
    assert (ran.exit_code, "skipped 2 rows: a-2, c" in ran.stdout) == (0, True)
    assert _stored(surveyor.warehouse) == {("a", 0, None): (1.0, None, None)}


def test_an_import_needs_a_snapshot(warehouse: Warehouse, tmp_path: Path) -> None:
    ran = Surveyor(warehouse).run("load", "import", _file(tmp_path, HEADER, "a,0,,1,,"))
    assert (ran.exit_code, "take a `surveyor snapshot" in ran.stderr) == (22, True)


USAGE: Final[list[tuple[list[str], str]]] = [
    ([], "nothing to import: give a FILE of loads, --capacity FILE, or --prometheus URL"),
    (["--skip-unknown", "--capacity", "x"], "--skip-unknown is for the partitions of a FILE"),
    (["--capacity", "x", "--selector", "a"], "--selector is for an import by --prometheus URL"),
    (["--capacity", "x", "--preset", "jmx"], "--preset is for an import by --prometheus URL"),
    (["--prometheus", "http://h", "--weeks", "2", "--since", "3d"], "give one of the two"),
    (["--prometheus", "http://h", "--preset", "jmx2"], "--preset 'jmx2' is not known; known are jmx, strimzi"),
    (["--prometheus", "http://h", "--since", "soon"], "--since 'soon' is no time"),
    (["--prometheus", "http://h", "--since", "5m"], "less than an hour ago"),
]


@pytest.mark.parametrize(("options", "message"), USAGE)
def test_usage(surveyor: Surveyor, options: list[str], message: str) -> None:
    ran = surveyor.run("load", "import", *options)
    assert (ran.exit_code, message in ran.stderr) == (2, True)


def test_capacities(surveyor: Surveyor, tmp_path: Path) -> None:
    file = _file(tmp_path, "broker,resource,capacity", "-1,in,1e8", "1,disk,5e9", "7,disk,5e9", name="capacity.csv")
    surveyor.warehouse.replace("log_dirs", [{"broker_id": 1, "log_dir": "/a", "total_bytes": 10**9, "taken_at": TEN}])
    first, again = (json.loads(surveyor.run("load", "import", "--capacity", file, "--json").stdout) for _ in range(2))
    assert [ran["capacity"]["changed"] for ran in (first, again)] == [3, 0]
    assert (first["capacity"]["brokers"], first["capacity"]["unknown_brokers"]) == ([-1, 1, 7], [7])
    assert f"{file}: the disk of broker 1 is 4.7 GiB, and 953.7 MiB by `surveyor sizes`" in first["warnings"]


def test_a_fault_in_one_file_leaves_the_other_one_out(surveyor: Surveyor, tmp_path: Path) -> None:
    loads = _file(tmp_path, HEADER, "a,0,,1,,")
    capacities = _file(tmp_path, "broker,resource,capacity", "1,ram,1", name="capacity.csv")
    ran = surveyor.run("load", "import", loads, "--capacity", capacities)
    assert (ran.exit_code, _stored(surveyor.warehouse), surveyor.warehouse.rows("broker_capacity")) == (2, {}, [])


def test_measured_loads_and_other_clusters_stay(surveyor: Surveyor, tmp_path: Path) -> None:
    other = Warehouse(surveyor.warehouse.uri, "other")
    row = {"topic": "a", "partition": 0, "hour": TEN, "samples": 1, "bytes_in": 5.0}
    surveyor.warehouse.append("partition_load", [{**row, "method": "delta_size"}])
    other.append("partition_load", [{**row, "method": "imported"}])
    surveyor.run("load", "import", _file(tmp_path, HEADER, "a,0,2026-11-20T10:00Z,1,,"))
    methods = {row["method"]: row["bytes_in"] for row in surveyor.warehouse.rows("partition_load")}
    assert (methods, len(other.rows("partition_load"))) == ({"delta_size": 5.0, "imported": 1.0}, 1)


def _broker_loads(warehouse: Warehouse) -> dict[tuple[int, datetime], tuple[Any, ...]]:
    columns = ("leaders", "bytes_in", "replication_in", "bytes_out", "replication_out", "size_bytes")
    return {
        (row["broker_id"], row["hour"]): tuple(row[name] for name in columns) for row in warehouse.rows("broker_load")
    }


def test_loads_of_brokers_are_those_of_their_partitions_in_imported_hours(surveyor: Surveyor, tmp_path: Path) -> None:
    ten, eleven, twelve = (TEN + timedelta(hours=number) for number in range(3))
    measured = {"hour": twelve, "broker_id": 1, "leaders": 9, "replicas": 9, "bytes_in": 9.0}
    rates = {"replication_in": 9.0, "bytes_out": 9.0, "replication_out": 9.0}
    surveyor.warehouse.append("broker_load", [measured | rates])
    row = {"topic": "a", "partition": 1, "hour": twelve, "samples": 1, "bytes_in": 9.0, "method": "delta_size"}
    surveyor.warehouse.append("partition_load", [row])
    lines = [
        f"a,0,{ten.isoformat()},10,4,7",
        f"b,0,{eleven.isoformat()},3,,",
        f"a,0,{twelve.isoformat()},1,,",
        "a,1,,5,,",
    ]
    surveyor.run("load", "import", _file(tmp_path, HEADER, *lines))
    expected = {
        (1, ten): (1, 10.0, 0.0, 4.0, 10.0, 7),
        (2, ten): (0, 0.0, 10.0, 0.0, 0.0, 7),
        (1, eleven): (1, 3.0, 0.0, None, 0.0, None),
        (1, twelve): (9, 9.0, 9.0, 9.0, 9.0, None),
    }
    assert _broker_loads(surveyor.warehouse) == expected
    surveyor.run("load", "import", _file(tmp_path, HEADER, f"a,1,{ten.isoformat()},1,,"))
    expected |= {(1, ten): (1, 10.0, 1.0, 4.0, 10.0, 7), (2, ten): (1, 1.0, 10.0, 0.0, 1.0, 7)}
    assert _broker_loads(surveyor.warehouse) == expected


@pytest.mark.parametrize("hour", ["", "2026-11-20T10:00Z"])
def test_readers_that_an_import_does_not_have_are_unknown(surveyor: Surveyor, tmp_path: Path, hour: str) -> None:
    """In the load of brokers, racks, topics and partitions, and on pages."""
    surveyor.run("load", "import", _file(tmp_path, "topic,partition,hour,bytes_in", f"a,0,{hour},8", f"a,1,{hour},4"))
    for by in ("broker", "rack", "topic", "partition"):
        shown = json.loads(surveyor.run("show", "load", "--by", by, "--json").stdout)
        assert {row["bytes_out"] for row in shown["rows"]} == {None}
        assert shown["total"]["bytes_out"] is None
        assert (shown["total"]["bytes_in"], shown["rows"][0]["bytes_in"] >= 8) == (12, True)
        text = surveyor.run("show", "load", "--by", by).stdout
        assert ("to_readers" in text, "out " in text.splitlines()[0]) == (False, False)
    page = tmp_path / "page.html"
    surveyor.run("report", "--out", str(page))
    html = page.read_text()
    assert "<strong>unknown</strong>bytes out to consumers" in html
    labels = re.findall(r'"label":\s?"(MiB/s.*?)"', html)
    assert ("MiB/s in" in labels, "MiB/s out" in labels) == (True, False)


@pytest.mark.usefixtures("spark")
def test_a_profile_has_the_peaks_of_imported_hours(surveyor: Surveyor, tmp_path: Path) -> None:
    rates = {
        TEN: (9, 1),
        TEN + timedelta(hours=1): (1, 1),
        TEN + timedelta(hours=4): (1, 8),
        TEN + timedelta(hours=5): (0, 1),
    }
    lines = [f"a,{number},{hour.isoformat()},{rate},," for hour, of in rates.items() for number, rate in enumerate(of)]
    surveyor.run("load", "import", _file(tmp_path, HEADER, *lines))
    surveyor.run("load", "profile")
    rows = surveyor.warehouse.rows("load_profiles")
    loads = {(row["window"], row["partition"]): row["bytes_in"] for row in rows}
    assert loads == {
        ("Fri 10:00", 0): 9.0,
        ("Fri 10:00", 1): 1.0,
        ("Fri 11:00", 0): 1.0,
        ("Fri 11:00", 1): 1.0,
        ("Fri 14:00", 0): 1.0,
        ("Fri 14:00", 1): 8.0,
    }


Values = dict[str, float | int | None]
HOURS: Final = st.one_of(st.none(), st.integers(0, 3).map(lambda hours: TEN + timedelta(hours=hours)))
KEYS: Final = st.tuples(st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), HOURS)
FILES: Final = st.lists(
    st.tuples(
        st.lists(st.sampled_from(LOAD_COLUMNS), min_size=1, unique=True),
        st.dictionaries(KEYS, st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=3, max_size=3), min_size=1),
    ),
    min_size=1,
    max_size=4,
)


@given(files=FILES)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
def test_imports_one_after_the_other(tmp_path: Path, cluster: Cluster, files: list[Any]) -> None:
    warehouse = cluster.warehouse
    warehouse.replace("partition_load", [])
    expected: dict[tuple[Any, ...], Values] = {}
    snapshot = find_snapshot(warehouse)
    for columns, rows in files:
        lines = [",".join(["topic", "partition", "hour", *columns])]
        for ((name, number), hour), values in rows.items():
            stated = dict(zip(columns, values, strict=False))
            texts = ["" if value is None else str(value) for value in stated.values()]
            lines.append(",".join([name, str(number), "" if hour is None else hour.isoformat(), *texts]))
            expected[name, number, hour] = expected.get((name, number, hour), {}) | stated
        file = read_load_file(Path(_file(tmp_path, *lines)), TEN + timedelta(hours=3))
        known, _ = known_loads(warehouse, snapshot, file, skip_unknown=False)
        for _ in range(2):
            store_loads(warehouse, snapshot, known, file.columns)
    assert _stored(warehouse) == {key: tuple(map(row.get, LOAD_COLUMNS)) for key, row in expected.items()}
    assert len(warehouse.rows("partition_load")) == len(expected)
