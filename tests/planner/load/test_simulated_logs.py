"""The loads of simulated logs are the true ones, as far as samples can tell."""

import random

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from schemas.rows import Row
from tests.planner.frames import as_rows
from tests.planner.load.samples import hourly_loads
from tests.planner.load.simulated_log import SimulatedLog
from tests.planner.load.test_hourly_loads import hours_after
from tests.planner.rule_inputs import BATCHES

LOGS = 40
"""Logs of an example: the engine takes as long for one of them."""


@BATCHES
@given(seed=st.integers(0, 2**32))
def test_the_loads_of_simulated_logs(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    logs = {f"t{number}": SimulatedLog(chance, f"t{number}") for number in range(LOGS)}
    samples = [row for log in logs.values() for row in log.samples()]
    positions = [row for log in logs.values() for row in log.positions()]
    loads, groups = (as_rows(rows) for rows in hourly_loads(spark, samples, positions))

    read = {(row["topic"], hours_after(row["hour"])): row for row in groups}
    faults = [fault for row in loads for fault in _faults(logs[row["topic"]], row, read)]
    assert not faults
    hours = {(row["topic"], hours_after(row["hour"])) for row in loads}
    assert hours == {(topic, hour) for topic, log in logs.items() for hour in range(5) if log.intervals(hour)}


def _faults(log: SimulatedLog, row: Row, read: dict[tuple[str, int], Row]) -> list[tuple[str, str, int, float, float]]:
    """Return the figures of an hour that are further from the truth than samples explain."""
    hour = hours_after(row["hour"])
    seconds = row["covered_seconds"]
    within = {
        "minutes": (seconds / 60, sum(last - first for first, last in log.minutes(hour)), 0.0),
        "samples": (row["samples"], len(log.intervals(hour)), 0.0),
        "records": (row["records_in"] * seconds, log.total(hour, "log_end"), log.across(hour, "log_end")),
        "bytes": (row["bytes_in"] * seconds, log.total(hour, "written"), log.uncertain_bytes(hour)),
        "read": (
            read[log.topic, hour]["records_out"] * seconds,
            log.total(hour, "committed"),
            log.across(hour, "committed"),
        ),
    }
    return [
        (log.topic, name, hour, found, true)
        for name, (found, true, error) in within.items()
        if abs(found - true) > error + 1e-3 * abs(true) + 0.01
    ]
