"""When disks are full, and which log dirs are on one volume."""

from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.load.disk_forecast import MAX_SECONDS, Disk, filling_disks, growth_of, volumes_of
from schemas.rows import LogDir

NOW: Final = datetime(2026, 11, 30, tzinfo=UTC)

DISKS: Final[list[tuple[str, float, float | None, float, float | None]]] = [
    ("grows", 600, 4, 0, 100),
    ("was measured 30 seconds before", 600, 4, 30, 70),
    ("was measured 30 seconds after", 600, 4, -30, 130),
    ("was measured so long ago that it is full", 600, 4, 101, 0),
    ("is full", 1000, -1, 0, 0),
    ("is full, by a later measurement", 1000, 4, -30, 0),
    ("shrinks", 999, -1, 0, None),
    ("does not grow", 999, 0, 0, None),
    ("grows at an unknown rate", 999, None, 0, None),
    ("grows in centuries", 0, 1000 / MAX_SECONDS, 0, None),
]


@pytest.mark.parametrize(
    ("used", "growth", "age", "seconds"), [case[1:] for case in DISKS], ids=[one[0] for one in DISKS]
)
def test_seconds_until_a_disk_of_1000_bytes_is_full(
    used: float, growth: float | None, age: float, seconds: float | None
) -> None:
    found = filling_disks([Disk(broker_id=1, used=used, capacity=1000, growth=growth, age=age)])
    assert [(disk.seconds, disk.share) for disk in found] == ([] if seconds is None else [(seconds, used / 1000)])


def test_the_disk_that_is_full_first_comes_first() -> None:
    disks = [
        Disk(broker_id=broker, log_dirs=paths, used=used, capacity=1000, growth=4)
        for broker, paths, used in ((2, ("/a",), 600), (1, ("/b",), 600), (1, ("/a", "/c"), 600), (9, (), 640))
    ]
    found = [(disk.broker_id, disk.log_dirs, disk.seconds) for disk in filling_disks(disks)]
    assert found == [(9, (), 90), (1, ("/a", "/c"), 100), (1, ("/b",), 100), (2, ("/a",), 100)]


def test_log_dirs_of_a_broker_with_the_same_size_and_free_bytes_are_on_one_volume() -> None:
    reported = [
        *((1, "/c", 100, 40), (1, "/a", 100, 40), (1, "/b", 100, 41), (1, "/d", 90, 40), (1, "/failed", None, None)),
        *((2, "/a", 100, 40), (3, "/a", 100, None)),
    ]
    rows = [
        LogDir(broker_id=broker, log_dir=path, total_bytes=total, usable_bytes=usable, taken_at=NOW)
        for broker, path, total, usable in reported
    ]
    assert volumes_of(rows) == [
        *((1, ("/a", "/c"), 100, 40), (1, ("/b",), 100, 41), (1, ("/d",), 90, 40)),
        *((2, ("/a",), 100, 40), (3, ("/a",), 100, None)),
    ]


@given(
    st.floats(-1e6, 1e6), st.integers(0, 9), st.floats(-1e12, 1e12), st.lists(st.integers(1, 9), min_size=5, max_size=9)
)
def test_a_step_does_not_change_the_growth(slope: float, at: int, step: float, gaps: list[int]) -> None:
    """Of one deleted topic, whenever it was."""
    times = [float(sum(gaps[:number]) * 6 * 3600) for number in range(len(gaps))]
    sizes = {time: 1e12 + slope * time + step * (number >= at) for number, time in enumerate(times)}
    assert growth_of(sizes) == pytest.approx(slope, abs=1)
