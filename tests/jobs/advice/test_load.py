"""What is said of the load, and the commands that help: a line for each kind of finding, and none for old loads."""

from dataclasses import replace as replaced
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from jobs.advice.load import load_steps
from jobs.measurement.load_summary import LoadFindings, LoadTimes
from jobs.repositories.loads import LoadWindow
from jobs.runtime.suggestions import Suggestion
from planner.load.disk_forecast import FillingDisk
from planner.load.findings import AboveLimit, HotPartition, Unevenness
from tests.jobs.support.rows.load_rows import HOUR
from tests.jobs.support.rows.warehouse_rows import NOW

LIMIT: Final = AboveLimit(broker_id=3, resource="in", share=0.918, limit_share=0.8)
DISK: Final = FillingDisk(broker_id=4, seconds=98 * 3600.0, share=0.63, growth=2.0**20)
HOT: Final = HotPartition(topic="orders", partition=7, broker_id=3, resource="out", share=0.412)
HIDDEN: Final = Unevenness(resource="out", broker_id=3, ratio=1.414)
EVEN_OUT: Final = "plan reassign --rebalance --by-load"
GROWS: Final = "it is 63% full and grows by 3.5 GiB an hour"
SPLIT: Final = "no move makes it smaller, only more partitions or other keys"


def times(hour: timedelta | None = timedelta(hours=2), sample: timedelta | None = None) -> LoadTimes:
    """Times so long ago; a sample is as old as the hour unless it is given."""
    window = None if hour is None else LoadWindow((NOW - hour - HOUR,))
    return LoadTimes(window, None if sample is None else NOW - sample)


CASES: Final[list[tuple[dict[str, Any], str | None, str | None]]] = [
    ({}, None, None),
    ({"above_limits": [LIMIT]}, "broker 3 uses 92% of its network in, and its limit is 80%", EVEN_OUT),
    (
        {"above_limits": [AboveLimit(broker_id=1, resource="replicas", share=1.1, limit_share=1.0)]},
        "broker 1 uses 110% of its allowed replicas, and its limit is 100%",
        EVEN_OUT,
    ),
    (
        {"above_limits": [AboveLimit(broker_id=1, resource="cpu", share=0.95, limit_share=0.9), LIMIT, LIMIT]},
        "broker 1 uses 95% of its CPU, and its limit is 90%; 2 other limits are exceeded",
        EVEN_OUT,
    ),
    (
        {"full_soon": [DISK]},
        f"broker 4: its disk is full on Wednesday, 2026-11-25 12:00 UTC; {GROWS}",
        EVEN_OUT,
    ),
    (
        {"full_soon": [FillingDisk(broker_id=4, seconds=0.0, share=1.1, growth=0.0), DISK]},
        "broker 4: its disk is full; 1 other disk is full within 7 days",
        EVEN_OUT,
    ),
    (
        {"full_soon": [replace(DISK, log_dirs=("/d1",))]},
        f"broker 4: /d1 is full on Wednesday, 2026-11-25 12:00 UTC; {GROWS}",
        EVEN_OUT,
    ),
    (
        {"full_soon": [replace(DISK, log_dirs=("/d1", "/d2"), seconds=0.0)]},
        "broker 4: the volume of /d1, /d2 is full",
        EVEN_OUT,
    ),
    (
        {"above_limits": [AboveLimit(broker_id=1, resource="disk", share=0.95, limit_share=0.85)]},
        "broker 1 uses 95% of its disk, and its limit is 85%",
        f"{EVEN_OUT} --relieve 85%",
    ),
    (
        {"above_limits": [AboveLimit(broker_id=1, resource="disk", share=0.95, limit_share=0.85), LIMIT]},
        "broker 1 uses 95% of its disk, and its limit is 85%; 1 other limit is exceeded",
        EVEN_OUT,
    ),
    (
        {"hot_partitions": [HOT]},
        f"orders-7 alone is 41% of the bytes out of broker 3: {SPLIT}",
        "show load --by partition",
    ),
    (
        {"hot_partitions": [HOT, HOT, HOT]},
        f"orders-7 alone is 41% of the bytes out of broker 3: {SPLIT}; 2 other brokers have such partitions",
        "show load --by partition",
    ),
    (
        {"hidden_by_counts": HIDDEN},
        "leaders and replicas are even and load is not: broker 3 has 1.41 times its share of bytes out",
        EVEN_OUT,
    ),
    (
        {"times": times(timedelta(days=3), timedelta(days=3))},
        "no load was sampled for 3 days",
        "load sample --every 5m",
    ),
    ({"times": times(None, timedelta(days=3))}, "no load was sampled for 3 days", "load sample --every 5m"),
    (
        {"times": times(timedelta(days=3), timedelta(minutes=5))},
        "the newest load is 3 days old, and newer samples wait",
        "load rollup",
    ),
    ({"times": times(None, timedelta(minutes=5))}, None, None),
    ({"times": times(timedelta(days=3))}, None, None),
    ({"times": times(timedelta(days=91))}, "the newest load is 91 days old, and was imported", None),
    (
        {"times": times(timedelta(days=91), timedelta(days=200))},
        "the newest load is 91 days old, and was imported",
        None,
    ),
    ({"times": times(timedelta(hours=2), timedelta(days=30))}, None, None),
    ({"times": LoadTimes(LoadWindow(), NOW - timedelta(days=30))}, None, None),
    ({"without_load": 1}, "1 partition has no load in the hours shown and counts as none", None),
    (
        {"without_load": 1, "times": times(timedelta(hours=2), timedelta(days=30))},
        "1 partition has no load in the hours shown and counts as none",
        None,
    ),
    (
        {"without_load": 1, "times": times(timedelta(hours=2), timedelta(minutes=5))},
        "1 partition has no load in the hours shown and counts as none",
        "load sample",
    ),
    ({"times": times(timedelta(hours=23), timedelta(hours=23))}, None, None),
    ({"times": LoadTimes(LoadWindow(), None)}, None, None),
]


@pytest.mark.parametrize(("found", "subject", "command"), CASES)
def test_steps_of_the_load(found: dict[str, Any], subject: str | None, command: str | None) -> None:
    findings = LoadFindings(**{"times": times(), **found})
    assert list(load_steps(findings, NOW)) == ([] if subject is None else [Suggestion(subject, command)])


def test_a_share_is_of_the_known_load_where_some_is_unknown() -> None:
    unknown, hot = load_steps(LoadFindings(times=times(), without_load=111, hot_partitions=[HOT]), NOW)
    assert unknown.what == "111 partitions have no load in the hours shown and count as none"
    assert hot.what == f"orders-7 alone is 41% of the known bytes out of broker 3: {SPLIT}"


def test_a_disk_that_is_full_soon_is_relieved_if_the_broker_is_above_its_limit() -> None:
    above = [AboveLimit(broker_id=broker, resource="disk", share=0.9, limit_share=0.8) for broker in (4, 5)]
    commands = [
        next(load_steps(LoadFindings(times=times(), full_soon=[DISK], above_limits=limits), NOW)).command
        for limits in (above[:1], above[1:], above)
    ]
    assert commands == [f"{EVEN_OUT} --relieve 80%", EVEN_OUT, f"{EVEN_OUT} --relieve 80%"]


def test_the_most_urgent_first_and_no_plan_while_something_moves() -> None:
    findings = LoadFindings(
        times=times(), above_limits=[LIMIT], full_soon=[DISK], hot_partitions=[HOT], hidden_by_counts=HIDDEN
    )
    steps = list(load_steps(findings, NOW, is_settled=False))
    assert [step.command for step in steps] == [None, None, None, "show load --by partition"]
    assert [step.what.split()[0] for step in steps] == ["broker", "broker", "leaders", "orders-7"]


def test_sizes_come_before_a_plan_that_needs_them() -> None:
    findings = LoadFindings(times=times(), above_limits=[LIMIT], full_soon=[DISK], hidden_by_counts=HIDDEN)
    steps = list(load_steps(replaced(findings, has_sizes=False), NOW))
    assert [step.command for step in steps] == ["sizes", None, None, None]
    assert not list(load_steps(LoadFindings(times=times(), has_sizes=False), NOW))
    moving = list(load_steps(replaced(findings, has_sizes=False), NOW, is_settled=False))
    assert [step.command for step in moving] == [None, None, None]


@pytest.mark.parametrize(
    ("hour", "is_recent"), [(timedelta(hours=24), True), (timedelta(hours=24, seconds=1), False), (None, False)]
)
def test_loads_of_a_day_are_recent(hour: timedelta | None, *, is_recent: bool) -> None:
    assert times(hour).is_recent(NOW) == is_recent


def test_the_age_is_that_of_the_end_of_the_hour() -> None:
    """And not negative while the hour runs."""
    running = LoadTimes(LoadWindow((NOW - HOUR / 2,)), None)
    assert (times(timedelta(hours=2)).age(NOW), running.age(NOW), times(None).age(NOW)) == (7200, 0, None)
    assert LoadTimes(LoadWindow(), None).is_recent(datetime.max.replace(tzinfo=NOW.tzinfo))
