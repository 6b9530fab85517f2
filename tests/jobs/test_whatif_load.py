"""`surveyor whatif` by load: the hours of the last weeks by another assignment, and the load of other brokers."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.console_output.loads import NO_CAPACITY
from schemas.rows import PlanRecord, Row, Snapshot
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import first_snapshot_of, write_first_snapshot
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.rows.load_rows import COLD, HOT, HOT_AND_COLD, PARTITION_LOADS
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration

pytestmark = pytest.mark.usefixtures("spark")

PEAK: Final = datetime(2026, 11, 30, 20, tzinfo=UTC)
NIGHT: Final = PEAK + timedelta(hours=7)


@pytest.fixture(scope="module")
def template(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    return first_snapshot_of(module_tree, tmp_path_factory.mktemp("load"), HOT_AND_COLD)


@pytest.fixture
def surveyor(template: Surveyor, tmp_path: Path) -> Surveyor:
    return template.copied_to(tmp_path / "warehouse")


def _at(hour: datetime | None, loads: Mapping[str, Mapping[str, float]], method: str = "delta_size") -> Iterator[Row]:
    for topic, number in PARTITION_LOADS:
        yield {"topic": topic, "partition": number, "hour": hour, "method": method, **loads[topic]}


def _store(surveyor: Surveyor, *rows: Iterator[Row]) -> None:
    surveyor.warehouse.append("partition_load", [row for some in rows for row in some])


def _hours(surveyor: Surveyor) -> None:
    """Store an hour in which hot is hot, one in which all are as cold, and one five weeks ago.

    At the peak broker 0 sends 800 of 840 B/s, 2.8571 times the mean, and at night 40 of 80, 1.5 times. An imported load
    of a sampled hour does not count.
    """
    _store(
        surveyor,
        _at(PEAK, {"hot": HOT, "cold": COLD}),
        _at(PEAK, {"hot": COLD, "cold": HOT}, "imported"),
        _at(NIGHT, {"hot": COLD, "cold": COLD}),
        _at(PEAK - timedelta(weeks=5), {"hot": COLD, "cold": HOT}),
    )


def _spread(surveyor: Surveyor, tmp_path: Path) -> None:
    """Plan that broker 2 leads hot-1 instead of broker 0: then it sends 420 of 840 B/s, and at night 40 of 80."""
    file = reassignment_file(tmp_path, ("hot", 1, [2, 1]))
    assert surveyor("plan", "reassign", "--reassignment-json-file", file, "--name", "spread").code == 0


def _worst(multiple: float, broker: int, side: str) -> Row:
    return {f"worst_{side}": multiple, f"broker_{side}": broker, f"resource_{side}": "out"}


def test_hours_are_replayed_before_and_after_a_plan(surveyor: Surveyor, tmp_path: Path) -> None:
    _hours(surveyor)
    _spread(surveyor, tmp_path)
    shown = surveyor.json("whatif", "--load", "spread")
    assert shown["rows"] == [
        {"hour": "2026-11-30T20:00:00Z", **_worst(2.8571, 0, "before"), **_worst(1.5, 2, "after")},
        {"hour": "2026-12-01T03:00:00Z", **_worst(1.5, 0, "before"), **_worst(1.5, 2, "after")},
    ]
    assert (shown["before"], shown["after"]) == (
        {"worst": 2.8571, "median": 2.17855, "uneven_hours": 2},
        {"worst": 1.5, "median": 1.5, "uneven_hours": 2},
    )
    text = surveyor("whatif", "spread", "--load", "--limit", "1").stdout
    assert "default, snapshot 1: load of 2 hours, before and after plan" in text
    assert "Mon 2026-11-30 20:00 UTC" in text
    assert "... and 1 more hours; --limit shows more, --json gives all" in text
    assert "most loaded broker, of the mean: 2.86 → 1.50" in text
    assert "2.86 |o\n" in text
    assert "o before  * after\n" in text


def test_hours_are_a_page(surveyor: Surveyor, tmp_path: Path) -> None:
    """With a line before and one after the plan, and a row for each hour."""
    _hours(surveyor)
    _spread(surveyor, tmp_path)
    out = tmp_path / "hours.html"
    shown = surveyor.json("whatif", "--load", "spread", "--out", str(out))
    page = out.read_text(encoding="utf-8")
    assert (shown["path"], shown["bytes"], shown["hours"]) == (str(out), out.stat().st_size, 2)
    names = re.findall(r"<strong>(.*?)</strong>(.*?)</li>", page)
    assert names == [
        ("2.86 → 1.50", "most loaded broker, of the mean"),
        ("2.18 → 1.50", "in the median hour"),
        ("2 → 2", "hours in which a broker has more than 1.25 times the mean"),
    ]
    assert re.findall(r'<polyline class="(l\d)" points="(.*?)"><title>(.*?)</title>', page) == [
        ("l0", "0.0,8.0 100.0,81.1", "before"),
        ("l1", "0.0,81.1 100.0,81.1", "after"),
    ]
    labels = ["Mon 2026-11-30 20:00 UTC", "Tue 2026-12-01 03:00 UTC"]
    assert re.findall(r'<text class="axis.*?>(.*?)</text>', page) == labels
    rows = json.loads(re.findall(r'id="rows-hours">(.*?)</script>', page)[0])
    assert {column["label"]: column["values"] for column in rows["columns"]} == {
        "hour": ["2026-11-30 20:00 UTC", "2026-12-01 03:00 UTC"],
        "day": ["Monday", "Tuesday"],
        "multiple before": [2.8571, 1.5],
        "broker before": ["0"],
        "resource before": ["out"],
        "multiple after": [1.5, 1.5],
        "broker after": ["2"],
        "resource after": ["out"],
    }
    text = surveyor("whatif", "--load", "--out", str(out)).stdout
    assert f"page: {out} (" in text
    page = out.read_text(encoding="utf-8")
    assert (page.count("<polyline"), "before and after plan" in page) == (1, False)
    refused = surveyor("whatif", "--load", "--out", str(tmp_path / "none" / "hours.html"))
    assert (refused.code, "cannot be written" in refused.stderr) == (2, True)


def test_hours_of_the_assignment_of_today(surveyor: Surveyor) -> None:
    _hours(surveyor)
    shown = surveyor.json("whatif", "--load")
    assert shown["rows"] == [
        {"hour": "2026-11-30T20:00:00Z", **_worst(2.8571, 0, "before")},
        {"hour": "2026-12-01T03:00:00Z", **_worst(1.5, 0, "before")},
    ]
    assert (shown["plan_id"], "after" in shown) == (None, False)
    assert surveyor.json("whatif", "--load", "--weeks", "6")["hours"] == 3


def test_hours_are_replayed_by_capacity(surveyor: Surveyor) -> None:
    """Broker 0 sends 800 of 840 B/s at the peak, 1.19 times what it should; it receives 210 of 440."""
    _hours(surveyor)
    common = {"resource": "out", "source": "file", "valid_from": PEAK}
    shares = {0: 8.0, 1: 1.0, 2: 1.0}
    surveyor.warehouse.append(
        "broker_capacity", [{"broker_id": at, "capacity": c, **common} for at, c in shares.items()]
    )
    shown = surveyor.json("whatif", "--load")
    assert shown["by_capacity"]
    assert shown["rows"][0] == {
        "hour": "2026-11-30T20:00:00Z",
        "worst_before": 1.4318,
        "broker_before": 0,
        "resource_before": "in",
    }
    assert (
        "most loaded broker, of its share (by capacity where that differs): 2.50\n"
        in surveyor("whatif", "--load").stdout
    )


def test_without_hours_nothing_is_replayed(surveyor: Surveyor) -> None:
    none = surveyor("whatif", "--load")
    assert (none.code, "no loads" in none.stderr) == (22, True)
    _store(surveyor, _at(None, {"hot": HOT, "cold": COLD}, "imported"))
    imported = surveyor("whatif", "--load")
    assert (imported.code, "there are no hours to replay" in imported.stderr) == (22, True)


def _imported(surveyor: Surveyor) -> None:
    _store(surveyor, _at(None, {"hot": HOT, "cold": COLD}, "imported"))


def _disks(surveyor: Surveyor, size: float) -> None:
    common = {"resource": "disk", "source": "file", "valid_from": PEAK, "limit_share": 1.0, "capacity": size}
    surveyor.warehouse.append("broker_capacity", [{"broker_id": broker, **common} for broker in range(3)])


def _conf(surveyor: Surveyor, *sections: str) -> str:
    """Write a configuration file with sections of the cluster; return its path."""
    path = surveyor.folder.parent / "surveyor.toml"
    path.write_text("\n".join([f'[clusters.default]\nzookeeper = "{surveyor.hosts}"', *sections]))
    return str(path)


COMPARED: Final = ("bytes", "bytes_bound", "elections", "worst_after", "worst_bound")


def _balance(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: figures["load_balance"][name] for name in COMPARED}


def test_a_removal_is_what_the_plan_gives(surveyor: Surveyor) -> None:
    _imported(surveyor)
    shown = surveyor.json("whatif", "--remove", "2")
    assert surveyor.warehouse.typed_rows(PlanRecord) == []
    plan = surveyor.json("plan", "reassign", "--remove-brokers", "2", "--by-load")
    assert _balance(shown) == _balance(plan)
    assert shown["load_balance"]["bytes"] == 200
    rows = {row["broker_id"]: row for row in shown["rows"]}
    assert (rows[0]["worst_before"], rows[2]["worst_after"]) == (1.9048, None)  # 800 B/s, of two brokers 420 each
    assert shown["load_balance"]["worst_before"] == {"multiple": 1.9048, "broker": 0, "resource": "out"}
    assert max(row["worst_after"] or 0 for row in rows.values()) == shown["load_balance"]["worst_after"]["multiple"]
    assert shown["worst_of"] == "the mean after the change"
    text = " ".join(surveyor("whatif", "--remove", "2").stdout.split())
    assert "load from imported loads; worst: multiples of the mean after the change" in text
    assert (
        "plan the removal: surveyor plan reassign --remove-brokers 2 --by-load"
        in surveyor("whatif", "--remove", "2").stdout
    )


@pytest.mark.parametrize(
    "options",
    [["--add", "1"], ["--remove", "2"], ["--growth", "10%"], ["--remove", "2", "--growth", "10%"]],
    ids=" ".join,
)
def test_notices_of_loads_are_shown_once(surveyor: Surveyor, options: list[str]) -> None:
    _store(surveyor, (row for row in _at(PEAK - timedelta(weeks=5), {"hot": HOT, "cold": COLD}) if row["partition"]))
    ran = surveyor("whatif", *options)
    assert ran.code == 0, ran.stderr
    notices = [line for line in ran.stderr.splitlines() if line.startswith("surveyor: ")]
    assert [" ".join(line.split()[1:4]) for line in notices] == [
        "warning: the newest",
        "the plan does",
        "2 of 4",
    ], ran.stderr


def test_a_removal_that_leaves_too_few_brokers_for_some_partitions_is_refused(
    bare_tree: KafkaTree, tmp_path: Path
) -> None:
    """The one replica of `single` can leave broker 2; the others have two replicas, and only broker 0 remains."""
    surveyor = first_snapshot_of(bare_tree, tmp_path, HOT_AND_COLD | {"single": {0: [2]}})
    _imported(surveyor)
    ran = surveyor("whatif", "--remove", "1,2")
    fault = "4 partitions would have more replicas than the 1 broker that may hold them (cold-0, cold-1, hot-0, hot-1)"
    assert (ran.code, fault in ran.stderr, ran.stdout) == (23, True, "")


def test_a_removal_that_gives_up_a_rack_warns_as_its_plan_does(bare_tree: KafkaTree, tmp_path: Path) -> None:
    surveyor = first_snapshot_of(bare_tree, tmp_path, HOT_AND_COLD)
    for broker, rack in enumerate("aab"):
        bare_tree.client.set(f"/brokers/ids/{broker}", registration(rack=rack))
    write_first_snapshot(surveyor)
    _imported(surveyor)
    shown = surveyor.json("whatif", "--remove", "2")["warnings"]
    planned = surveyor.json("plan", "reassign", "--remove-brokers", "2", "--by-load")["warnings"]
    assert (
        [text for text in shown if text.startswith("rack b is given up")]
        == [text for text in planned if text.startswith("rack b is given up")]
        != []
    )


@pytest.mark.parametrize(
    "sections",
    [
        [],
        ["[clusters.default.capacity]", "replicas = 3"],
        ["[clusters.default.leaders]", "min = { cold = 1 }", 'even = ["h.*"]'],
        ["[clusters.default.capacity]", "replicas = 4", "[clusters.default.leaders]", 'even = ["cold", "hot"]'],
    ],
)
def test_new_brokers_get_what_the_plan_gives_them(bare_tree: KafkaTree, tmp_path: Path, sections: list[str]) -> None:
    surveyor = first_snapshot_of(bare_tree, tmp_path, HOT_AND_COLD)
    _imported(surveyor)
    _disks(surveyor, 4000.0)
    conf = _conf(surveyor, *sections)
    shown = surveyor.json("whatif", "--add", "1", "--conf", conf)
    assert shown["added"] == [3]
    assert shown["load_balance"]["worst_before"] == {"multiple": 3.8095, "broker": 0, "resource": "out"}
    assert [(row["broker_id"], row["worst_before"]) for row in shown["rows"]][::3] == [(0, 3.8095), (3, None)]
    bare_tree.register(3)
    write_first_snapshot(surveyor)
    common = {"resource": "disk", "source": "file", "valid_from": PEAK, "limit_share": 1.0}
    surveyor.warehouse.append("broker_capacity", [{"broker_id": 3, "capacity": 4000.0, **common}])
    plan = surveyor.json("plan", "reassign", "--add-brokers", "3", "--by-load", "--conf", conf)
    assert _balance(shown) == _balance(plan)
    assert shown["load_balance"]["bytes"] > 0


def test_growth_fills_disks_on_a_day(surveyor: Surveyor) -> None:
    """Brokers 0 and 1 hold 2100 bytes and broker 2 200; in ten days they grow by half, 105 and 10 bytes a day."""
    _imported(surveyor)
    _disks(surveyor, 4200.0)
    shown = surveyor.json("whatif", "--growth", "50%", "--days", "10")
    [snapshot] = surveyor.warehouse.typed_rows(Snapshot)
    full = (snapshot.taken_at + timedelta(days=20)).replace(microsecond=0, tzinfo=UTC)
    rows = {row["broker_id"]: row for row in shown["rows"]}
    assert {broker: (row["share_before"], row["share_after"]) for broker, row in rows.items()} == {
        0: (0.5, 0.75),
        1: (0.5, 0.75),
        2: (0.0476, 0.0714),
    }
    assert rows[0]["disk_full_after"] == f"{full:%Y-%m-%dT%H:%M:%SZ}"
    assert datetime.fromisoformat(rows[2]["disk_full_after"]) == full + timedelta(days=380)
    assert shown["first_disk_full"]["after"]["broker_id"] == 0
    assert shown["load_balance"]["bytes"] == 0
    text = surveyor("whatif", "--growth", "50%", "--days", "10").stdout
    assert "default, snapshot 1, loads 50 % higher in 10 days, load from imported loads" in text
    assert f"first full disk: broker 0 on {full:%Y-%m-%d} → broker 0 on {full:%Y-%m-%d}" in text
    assert NO_CAPACITY not in text


def test_growth_leaves_the_number_of_replicas(surveyor: Surveyor) -> None:
    _imported(surveyor)
    conf = _conf(surveyor, "[clusters.default.capacity]", "replicas = 5")
    shown = surveyor.json("whatif", "--growth", "150%", "--conf", conf)
    assert [(row["share_before"], row["share_after"], row["resource_after"]) for row in shown["rows"]] == [
        (0.6, 0.6, "replicas"),
        (0.6, 0.6, "replicas"),
        (0.4, 0.4, "replicas"),
    ]
    assert (shown["growth"], shown["capacities"]) == (1.5, ["replicas"])
    assert NO_CAPACITY in surveyor("whatif", "--growth", "150%", "--conf", conf).stdout


def test_growth_leaves_the_limits_of_leaders(surveyor: Surveyor) -> None:
    """Without capacities nothing bounds the loads, so twice of all loads is balanced by the same moves."""
    _imported(surveyor)
    conf = _conf(surveyor, "[clusters.default.leaders]", 'even = ["hot", "cold"]')
    today, grown = (
        surveyor.json("whatif", "--add", "1", "--growth", growth, "--conf", conf) for growth in ("0%", "100%")
    )
    assert today["load_balance"]["elections"] + today["load_balance"]["bytes"] > 0
    worst = [shown["load_balance"].pop("worst_before")["multiple"] for shown in (today, grown)]
    assert grown["load_balance"] == today["load_balance"]
    assert worst == [3.8095, 1.9048]  # today's load, of the mean after the change


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--weeks", "2", "--lose", "pairs"], "--weeks 2: only with --load"),
        (["--out", "hours.html", "--lose", "pairs"], "--out hours.html: only with --load"),
        (["spread", "--lose", "pairs"], "PLAN spread: only with --load"),
        (["--days", "3", "--add", "1"], "--days 3: only with --growth"),
        (["--add", "1", "--remove", "2"], "--add and --remove exclude each other"),
        (["--load", "--add", "1"], "expected exactly one of --lose, --restart, --restart-order, --load, and --add"),
        (["--growth", "much"], "--growth 'much' is no share"),
        (["--growth", "10001%"], "expected a percentage from 0% to 10000%"),
        (["--load", "none"], "no plan"),
    ],
)
def test_contradictory_options_are_refused(surveyor: Surveyor, options: list[str], fault: str) -> None:
    ran = surveyor("whatif", *options)
    assert (ran.code, fault in ran.stderr) == (2, True), ran.stderr
