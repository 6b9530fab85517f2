"""`surveyor show load`: what people and programs are shown, by broker, rack, topic, partition and group."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row, store_hours
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

KIB: Final = 1024.0
GIB: Final = 2**30


def _last_hour() -> datetime:
    """The last hour that has ended; at the end of an hour two of them may be meant during a test."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - HOUR


def _in_json(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture(scope="module")
def hour() -> datetime:
    return _last_hour()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, hour: datetime) -> Surveyor:
    """Three brokers in two racks, two topics, a group; the hour before, broker 1 had more, and a day before less."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("measured") / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(number, 10 + number, rack="aab"[number]) for number in range(3)]
    cluster.topics = [topic("orders"), topic("audit")]
    cluster.partitions = {
        ("orders", 0): partition([0, 1]),
        ("orders", 1): partition([1, 2]),
        ("audit", 0): partition([2]),
    }
    cluster.snapshot()
    day = hour - timedelta(days=1)
    warehouse.append(
        "broker_load",
        [
            broker_row(hour, 0, 30 * KIB, size_bytes=8 * GIB, cpu=40.0, across_racks=KIB),
            broker_row(hour, 1, 10 * KIB, size_bytes=2 * GIB, cpu=20.0),
            broker_row(hour, 2, 20 * KIB, size_bytes=4 * GIB, cpu=30.0),
            broker_row(hour - HOUR, 1, 90 * KIB, size_bytes=GIB),
            *(broker_row(day, number, KIB, size_bytes=GIB) for number in range(3)),
        ],
    )
    compacted: dict[str, Any] = {"method": "mean_size", "flags": ["compacted"]}
    warehouse.append(
        "partition_load",
        [
            partition_row(hour, "orders", 0, 30 * KIB, size_bytes=8 * GIB),
            partition_row(hour, "orders", 1, 10 * KIB, size_bytes=2 * GIB, leader=1),
            partition_row(hour, "audit", 0, 20 * KIB, size_bytes=4 * GIB, leader=2, **compacted),
            partition_row(hour - HOUR, "orders", 1, 90 * KIB, leader=1),
            partition_row(day, "orders", 0, KIB, size_bytes=2 * GIB),
        ],
    )
    groups = [
        ("billing", "orders", 5.0, KIB, 70),
        ("billing", "audit", 5.0, KIB, 7),
        ("audit", "audit", 1.0, None, None),
    ]
    names = ("group_id", "topic", "records_out", "bytes_out", "lag")
    warehouse.append("group_load", [{"hour": hour, **dict(zip(names, row, strict=True))} for row in groups])
    capacities = [
        {"broker_id": -1, "resource": "out", "capacity": 100 * KIB, "source": "file"},
        *({"broker_id": number, "resource": "disk", "capacity": 10 * GIB, "source": "log_dirs"} for number in range(3)),
    ]
    warehouse.append("broker_capacity", [{"valid_from": hour, **row} for row in capacities])
    return Surveyor(warehouse)


def _lines(measured: Surveyor, *arguments: str) -> list[str]:
    done = measured.run("show", "load", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.rstrip() for line in done.stdout.splitlines()]


def _rows(lines: list[str]) -> list[list[str]]:
    """The cells of a table, with its headings first."""
    heading = next(number for number, line in enumerate(lines) if "┃" in line)
    table = [lines[heading], *(line for line in lines[heading + 2 :] if "│" in line)]
    return [[cell.strip() for cell in line.replace("┃", "│").split("│")] for line in table]


def _json(measured: Surveyor, *arguments: str) -> dict[str, Any]:
    done = measured.run("show", "load", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_brokers_for_people(measured: Surveyor, hour: datetime) -> None:
    lines = _lines(measured)
    full = [f"{hour + HOUR + timedelta(days=days):%Y-%m-%d %H:%M} UTC" for days in (2 / 7, 2, 8)]
    assert lines[:2] == [
        f"load of default by broker, {hour:%Y-%m-%d %H:%M} to {hour + HOUR:%H:%M} UTC: in 60.0 KiB/s, out",
        "60.0 KiB/s, size 14.0 GiB",
    ]
    assert _rows(lines) == [
        [
            *("broker_id", "rack", "in", "from_leaders", "to_readers", "to_followers", "across_racks", "size"),
            *("growth", "disk_full", "cpu", "of_capacity", "hottest"),
        ],
        [
            *("0", "a", "30.0 KiB/s", "60.0 KiB/s", "30.0 KiB/s", "60.0 KiB/s", "1.0 KiB/s", "8.0 GiB"),
            *("7.0 GiB/day", full[0], "40%", "out 90%", "orders-0 67% of out"),
        ],
        [
            *("2", "b", "20.0 KiB/s", "40.0 KiB/s", "20.0 KiB/s", "40.0 KiB/s", "", "4.0 GiB"),
            *("3.0 GiB/day", full[1], "30%", "out 60%", "audit-0 33% of out"),
        ],
        [
            *("1", "a", "10.0 KiB/s", "20.0 KiB/s", "10.0 KiB/s", "20.0 KiB/s", "", "2.0 GiB"),
            *("1.0 GiB/day", full[2], "20%", "out 30%", "orders-1 67% of out"),
        ],
    ]
    assert lines[-5:] == [
        "bytes by method: delta_size 67%, mean_size 33%; flagged compacted 33%",
        "worst broker as a multiple of its share: disk 1.71 (broker 0), in 1.50 (broker",
        "0), out 1.50 (broker 0), cpu 1.33 (broker 0)",
        "growth: sizes of the last 7 days",
        "cpu: measured",
    ]


def test_brokers_for_programs(measured: Surveyor, hour: datetime) -> None:
    """Exact numbers, with their units."""
    result = _json(measured, "--top", "1")
    (row,) = result["rows"]
    assert row == {
        "broker_id": 0,
        "rack": "a",
        "leaders": 10,
        "replicas": 30,
        "bytes_in": 30720.0,
        "replication_in": 61440.0,
        "bytes_out": 30720.0,
        "replication_out": 61440.0,
        "across_racks": 1024.0,
        "size_bytes": 8 * GIB,
        "growth": pytest.approx(7 * GIB / 86_400),
        "cpu": 40.0,
        "disk_share": 0.8,
        "in_share": None,
        "out_share": pytest.approx(0.9),
        "cpu_share": None,
        "filling_disks": [
            {
                "log_dirs": [],
                "share": 0.8,
                "growth": pytest.approx(7 * GIB / 86_400),
                "full_at": f"{hour + HOUR + timedelta(days=2 / 7):%Y-%m-%dT%H:%M:%SZ}",
            }
        ],
        "hottest": {
            "topic": "orders",
            "partition": 0,
            "broker_id": 0,
            "resource": "out",
            "share": pytest.approx(2 / 3),
        },
    }
    assert {name: result["units"][name] for name in ("bytes_in", "size_bytes", "cpu", "out_share", "growth")} == {
        "bytes_in": "bytes per second",
        "size_bytes": "bytes",
        "cpu": "percent of all cores",
        "out_share": "ratio",
        "growth": "bytes per second",
    }
    assert (result["by"], result["window"], result["hours"]) == ("broker", "now", [_in_json(hour)])
    assert result["total"]["bytes_in"] == 60 * KIB
    assert result["methods"] == {"delta_size": pytest.approx(2 / 3), "mean_size": pytest.approx(1 / 3)}
    assert result["unevenness"][1] == {"resource": "in", "broker_id": 0, "ratio": 1.5}
    assert 0 <= result["age_seconds"] < 2 * 3600


def test_racks_add_up_their_brokers(measured: Surveyor) -> None:
    first, second = _json(measured, "--by", "rack")["rows"]
    names = ("rack", "brokers", "bytes_in", "size_bytes", "cpu", "disk_share", "out_share", "across_racks")
    assert [first[name] for name in names] == ["a", 2, 40 * KIB, 10 * GIB, 30, 0.5, pytest.approx(0.6), KIB]
    assert [second[name] for name in names] == ["b", 1, 20 * KIB, 4 * GIB, 30, 0.4, pytest.approx(0.6), None]


def test_a_broker_with_an_unreadable_registration_counts_to_its_last_rack(tmp_path: Path, hour: datetime) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers = [broker(0, 9, rack="a"), broker(1, 9, rack=None, understood=False)]
    cluster.topics, cluster.partitions = [topic("orders")], {("orders", 0): partition([0, 1])}
    lay_tables(warehouse)
    last_seen = {"snapshot_id": 1, "broker_id": 1, "broker_epoch": 8, "rack": "b", "last_seen_at": hour}
    warehouse.append("brokers_last_seen", [last_seen])
    cluster.snapshot()
    warehouse.append("broker_load", [broker_row(hour, number, KIB) for number in range(2)])

    rows = _json(Surveyor(warehouse), "--by", "rack")["rows"]

    assert [(row["rack"], row["brokers"]) for row in rows] == [("a", 1), ("b", 1)]


def test_topics(measured: Surveyor) -> None:
    result = _json(measured, "--by", "topic")
    assert result["rows"] == [
        {
            "topic": "orders",
            "partitions": 2,
            "bytes_in": 40 * KIB,
            "bytes_out": 40 * KIB,
            "replication_out": 40 * KIB,
            "size_bytes": 10 * GIB,
            "growth": pytest.approx(6 * GIB / 86_400),
            "cpu": None,
            "methods": ["delta_size"],
            "skew": 1.5,
            "largest": 0,
            "flags": [],
        },
        {
            "topic": "audit",
            "partitions": 1,
            "bytes_in": 20 * KIB,
            "bytes_out": 20 * KIB,
            "replication_out": 0.0,
            "size_bytes": 4 * GIB,
            "growth": None,
            "cpu": None,
            "methods": ["mean_size"],
            "skew": 1.0,
            "largest": 0,
            "flags": ["compacted"],
        },
    ]
    assert result["total"]["replication_out"] == 40 * KIB
    assert _rows(_lines(measured, "--by", "topic"))[1:] == [
        [
            *("orders", "2", "40.0 KiB/s", "40.0 KiB/s", "40.0 KiB/s", "10.0 GiB", "6.0 GiB/day", "1.5", "0"),
            *("delta_size", ""),
        ],
        ["audit", "1", "20.0 KiB/s", "20.0 KiB/s", "0 B/s", "4.0 GiB", "", "1.0", "0", "mean_size", "compacted"],
    ]


def test_partitions(measured: Surveyor) -> None:
    first, *others = _json(measured, "--by", "partition")["rows"]
    assert [(row["topic"], row["partition"]) for row in others] == [("audit", 0), ("orders", 1)]
    names = (
        "topic",
        "partition",
        "leader",
        "replicas",
        "bytes_in",
        "replication_out",
        "leader_share",
        "leader_resource",
    )
    assert [first[name] for name in names] == ["orders", 0, 0, [0, 1], 30 * KIB, 30 * KIB, pytest.approx(2 / 3), "out"]
    assert (first["method"], first["flags"], first["samples"], first["records_in"]) == (
        "delta_size",
        None,
        12,
        30 * KIB,
    )
    lines = _lines(measured, "--by", "partition", "--top", "1")
    assert _rows(lines)[1][:5] == ["orders", "0", "0", "30.0 KiB/s", "30.0 KiB/s"]
    assert "... and 2 more; --top N shows more, --json gives all" in lines


def test_groups(measured: Surveyor) -> None:
    result = _json(measured, "--by", "group")
    assert result["rows"] == [
        {"group_id": "billing", "topics": 2, "records_out": 10.0, "bytes_out": 2 * KIB, "lag": 77},
        {"group_id": "audit", "topics": 1, "records_out": 1.0, "bytes_out": None, "lag": None},
    ]
    lines = _lines(measured, "--by", "group")
    assert " ".join(lines[:2]).endswith("out 2.0 KiB/s, lag 77 records")
    assert _rows(lines)[1:] == [["billing", "2", "10/s", "2.0 KiB/s", "77"], ["audit", "1", "1/s", "", ""]]


def test_the_mean_and_the_peak_of_hours(measured: Surveyor, hour: datetime) -> None:
    mean = _json(measured, "--window", "2h")
    assert (mean["hours"], mean["span_hours"]) == ([_in_json(hour - HOUR), _in_json(hour)], 2)
    assert [(row["broker_id"], row["bytes_in"]) for row in mean["rows"]] == [
        (1, 50 * KIB),
        (0, 30 * KIB),
        (2, 20 * KIB),
    ]
    by_topic = _json(measured, "--window", "2h", "--by", "topic")["rows"]
    assert [(row["topic"], row["bytes_in"]) for row in by_topic] == [("orders", 80 * KIB), ("audit", 20 * KIB)]
    text = _lines(measured, "--window", "5h")[0]
    assert text.startswith(f"load of default by broker, mean of 2 of the 5 hours up to {hour + HOUR:%Y-%m-%d %H:%M}")
    peak = _lines(measured, "--window", "peak")
    assert peak[0].startswith(f"load of default by broker, peak of 7 days, {hour - HOUR:%Y-%m-%d %H:%M} to ")


def test_wide_has_every_column(measured: Surveyor) -> None:
    headings, row = _rows(_lines(measured, "--by", "partition", "-o", "wide", "--top", "1"))
    assert {"replicas", "records", "samples", "leader_share"} <= {*headings}
    assert [row[headings.index(name)] for name in ("replicas", "records", "leader_share")] == [
        "[0,1]",
        "30,720/s",
        "67%",
    ]


def test_old_loads_say_their_age(tmp_path: Path) -> None:
    """And those of a peak do not, as it may be some days ago; groups have no loads there."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    lay_tables(warehouse)
    warehouse.append("broker_load", [broker_row(_last_hour() - timedelta(days=3), 0, KIB)])
    lines = " ".join(_lines(Surveyor(warehouse)))
    assert "the newest hour is 3 days old: `surveyor load sample` and `surveyor load rollup` measure" in lines
    assert "no capacity is known: `surveyor sizes` records that of disks" in lines
    assert "days old" not in " ".join(_lines(Surveyor(warehouse), "--window", "peak"))
    assert "no load of groups is known" in " ".join(_lines(Surveyor(warehouse), "--by", "group"))


def _with_cpu_model(folder: Path, hour: datetime, r2: float) -> Surveyor:
    """A broker without measured CPU leads a partition, and a profile has a CPU model."""
    cluster = Cluster(Warehouse(str(folder / "warehouse"), "default"))
    cluster.brokers = [broker(0, 10), broker(1, 11)]
    cluster.topics = [topic("orders")]
    cluster.partitions = {("orders", 0): partition([0, 1])}
    cluster.snapshot()
    cluster.warehouse.append("broker_load", [broker_row(hour, 0, 5 * KIB)])
    cluster.warehouse.append("partition_load", [partition_row(hour, "orders", 0, 5 * KIB)])
    factors = {"cpu_leader_in": 2 / KIB, "cpu_leader_out": 1 / KIB, "cpu_follower_in": 0.5 / KIB, "cpu_r2": r2}
    profile = {"profile": "default", "version": 3, "created_at": hour, "window": "Mon 20:00", "bytes_in": 1.0}
    cluster.warehouse.append("load_profiles", [{**profile, **factors, "topic": "orders", "partition": 0}])
    return Surveyor(cluster.warehouse)


def test_modelled_cpu(tmp_path: Path, hour: datetime) -> None:
    """The leader gets 5 KiB/s, and sends as much to a reader and a follower; the broker also follows others."""
    modelled = _with_cpu_model(tmp_path, hour, 0.97)
    found = {by: _json(modelled, "--by", by) for by in ("broker", "rack", "topic", "partition")}
    assert {by: [row["cpu"] for row in result["rows"]] for by, result in found.items()} == {
        "broker": [10.0 + 5.0 + 10.0 + 5.0, 0.0],
        "rack": [15.0],
        "topic": [20.0],
        "partition": [20.0],
    }
    source = "modelled, R² 0.97 (profile default, version 3)"
    assert {result["cpu_from"] for result in found.values()} == {source}
    assert _lines(modelled, "--by", "partition")[-1] == f"cpu: {source}"


def test_cpu_that_cannot_be_modelled(tmp_path: Path, hour: datetime) -> None:
    modelled = _with_cpu_model(tmp_path, hour, 0.31)
    source = "not modelled: R² 0.31 is below 0.6 (profile default, version 3)"
    for by in ("broker", "partition"):
        result = _json(modelled, "--by", by)
        assert (result["rows"][0]["cpu"], result["cpu_from"]) == (None, source)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--window", "5m"), 2, "--window '5m' is no window: expected now, peak, or hours"),
        (("--by", "disk"), 2, "Invalid value for '--by'"),
        (("--top", "0"), 2, "Invalid value for '--top'"),
        (("--cluster", "other"), 22, "no loads of cluster 'other'"),
    ],
)
def test_what_cannot_be_shown(measured: Surveyor, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = measured.run("show", "load", *arguments)
    assert (done.exit_code, done.stdout, message in done.stderr) == (code, "", True)


def test_an_hour_that_has_not_ended_has_no_age(tmp_path: Path) -> None:
    warehouse, coming = Warehouse(str(tmp_path / "warehouse"), "default"), _last_hour() + 2 * HOUR
    lay_tables(warehouse)
    store_hours(warehouse, [coming], [KIB])
    shown = _json(Surveyor(warehouse))
    assert (shown["hours"], shown["age_seconds"]) == ([_in_json(coming)], 0)
