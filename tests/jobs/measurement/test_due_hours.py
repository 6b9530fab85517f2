"""Which hours a rollup computes, and which files it reads for them; both are found by the statistics of the tables."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.measurement.due_hours import LOADS, SAMPLES, Portion, due_hours, portions, runs, sampled
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.planner.load.samples import HOUR, at, sample

LAST: Final = 600
"""Minutes until the last sample, one of which is taken each half hour."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Samples of ten hours, in a file each, all of which have been rolled up."""
    laid = Warehouse(str(tmp_path / "warehouse"), "test")
    lay_tables(laid)
    for minute in range(0, LAST + 1, 30):
        laid.append(SAMPLES, [sample(minute, minute, minute)])
    load = {"topic": "t", "partition": 0, "method": "delta_size", "samples": 2, "stored_until": at(LAST + 1)}
    laid.append(LOADS, [{"hour": at(minute), **load} for minute in range(0, LAST + 1, 60)])
    return laid


def _due(warehouse: Warehouse, since: datetime | None = None) -> list[int]:
    """Return the hours that are due, counted from the first."""
    hours = due_hours(warehouse, sampled(warehouse), since)
    return [(hour - HOUR) // timedelta(hours=1) for hour in hours]


def test_hours_within_reach_of_new_and_late_samples_are_due(warehouse: Warehouse) -> None:
    """A sample may be committed an hour after it was stored, so those of the last hour count as new."""
    before = _due(warehouse)
    warehouse.append(SAMPLES, [sample(630, 630, 630)])
    new = _due(warehouse)
    warehouse.append(SAMPLES, [sample(125, 125, 125, stored_at=at(632))])
    late = _due(warehouse)
    assert (before, new, late) == ([7, 8, 9, 10], [7, 8, 9, 10], [1, 2, 3, 7, 8, 9, 10])


def test_hours_since_a_time_are_due(warehouse: Warehouse) -> None:
    assert _due(warehouse, at(200)) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_only_files_with_samples_of_due_hours_are_read(warehouse: Warehouse) -> None:
    """Those of 65 minutes before and after the hours, in which an interval that touches them may begin or end."""
    warehouse.append(SAMPLES, [sample(125, 125, 125, stored_at=at(632))])
    hours = due_hours(warehouse, sampled(warehouse), None)
    read = [len(warehouse.paths(SAMPLES, None, *Portion(tuple(run)).filters)) for run in runs(hours)]
    of_first, of_last = len([125, *range(0, 301, 30)]), len(range(360, LAST + 1, 30))
    assert (read, len(warehouse.paths(SAMPLES))) == ([of_first, of_last], 22)


def test_loads_have_statistics_of_the_columns_that_tell_what_is_new(warehouse: Warehouse) -> None:
    """They are not among the first four columns, of which other tables have statistics."""
    columns = warehouse.opened(LOADS).metadata().configuration["delta.dataSkippingStatsColumns"]
    statistics = warehouse.statistics(LOADS, "hour", "method", "stored_until").to_pylist()
    assert columns == "hour,topic,partition,method,stored_until"
    assert statistics == [
        {
            "num_records": 11,
            "min.hour": HOUR,
            "max.hour": at(LAST),
            "min.method": "delta_size",
            "max.method": "delta_size",
            "min.stored_until": at(LAST + 1),
            "max.stored_until": at(LAST + 1),
        }
    ]


@pytest.mark.parametrize(
    ("rows_of_hour", "expected"),
    [
        (100.0, [(3, 1)]),
        (400.0, [(1, 1), *[(1, 2)] * 2, (1, 1)]),
        (700.0, [*[(1, 2)] * 2, *[(1, 3)] * 3, *[(1, 2)] * 2]),
    ],
)
def test_portions_have_at_most_a_number_of_samples(rows_of_hour: float, expected: list[tuple[int, int]]) -> None:
    """Neighbouring hours count too, as far as their samples are read; an hour with more is divided by topics."""
    hours = [HOUR + timedelta(hours=number) for number in range(3)]
    counts = dict.fromkeys(hours, rows_of_hour)
    made = [(len(portion.hours), portion.buckets) for portion in portions(hours, counts, 1000)]
    assert made == expected
