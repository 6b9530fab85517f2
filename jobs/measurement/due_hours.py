"""The hours whose load is to be computed, and the portions in which it is.

Only the statistics of the tables' files are read, so a rollup finds in a moment that nothing is new.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import hour_of
from jobs.repositories.loads import HOUR
from planner.load.interval_parts import MAX_INTERVAL_SECONDS
from schemas.enums import IMPORTED

MAX_INTERVAL: Final = timedelta(seconds=MAX_INTERVAL_SECONDS)

STORED_LATE: Final = timedelta(hours=1)
"""How long after `stored_at` a sampler may commit a sample; a rollup in between does not see it."""

_STATISTICS_RESOLUTION: Final = timedelta(milliseconds=1)
"""Delta's statistics cut times down to milliseconds."""

SAMPLES: Final = "partition_offsets"
LOADS: Final = "partition_load"


@dataclass(frozen=True, slots=True)
class Portion:
    """Hours that are computed at once, of one in `buckets` of the topics."""

    hours: tuple[datetime, ...]
    """Consecutive hours."""
    bucket: int = 0
    buckets: int = 1

    @property
    def start(self) -> datetime:
        return self.hours[0]

    @property
    def end(self) -> datetime:
        return self.hours[-1] + HOUR

    @property
    def filters(self) -> list[Filter]:
        """The samples that these hours are computed from: those of intervals that touch them."""
        return [("sampled_at", ">=", self.start - MAX_INTERVAL), ("sampled_at", "<=", self.end + MAX_INTERVAL)]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The times of the stored samples, by file, and how many each file has."""

    counts: np.ndarray[tuple[int], np.dtype[np.int64]]
    first: list[datetime]
    last: list[datetime]
    stored_until: list[datetime]

    def __bool__(self) -> bool:
        return bool(self.first)

    @property
    def newest(self) -> datetime:
        """When the newest sample was stored."""
        return max(self.stored_until)

    def touched(self, stored_after: datetime | None) -> set[datetime]:
        """Return the hours with intervals that begin or end at samples stored after a time, of all by default."""
        files = zip(self.first, self.last, self.stored_until, strict=True)
        spans = [(first, last) for first, last, stored in files if stored_after is None or stored > stored_after]
        end = max(self.last)
        return {
            hour for first, last in spans for hour in hours_between(first - MAX_INTERVAL, min(last + MAX_INTERVAL, end))
        }

    def by_hour(self) -> dict[datetime, float]:
        """Estimate the samples of each hour."""
        counts: dict[datetime, float] = {}
        for count, first, last in zip(self.counts.tolist(), self.first, self.last, strict=True):
            hours = [*hours_between(first, last)]
            for hour in hours:
                counts[hour] = counts.get(hour, 0.0) + count / len(hours)
        return counts


def hours_between(first: datetime, last: datetime) -> Iterator[datetime]:
    """Yield the hours from that of `first` to that of `last`."""
    hour = hour_of(first)
    while hour <= last:
        yield hour
        hour += HOUR


def sampled(warehouse: Warehouse, table: str = SAMPLES) -> Sampled:
    """Return when samples were taken, by the statistics of the files, or by the rows if a file has none."""
    files = warehouse.statistics(table, "sampled_at", "stored_at")
    columns = ("min.sampled_at", "max.sampled_at", "max.stored_at")
    if any(files[name].null_count for name in ("num_records", *columns)):
        files = _of_rows(warehouse.read(table, columns=["sampled_at", "stored_at"]))
    first, last, stored = ([time.astimezone(UTC) for time in files[name].to_pylist()] for name in columns)
    return Sampled(
        files["num_records"].to_numpy(),
        first,
        [time + _STATISTICS_RESOLUTION for time in last],
        [time + _STATISTICS_RESOLUTION for time in stored],
    )


def _of_rows(rows: pa.Table) -> pa.Table:
    by_storing = rows.group_by("stored_at").aggregate([("sampled_at", "min"), ("sampled_at", "max"), ([], "count_all")])
    names = {"sampled_at_min": "min.sampled_at", "sampled_at_max": "max.sampled_at", "count_all": "num_records"}
    renamed = by_storing.rename_columns([names.get(name, name) for name in by_storing.column_names])
    return renamed.append_column("max.stored_at", renamed["stored_at"])


def due_hours(warehouse: Warehouse, samples: Sampled, since: datetime | None) -> list[datetime]:
    """Return the hours that new or late samples touch, and those after `since`, in order.

    Hours whose samples a vacuum has deleted in part are left out: their rows stay.
    """
    watermark = warehouse.latest(LOADS, "stored_until")
    stored_after = None if watermark is None else watermark.astimezone(UTC) - STORED_LATE
    due = samples.touched(stored_after)
    if since is not None:
        due |= {hour for hour in samples.touched(None) if hour + HOUR > since}
    oldest = min(samples.first)
    is_shortened = _has_loads_before(warehouse, hour_of(oldest))
    return sorted(hour for hour in due if not is_shortened or hour > oldest)


def _has_loads_before(warehouse: Warehouse, hour: datetime) -> bool:
    """Return whether a file has measured loads, and begins before this hour; files of imported loads do not count."""
    files = warehouse.statistics(LOADS, "hour", "method")
    is_earlier = pc.less(files["min.hour"], pa.scalar(hour, files["min.hour"].type))
    methods = (files[name] for name in ("min.method", "max.method"))
    is_imported = pc.and_(*(pc.equal(method.cast(pa.string()), IMPORTED) for method in methods))
    return bool(pc.any(pc.fill_null(pc.and_(is_earlier, pc.invert(is_imported)), False)).as_py())  # noqa: FBT003 - Arrow's


def portions(hours: Sequence[datetime], samples: dict[datetime, float], max_rows: int) -> Iterator[Portion]:
    """Split hours so that each portion reads about `max_rows` samples, and only hours with more of them by topic."""
    for run in runs(hours):
        start = 0
        while start < len(run):
            end = start + 1
            while end < len(run) and _rows(run[start : end + 1], samples) <= max_rows:
                end += 1
            part = tuple(run[start:end])
            buckets = max(1, -(-int(_rows(part, samples)) // max_rows))
            yield from (Portion(part, bucket, buckets) for bucket in range(buckets))
            start = end


def runs(hours: Sequence[datetime]) -> Iterator[list[datetime]]:
    """Split hours where one is missing."""
    numbered = enumerate(hours)
    for _, run in groupby(numbered, key=lambda item: item[1] - item[0] * HOUR):
        yield [hour for _, hour in run]


def _rows(hours: Sequence[datetime], samples: dict[datetime, float]) -> float:
    """Estimate the samples that a portion of consecutive hours reads, some of which are of neighbouring hours."""
    inside = sum(samples.get(hour, 0.0) for hour in hours)
    share = MAX_INTERVAL / HOUR
    around = samples.get(hours[0] - HOUR, 0.0) + samples.get(hours[-1] + HOUR, 0.0)
    return inside + share * around


def hours_condition(hours: Sequence[datetime]) -> str:
    """Return an SQL condition for hours, in as few ranges as possible."""
    ranges = (f"(hour >= '{run[0].isoformat()}' AND hour < '{(run[-1] + HOUR).isoformat()}')" for run in runs(hours))
    return " OR ".join(ranges)
