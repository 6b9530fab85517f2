"""Consecutive samples of one key, and the parts of these intervals in each hour, on arrays.

Samples are sorted by key and time, so that neighbours are pairs, and the parts of an hour follow each other. Times are
whole microseconds since 1970, and hours are counted from then. What is counted stays a whole number, so that sums do
not depend on the order of rows. A number that is not known is UNKNOWN in arrays of whole numbers, and NaN in others.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", Ints, Floats, Bools)

MICROSECONDS: Final = 1_000_000

HOUR_MICROSECONDS: Final = 3600 * MICROSECONDS

MAX_INTERVAL_SECONDS: Final = 3_900
"""Seconds between two samples up to which they are an interval; more are a gap, whose load is unknown.

It is an hour and the time by which a sample may be late.
"""

UNKNOWN: Final = -1

MILLIONTHS: Final = 1_000_000
"""Of a byte per second; the sum of a cluster with a terabyte per second is exact."""


def sample_order(key: Ints, at: Ints, *values: Ints) -> Ints:
    """Return the order of samples by key and time, and of those at the same time by values.

    >>> sample_order(np.array([1, 0, 1]), np.array([9, 5, 7])).tolist()
    [1, 2, 0]
    """
    since = at - at.min(initial=at[0] if len(at) else 0)
    order = np.argsort(key * (since.max(initial=0) + 1) + since)
    is_repeated = (np.diff(key[order]) == 0) & (np.diff(at[order]) == 0)
    return np.lexsort((*reversed(values), at, key)) if is_repeated.any() else order


@dataclass(frozen=True, slots=True, eq=False)
class IntervalParts:
    """The parts of intervals by key, hour and time."""

    pair: Ints
    """The row of the earlier sample, which the later one follows."""
    hour: Ints
    covered: Ints
    """Microseconds of the part."""
    length: Ints
    """Microseconds of the interval."""
    until_start: Ints
    """Microseconds of the interval before the part."""
    first: Ints
    """The first part of each key and hour."""

    @property
    def ends_here(self) -> Bools:
        """Whether the later sample is in the hour."""
        ends: Bools = self.until_start + self.covered == self.length
        return ends

    @property
    def last(self) -> Ints:
        """The last part of each key and hour."""
        return np.append(self.first[1:], len(self.pair)) - 1 if len(self.first) else self.first

    def part_of(self, growth: Ints) -> Ints:
        """Return how much of the growth of each part's interval is in the part.

        The parts of an interval add up to its growth: each is the difference of two interpolated values.
        """
        some = np.flatnonzero(self.covered < self.length)
        start, length = self.until_start[some], self.length[some]
        until_start, until_end = (
            (growth[some] * (time / length)).astype(np.int64) for time in (start, start + self.covered[some])
        )
        parts = growth.copy()
        parts[some] = until_end - until_start
        return parts

    def sums(self, values: npt.NDArray[np.generic]) -> Ints:
        """Return the sum of each key and hour."""
        return np.add.reduceat(values, self.first, dtype=np.int64)

    def highest(self, values: Numbers) -> Numbers:
        """Return the highest value of each key and hour; of booleans whether one is true."""
        highest: Numbers = np.maximum.reduceat(values, self.first)
        return highest

    def lowest(self, values: Ints) -> Ints:
        """Return the lowest value of each key and hour that is not UNKNOWN."""
        most = np.iinfo(np.int64).max
        lowest = np.minimum.reduceat(np.where(values == UNKNOWN, most, values), self.first)
        return np.where(lowest == most, UNKNOWN, lowest)


def interval_parts(key: Ints, at: Ints, hours: range) -> IntervalParts:
    """Return the parts in `hours` of the intervals between sorted samples, no longer than MAX_INTERVAL_SECONDS.

    Times may be repeated.

    >>> parts = interval_parts(np.array([4, 4, 4, 5]), np.array([0, 7_000_000, 3602_000_000, 3603_000_000]), range(9))
    >>> [array.tolist() for array in (parts.pair, parts.hour, parts.covered, parts.first)]
    [[0, 1, 1], [0, 0, 1], [7000000, 3593000000, 2000000], [0, 2]]
    >>> parts.part_of(np.array([7, 3595, 3595])).tolist()
    [7, 3593, 2]
    """
    lengths = np.diff(at)
    is_interval = (np.diff(key) == 0) & (lengths > 0) & (lengths <= MAX_INTERVAL_SECONDS * MICROSECONDS)
    begins = np.maximum(at[:-1] // HOUR_MICROSECONDS, hours.start)
    ends = np.minimum((at[1:] - 1) // HOUR_MICROSECONDS, hours.stop - 1)
    counts = np.where(is_interval, np.maximum(ends - begins + 1, 0), 0)
    pair = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(pair)) - (np.cumsum(counts) - counts)[pair]
    hour = begins[pair] + number
    before, length = at[pair], lengths[pair]
    start = np.maximum(hour * HOUR_MICROSECONDS, before)
    end = np.minimum((hour + 1) * HOUR_MICROSECONDS, before + length)
    is_first = np.ones(len(pair), np.bool_)
    is_first[1:] = (np.diff(hour) != 0) | (np.diff(key[pair]) != 0)
    return IntervalParts(pair, hour, end - start, length, start - before, np.flatnonzero(is_first))


def in_millionths(values: Floats) -> Ints:
    """Return fractions as whole numbers, whose sums do not depend on the order of rows; 0 if unknown."""
    return np.rint(np.nan_to_num(values) * MILLIONTHS).astype(np.int64)


def summed(values: Ints, group: Ints, groups: int) -> Ints:
    """Return the sum of the values of each group, which are numbered."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, values)
    return sums


def quotient(dividend: npt.NDArray[np.generic], divisor: npt.NDArray[np.generic]) -> Floats:
    """Return NaN where the divisor is 0."""
    result: Floats = np.divide(dividend, divisor, out=np.full(len(divisor), np.nan), where=divisor != 0)
    return result


def hour_time(hour: str = "hour") -> Column:
    """Return the start of an hour as a timestamp."""
    return F.timestamp_micros(F.col(hour) * HOUR_MICROSECONDS)


def sum_of(column: Column) -> Column:
    """Sum fractions by millionths, so that the result does not depend on the order of rows; null if all are null."""
    return F.sum(F.round(column * MILLIONTHS).cast("bigint")) / MILLIONTHS
