"""`surveyor load profile`: the windows in which brokers peak, and the load of partitions in them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.jobs.support.commands.commands import Surveyor

pytestmark = pytest.mark.usefixtures("spark")

MONDAY: Final = datetime(2026, 11, 2, tzinfo=UTC)
RATES: Final = {"replication_in": 0.0, "bytes_out": 0.0, "replication_out": 0.0, "leaders": 1, "replicas": 1}
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
    row = {"topic": "orders", "partition": 0, "method": "imported", "samples": 0, "bytes_in": 7.0}
    surveyor.warehouse.append("partition_load", [row])
    surveyor.json("load", "profile", "--name", "given")
    assert surveyor.rows("load_profiles", "profile", "window", "topic", "bytes_in") == [
        ("given", "always", "orders", 7.0)
    ]


def test_without_loads_the_commands_that_make_them_are_named(surveyor: Surveyor) -> None:
    ran = surveyor("load", "profile")
    assert (ran.code != 0, "surveyor load rollup" in ran.stderr) == (True, True)
