"""What groups read by hour, from samples of their committed offsets, on arrays.

A group reads at least what it commits, so readers that do not commit are missing. Offsets are records, which count with
the partition's bytes per record in that hour; a group that reads old records of another size is measured less exactly.
Share groups have a start offset for each partition, which moves like a committed one.
"""

from dataclasses import dataclass

import numpy as np

from planner.load.interval_parts import MICROSECONDS, UNKNOWN, Bools, Floats, Ints, Numbers, interval_parts
from planner.load.partition_hours import PartitionBytes, PartitionSums


@dataclass(frozen=True, slots=True, eq=False)
class GroupSamples:
    """Samples of the positions of groups, sorted by `reader`, a number of group and partition, and by `at`."""

    reader: Ints
    at: Ints
    committed: Ints
    rack: Ints
    """A number of the member's rack."""
    key: Ints
    """The number of the partition, as in LogSamples."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupReads:
    """What each group reads of each partition in each hour, per second; NaN if it is not known."""

    reader: Ints
    hour: Ints
    row: Ints
    """The row of the partition and hour in PartitionSums, UNKNOWN if it has none."""
    records: Floats
    bytes: Floats
    lag: Ints
    rack: Ints
    """The rack of the newest member that has one."""
    is_reset: Bools


def group_reads(samples: GroupSamples, sums: PartitionSums, written: PartitionBytes, hours: range) -> GroupReads:
    """Sum the parts of intervals by group, partition and hour.

    Without an hour of the partition the bytes are unknown. Offsets that go back were set by hand: such an interval
    counts as nothing, and is marked as a reset. Records that were deleted before the group read them are not counted.
    """
    parts = interval_parts(samples.reader, samples.at, hours)
    first, last = parts.pair[parts.first], parts.last
    hour = parts.hour[parts.first]
    row = _rows(sums, samples.key[first], hour, hours)
    log_start, log_end = (_of_rows(values, row, UNKNOWN) for values in (sums.first_log_start, sums.newest_log_end))
    before, committed = samples.committed[parts.pair], samples.committed[parts.pair + 1]
    available = np.maximum(before, np.repeat(log_start, np.diff(parts.first, append=len(parts.pair))))
    read = np.where(committed < before, 0, np.maximum(committed - available, 0))
    own_seconds = parts.sums(parts.covered) / MICROSECONDS
    records = parts.sums(parts.part_of(read)) / np.fmax(own_seconds, _of_rows(sums.covered_seconds, row, np.nan))
    newest = parts.highest(np.where(samples.rack[parts.pair + 1] != UNKNOWN, parts.pair + 1, UNKNOWN))
    at_the_end = np.where(parts.ends_here[last], committed[last], before[last])
    return GroupReads(
        reader=samples.reader[first],
        hour=hour,
        row=row,
        records=records,
        bytes=records * _of_rows(written.bytes_per_record, row, np.nan),
        lag=np.where(log_end == UNKNOWN, UNKNOWN, np.maximum(log_end - at_the_end, 0)),
        rack=_of_rows(samples.rack, newest, UNKNOWN),
        is_reset=parts.highest(committed < before),
    )


def _rows(sums: PartitionSums, key: Ints, hour: Ints, hours: range) -> Ints:
    """Return the row of each partition and hour, UNKNOWN if there is none."""
    keys = int(max(sums.key.max(initial=0), key.max(initial=0))) + 1
    rows = np.full(keys * len(hours), UNKNOWN)
    rows[sums.key * len(hours) + sums.hour - hours.start] = np.arange(len(sums.key))
    found: Ints = rows[key * len(hours) + hour - hours.start]
    return found


def _of_rows(values: Numbers, row: Ints, missing: float) -> Numbers:
    """Return the values of rows, and `missing` where a row is UNKNOWN."""
    extended = np.append(values, np.array(missing, values.dtype))
    return extended[row]  # UNKNOWN is the place of the last one
