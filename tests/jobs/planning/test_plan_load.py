"""Plans show the load of brokers before and after where tables have loads, with a warning if they make it less even."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jobs.execution.rollback_load import load_of_rollback
from jobs.repositories.load_basis import plan_loads
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import Change, PlanRecord, Row
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.rows.first_snapshot import first_snapshot_of
from tests.jobs.support.rows.input_files import reassignment_file
from tests.jobs.support.rows.load_rows import HOT_AND_COLD, PARTITION_LOADS
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

PEAK: Final = "Mon 20:00"
NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)

SPREAD: Final = {("hot", 1): [2, 1]}
"""Broker 0 gives a leader of hot to broker 2.

Into the brokers flow 210, 210 and 20 B/s before, and 110, 210 and 120 after; the mean is 146.67. Out of them flow 800,
20 and 20 before, and 400, 20 and 420 after; the mean is 280. On disk are 2100, 2100 and 200 bytes before, and 1100,
2100 and 1200 after.
"""


@pytest.fixture(scope="module")
def template(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    return first_snapshot_of(module_tree, tmp_path_factory.mktemp("load"), HOT_AND_COLD)


@pytest.fixture
def surveyor(template: Surveyor, tmp_path: Path) -> Surveyor:
    return template.copied_to(tmp_path / "warehouse")


def _profile(surveyor: Surveyor, **columns: Any) -> None:  # noqa: ANN401 - columns of LOAD_PROFILES
    """Add a version of a profile: the loads at PEAK, and a tenth of them at another hour."""
    common = {"profile": "default", "version": 1, "created_at": NOW, **columns}
    rows = [
        {**common, "topic": topic, "partition": number, "window": window, **_scaled(load, share)}
        for (topic, number), load in PARTITION_LOADS.items()
        for window, share in ((PEAK, 1.0), ("Sun 03:00", 0.1))
    ]
    surveyor.warehouse.append("load_profiles", rows)


def _scaled(load: Mapping[str, float], share: float) -> Row:
    return {name: value if name == "size_bytes" else value * share for name, value in load.items()}


def _plan(surveyor: Surveyor, tmp_path: Path, targets: Mapping[tuple[str, int], list[int]], *options: str) -> Ran:
    file = reassignment_file(tmp_path, *((*place, replicas) for place, replicas in targets.items()))
    return surveyor("plan", "reassign", "--reassignment-json-file", file, *options)


def _figures(surveyor: Surveyor) -> Any:  # noqa: ANN401 - JSON
    """Return the figures of the only plan, as they are stored."""
    [plan] = surveyor.warehouse.typed_rows(PlanRecord)
    return json.loads(plan.figures or "null")


def test_a_plan_shows_the_load_before_and_after(surveyor: Surveyor, tmp_path: Path) -> None:
    _profile(surveyor)
    ran = _plan(surveyor, tmp_path, SPREAD)
    figures = _figures(surveyor)
    assert {name: figures[name] for name in ("bytes", "worst_before", "worst_after", "partitions")} == {
        "bytes": 1000,
        "worst_before": pytest.approx(800 / 280),
        "worst_after": pytest.approx(1.5),
        "partitions": 4,
    }
    lines = [
        "  bytes in per broker 0.14..1.43 (210 B/s) → 0.75..1.43 (210 B/s) times the mean, Mon 20:00",
        "  bytes out per broker 0.07..2.86 (800 B/s) → 0.07..1.50 (420 B/s) times the mean, Mon 20:00",
        "  disk per broker 0.14..1.43 (2.1 KiB) → 0.75..1.43 (2.1 KiB) times the mean, Mon 20:00",
        "  load from profile default, version 1, hours in UTC",
    ]
    assert "\n".join(lines) in ran.stdout
    assert "less even" not in ran.stdout


def test_the_loads_are_not_part_of_the_id(surveyor: Surveyor, tmp_path: Path) -> None:
    """The plan that is made again once loads are known is the same, and shows them."""
    without = _plan(surveyor, tmp_path, SPREAD, "--json").json
    assert ("load" in without, _figures(surveyor)) == (False, None)
    _profile(surveyor)
    again = _plan(surveyor, tmp_path, SPREAD, "--json").json
    assert (again["plan_id"], again["load"]["worst_after"]) == (without["plan_id"], pytest.approx(1.5))
    shown = surveyor.json("show", "plan", without["plan_id"])
    assert shown["load"] == again["load"] == _figures(surveyor)
    assert len(shown["load"]["effects"]) == 2 * 3


def test_a_plan_that_makes_load_less_even_warns(surveyor: Surveyor, tmp_path: Path) -> None:
    """Broker 1 gets a replica of cold: 220 B/s flow into it, 1.5 of the mean."""
    _profile(surveyor)
    plan = _plan(surveyor, tmp_path, {("cold", 1): [2, 1]}, "--json").json
    warning = "bytes in become less even: broker 1 gets 1.50 times the mean on Mon 20:00 UTC, "
    warning += "and now the most of a broker is 1.43"
    assert warning in plan["warnings"]
    assert f"  warning: {warning}" in surveyor("show", "plan", plan["plan_id"]).stdout
    page = tmp_path / "plan.html"
    assert surveyor("report", "--plan", plan["plan_id"], "--out", str(page)).code == 0
    html = page.read_text()
    assert "0.14..1.43 (210 B/s)" in html
    assert "0.14..1.50 (220 B/s) times the mean, Mon 20:00" in html
    assert warning in html


def _hours(surveyor: Surveyor) -> None:
    """Add hours whose mean of seven days is the load of PARTITION_LOADS; an older hour, and loads of deleted topics."""
    rows = [
        {"topic": topic, "partition": number, "hour": NOW - age, "method": "delta_size", **_scaled(load, share)}
        for (topic, number), load in PARTITION_LOADS.items()
        for age, share in ((timedelta(), 0.5), (timedelta(days=6), 1.5), (timedelta(days=7), 40.0))
    ]
    gone = {"topic": "hot", "partition": 0, "hour": NOW, "method": "delta_size", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    surveyor.warehouse.append("partition_load", [*rows, {**gone, "bytes_in": 9e9}, {**gone, "topic": "gone"}])


def _imported(surveyor: Surveyor) -> None:
    common = {"hour": None, "method": "imported"}
    rows = [
        {"topic": topic, "partition": number, **load, **common} for (topic, number), load in PARTITION_LOADS.items()
    ]
    surveyor.warehouse.append("partition_load", rows)


def _both(surveyor: Surveyor) -> None:
    """Hours of hot, and loads of every hour, of which those of cold count."""
    _hours(surveyor)
    surveyor.warehouse.delete("partition_load", "topic = 'cold'")
    _imported(surveyor)


def _other_profile(surveyor: Surveyor) -> None:
    _profile(surveyor, profile="weekend")
    _profile(surveyor, profile="weekend", version=2)
    surveyor.warehouse.append("load_profiles", [])


SOURCES: Final = [
    ("the mean of 2 hours until 2026-11-30 13:00 UTC", _hours),
    ("the mean of 2 hours until 2026-11-30 13:00 UTC", _both),
    ("imported loads", _imported),
    ("profile weekend, version 2", _other_profile),
]


@pytest.mark.parametrize(("title", "store"), SOURCES)
def test_loads_are_of_the_first_source_that_has_any(
    surveyor: Surveyor, tmp_path: Path, title: str, store: Callable[[Surveyor], None]
) -> None:
    store(surveyor)
    ran = _plan(surveyor, tmp_path, SPREAD)
    assert re.search(f"  load from {title}(, hours in UTC)?\n", ran.stdout)
    assert _figures(surveyor)["worst_before"] == pytest.approx(800 / 280)


def test_of_several_profiles_only_the_default_one_counts(surveyor: Surveyor) -> None:
    _imported(surveyor)
    _other_profile(surveyor)
    _profile(surveyor, profile="month-end")
    assert str(plan_loads(surveyor.warehouse)).startswith("LoadRows(profile=None")
    _profile(surveyor, version=7)
    loads = plan_loads(surveyor.warehouse)
    assert loads is not None
    assert loads.title == "profile default, version 7"


def test_elections_change_what_leaders_send(surveyor: Surveyor) -> None:
    """Bytes in and disks stay, so only one line is shown."""
    _profile(surveyor)
    ran = surveyor("plan", "drain", "--brokers", "0")
    [line] = [line for line in ran.stdout.splitlines() if "per broker" in line and "times the mean" in line]
    assert line.startswith("  bytes out per broker 0.07..2.86 (800 B/s) → ")
    assert _figures(surveyor)["bytes"] == 0


def test_a_broker_that_is_emptied_counts_before_only(surveyor: Surveyor) -> None:
    _profile(surveyor)
    plan = surveyor.json("plan", "reassign", "--remove-brokers", "0")
    effects = {effect["resource"]: effect for effect in plan["load"]["effects"] if effect["window"] == PEAK}
    assert effects["disk"]["mean"] == [pytest.approx(4400 / 3), 2200]


def test_a_rollback_has_the_load_of_the_plan_reversed(surveyor: Surveyor, tmp_path: Path) -> None:
    """It is computed without an engine, from the lists that the plan has left and those before it."""
    _profile(surveyor)
    plan = _plan(surveyor, tmp_path, SPREAD, "--json").json
    [made] = msgspec.convert(surveyor.warehouse.rows("changes"), list[Change])
    undone = {
        f"{name}_{side}": getattr(made, f"{name}_{other}")
        for name in ("replicas", "leader")
        for side, other in (("before", "after"), ("after", "before"))
    }
    settings = Settings("default", surveyor.warehouse.uri, ClusterConf())
    load = load_of_rollback(settings, [msgspec.structs.replace(made, **undone)])
    assert load is not None
    assert (load.worst_before, load.worst_after) == (plan["load"]["worst_after"], plan["load"]["worst_before"])
    assert [effect.most for effect in load.effects] == [tuple(e["most"][::-1]) for e in plan["load"]["effects"]]


def _capacities(surveyor: Surveyor, disks: Mapping[int, float]) -> None:
    common = {"resource": "disk", "source": "file", "valid_from": NOW}
    rows = [{"broker_id": broker, "capacity": capacity, **common} for broker, capacity in disks.items()]
    surveyor.warehouse.append("broker_capacity", rows)


def test_loads_are_compared_by_capacity_where_it_is_known(surveyor: Surveyor, tmp_path: Path) -> None:
    """Of 4400 bytes brokers 0, 1 and 2 should have 1/6, 2/6 and 3/6, and have 2100, 2100 and 200 before."""
    _profile(surveyor)
    _capacities(surveyor, {0: 10_000.0, 1: 20_000.0, 2: 30_000.0})
    ran = _plan(surveyor, tmp_path, SPREAD)
    shown = "disk per broker 0.09..2.86 (2.1 KiB) → 0.55..1.50 (1.1 KiB) times its share by capacity, Mon 20:00\n"
    assert shown in ran.stdout
    figures = _figures(surveyor)
    [disk] = [e for e in figures["effects"] if (e["resource"], e["window"]) == ("disk", PEAK)]
    assert (disk["broker"], disk["most"], disk["by_capacity"]) == ([0, 0], [2100, 1100], True)
    assert figures["worst_before"] == pytest.approx(2100 / (4400 / 6))


@pytest.mark.parametrize("disks", [{0: 9.1, 1: 9.1, 2: 9.1}, {0: 10_000.0, 1: 20_000.0}])
def test_equal_or_partly_known_capacities_change_nothing(
    surveyor: Surveyor, tmp_path: Path, disks: Mapping[int, float]
) -> None:
    _profile(surveyor)
    without = _plan(surveyor.copied_to(tmp_path / "without"), tmp_path, SPREAD, "--json").json["load"]
    _capacities(surveyor, disks)
    assert _plan(surveyor, tmp_path, SPREAD, "--json").json["load"] == without


def test_new_topics_change_no_load(surveyor: Surveyor) -> None:
    _profile(surveyor)
    ran = surveyor("plan", "assign", "--topic", "new", "--partitions", "2", "--replication-factor", "2")
    assert (ran.code, "per broker" in ran.stdout, "load from" in ran.stdout) == (0, False, False)
