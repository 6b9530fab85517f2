"""`surveyor load profile`: the windows in which brokers peak, and the load of partitions in them."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.jobs.support.commands.commands import Surveyor

pytestmark = pytest.mark.usefixtures("spark")

MONDAY: Final = datetime(2026, 11, 2, tzinfo=UTC)
COUNTS: Final = {"leaders": 1, "replicas": 1}
RATES: Final = {"replication_in": 0.0, "bytes_out": 0.0, "replication_out": 0.0, **COUNTS}
WEEKS: Final = 4


def _hours(surveyor: Surveyor, peak: float = 100.0) -> None:
    """Store four weeks of two partitions: `day` peaks on Mondays at 9:00, `night` on Sundays at 23:00."""
    loads: list[dict[str, Any]] = []
    brokers: list[dict[str, Any]] = []
    for week in range(WEEKS):
        for number in (9, 10, 6 * 24 + 23):
            hour = MONDAY + timedelta(weeks=week, hours=number)
            rates = {"day": peak + week if number == 9 else 1.0, "night": peak if number > 24 else 1.0}
            for broker, (topic, rate) in enumerate(rates.items()):
                brokers.append({"hour": hour, "broker_id": broker, "bytes_in": rate, **RATES})
                row = {"hour": hour, "topic": topic, "topic_id": f"id-{topic}", "partition": 0, "method": "delta_size"}
                loads.append({**row, "samples": 12, "bytes_in": rate, "bytes_out": None, "size_bytes": 3600 * week})
    surveyor.warehouse.ensure_tables()
    surveyor.warehouse.append("broker_load", brokers)
    surveyor.warehouse.append("partition_load", loads)


@pytest.fixture
def surveyor(tmp_path: Path) -> Surveyor:
    return Surveyor("", tmp_path / "warehouse")


def test_partitions_have_their_highest_load_of_each_window(surveyor: Surveyor) -> None:
    _hours(surveyor)
    surveyor.json("load", "profile")
    rows = surveyor.rows(
        "load_profiles", "window", "topic", "topic_id", "bytes_in", "bytes_out", "size_bytes", "version"
    )
    size = 3600 * (WEEKS - 1)
    assert sorted(rows) == [
        (window, topic, f"id-{topic}", rate, None, size, 1)
        for window, by in (
            ("Mon 09:00", {"day": 103.0, "night": 1.0}),
            ("Mon 10:00", {"day": 1.0, "night": 1.0}),
            ("Sun 23:00", {"day": 1.0, "night": 100.0}),
        )
        for topic, rate in by.items()
    ]


def test_growth_is_the_difference_of_sizes_over_time(surveyor: Surveyor) -> None:
    _hours(surveyor)
    surveyor.json("load", "profile")
    seconds = (timedelta(weeks=WEEKS - 1, hours=6 * 24 + 23 - 9)).total_seconds()
    (growth,) = {growth for (growth,) in surveyor.rows("load_profiles", "growth")}
    assert growth == pytest.approx(3600 * (WEEKS - 1) / seconds)


def test_the_same_hours_give_no_new_version(surveyor: Surveyor) -> None:
    _hours(surveyor)
    first, second = (surveyor.json("load", "profile") for _ in range(2))
    assert [(made["version"], made["is_new"]) for made in (first, second)] == [(1, True), (1, False)]


def test_other_hours_give_a_new_version(surveyor: Surveyor) -> None:
    _hours(surveyor)
    surveyor.json("load", "profile")
    surveyor.warehouse.delete("partition_load", "true")
    surveyor.warehouse.delete("broker_load", "true")
    _hours(surveyor, peak=200.0)
    assert surveyor.json("load", "profile")["version"] == 2


def test_imported_loads_of_every_hour_are_one_window(surveyor: Surveyor) -> None:
    surveyor.warehouse.ensure_tables()
    row = {"topic": "orders", "partition": 0, "method": "imported", "samples": 0, "bytes_in": 7.0, "size_bytes": 1}
    surveyor.warehouse.append("partition_load", [row])
    said = surveyor("load", "profile", "--name", "given").stdout
    assert "surveyor plan reassign --rebalance --by-load --profile given" in said
    assert surveyor.rows("load_profiles", "profile", "window", "topic", "bytes_in") == [
        ("given", "always", "orders", 7.0)
    ]


def test_loads_of_every_hour_fill_what_hours_lack(surveyor: Surveyor) -> None:
    """`rare` has no hours, and what readers get of `day` is not measured."""
    _hours(surveyor)
    always = {"partition": 0, "method": "imported", "samples": 0, "bytes_out": 5.0, "size_bytes": 7}
    rows = [{**always, "topic": topic, "topic_id": f"id-{topic}", "bytes_in": 9.0} for topic in ("day", "rare")]
    surveyor.warehouse.append("partition_load", rows)
    surveyor.json("load", "profile")
    stored = sorted(surveyor.rows("load_profiles", "window", "topic", "bytes_in", "bytes_out", "size_bytes"))
    size = 3600 * (WEEKS - 1)
    assert [row for row in stored if row[0] == "Mon 09:00"] == [
        ("Mon 09:00", "day", 103.0, 5.0, size),
        ("Mon 09:00", "night", 1.0, None, size),
        ("Mon 09:00", "rare", 9.0, 5.0, 7),
    ]
    assert [row[1:] for row in stored if row[1] == "rare"] == [("rare", 9.0, 5.0, 7)] * 3


def test_imported_hours_have_the_windows_of_all_brokers(surveyor: Surveyor) -> None:
    """The loads of brokers are not stored for hours that were only imported."""
    surveyor.warehouse.ensure_tables()
    row = {"topic": "orders", "partition": 0, "method": "imported", "samples": 0}
    rates = {9: 7.0, 10: 9.0, 11: 1.0, 12: 8.0}
    rows = [{**row, "hour": MONDAY + timedelta(hours=hour), "bytes_in": rate} for hour, rate in rates.items()]
    surveyor.warehouse.append("partition_load", rows)
    assert surveyor.json("load", "profile")["windows"] == ["Mon 09:00", "Mon 10:00", "Mon 12:00"]
    assert surveyor.rows("load_profiles", "window", "bytes_in") == [
        ("Mon 09:00", 7.0),
        ("Mon 10:00", 9.0),
        ("Mon 12:00", 8.0),
    ]


def test_without_loads_the_commands_that_make_them_are_named(surveyor: Surveyor) -> None:
    ran = surveyor("load", "profile")
    assert (ran.code != 0, "surveyor load rollup" in ran.stderr) == (True, True)


LEADER_IN, LEADER_OUT, FOLLOWER_IN = 2e-6, 1e-6, 5e-7
"""Percent of all cores for a byte per second."""


def _measured_cpu(surveyor: Surveyor, cpu: Callable[[float], float]) -> None:
    """Store the CPU of three brokers in nine hours, and what Prometheus knows of another one before the first sample.

    `cpu` changes the CPU of these rates, which are not proportional to each other.
    """
    chance = random.Random(49)  # noqa: S311 - no secret
    brokers: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    for number in range(9):
        for broker in range(4):
            rates = {name: chance.uniform(1e6, 2e7) for name in (*RATES, "bytes_in") if name not in COUNTS}
            received, sent = rates["bytes_in"], rates["bytes_out"] + rates["replication_out"]
            used = cpu(LEADER_IN * received + LEADER_OUT * sent + FOLLOWER_IN * rates["replication_in"])
            hour = MONDAY + timedelta(hours=number)
            if broker < 3:
                brokers.append({"hour": hour, "broker_id": broker, "cpu": used, **rates, **COUNTS})
                continue
            measured = {"sampled_at": hour - timedelta(days=1), "broker_id": broker, "source": "prometheus"}
            metrics += [{**measured, "metric": name, "value": value} for name, value in {**rates, "cpu": used}.items()]
    surveyor.warehouse.ensure_tables()
    surveyor.warehouse.append("broker_load", brokers)
    surveyor.warehouse.append("broker_metrics", metrics)
    load = {"topic": "orders", "partition": 0, "method": "delta_size", "samples": 12}
    rates = {"bytes_in": 1e6, "bytes_out": 3e6, "size_bytes": 1}
    hours = {row["hour"] for row in brokers}
    surveyor.warehouse.append("partition_load", [{"hour": hour, **load, **rates} for hour in sorted(hours)])


def test_cpu_is_fitted_to_hours_of_brokers(surveyor: Surveyor) -> None:
    """A partition without a stored list of replicas counts without followers."""
    _measured_cpu(surveyor, lambda used: used)
    ran = surveyor("load", "profile")
    assert "CPU is modelled, R² 1.00" in ran.stdout
    columns = ("cpu_leader", "cpu_follower", "cpu_leader_in", "cpu_leader_out", "cpu_follower_in", "cpu_r2")
    fitted = (5.0, 0.5, LEADER_IN, LEADER_OUT, FOLLOWER_IN, 1.0)
    [row] = {*surveyor.rows("load_profiles", *columns)}
    assert row == pytest.approx(fitted)


def test_cpu_that_rates_do_not_explain_is_not_modelled(surveyor: Surveyor) -> None:
    noise = random.Random(50)  # noqa: S311 - no secret
    _measured_cpu(surveyor, lambda used: used + noise.uniform(0, 500))
    profile = surveyor.json("load", "profile")
    assert profile["cpu"]["r2"] < 0.6
    assert f"CPU is not modelled: R² {profile['cpu']['r2']:.2f} is below 0.6" in surveyor("load", "profile").stdout
    rows = surveyor.rows("load_profiles", "cpu_leader", "cpu_follower", "cpu_r2")
    assert {*rows} == {(None, None, profile["cpu"]["r2"])}


def test_cpu_that_is_imported_later_gives_a_new_version(surveyor: Surveyor) -> None:
    _measured_cpu(surveyor, lambda used: used)
    stored = surveyor.warehouse.rows("broker_load")
    surveyor.warehouse.delete("broker_load", "true")
    surveyor.warehouse.append("broker_load", [{**row, "cpu": None} for row in stored])
    assert surveyor.json("load", "profile")["cpu"] is None
    cpu = [
        {"sampled_at": row["hour"], "broker_id": row["broker_id"], "metric": "cpu", "value": row["cpu"]}
        for row in stored
    ]
    surveyor.warehouse.append("broker_metrics", [{**row, "source": "prometheus"} for row in cpu])
    profile = surveyor.json("load", "profile")
    assert (profile["version"], profile["cpu"]["r2"]) == (2, pytest.approx(1.0))
