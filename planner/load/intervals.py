"""Consecutive samples of one partition, and the parts of these intervals in each hour.

The samples of a key are collected into one sorted list, of which neighbours are pairs. A window function does the same
and takes four times as long on the embedded engine, as it sorts all rows instead of short lists. Times are whole
microseconds since 1970. What is counted stays a whole number, so that sums do not depend on the order of rows.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MICROSECONDS: Final = 1_000_000

HOUR_MICROSECONDS: Final = 3600 * MICROSECONDS

MAX_INTERVAL_SECONDS: Final = 3_900
"""Seconds between two samples up to which they are an interval; more are a gap, whose load is unknown.

It is an hour and the time by which a sample may be late.
"""

AT: Final = "at"
"""The time of a sample; in an interval that of the later one."""

BEFORE: Final = "_before"
"""Ends the name of a column that has the value of the earlier sample."""


def micros(column: str) -> Column:
    """Return a time as microseconds since 1970."""
    return F.unix_micros(F.col(column))


def intervals(samples: DataFrame, key: Sequence[str], values: Sequence[str], tasks: int) -> DataFrame:
    """Return the pairs of consecutive samples of each key, no longer than MAX_INTERVAL_SECONDS.

    The work is divided into `tasks`. On the embedded engine sixteen a core take half the time of one, as the lists of
    each then fit into the processor's caches.

    In: samples with `key`, AT and `values`; AT may be repeated, and rows may be in any order. Out: `key`, AT and
    `values` of the later sample, and the same with `_before` of the earlier one.

    >>> rows = [("a", 7_000_000, 5), ("a", 2_000_000, 3), ("a", 2_000_000, 3)]
    >>> samples = spark.createDataFrame(rows, "k string, at long, v int")
    >>> intervals(samples, ["k"], ["v"], tasks=1).show()
    +---+-------+---+---------+--------+
    |  k|     at|  v|at_before|v_before|
    +---+-------+---+---------+--------+
    |  a|7000000|  5|  2000000|       3|
    +---+-------+---+---------+--------+
    <BLANKLINE>
    """
    fields = [AT, *values]
    distributed = samples.repartition(tasks, *key)
    lists = distributed.groupBy(*key).agg(F.sort_array(F.collect_list(F.struct(*fields))).alias("list"))
    last = F.size("list") - 1
    ends = lists.select(*key, F.slice("list", 2, last).alias("later"), F.slice("list", 1, last).alias("earlier"))
    pairs = ends.select(*key, F.explode(F.arrays_zip("later", "earlier")).alias("pair"))
    columns = [F.col(f"pair.later.{name}").alias(name) for name in fields]
    columns += [F.col(f"pair.earlier.{name}").alias(f"{name}{BEFORE}") for name in fields]
    length = F.col(AT) - F.col(f"{AT}{BEFORE}")
    return pairs.select(*key, *columns).where((length > 0) & (length <= MAX_INTERVAL_SECONDS * MICROSECONDS))


def with_hours(intervals_: DataFrame) -> DataFrame:
    """Return a row for each hour that an interval touches.

    `hour` is counted from 1970; `start` and `end` are the times within it at which the part begins and ends.

    >>> interval = spark.createDataFrame([(3599_000_000, 3601_500_000)], "at_before long, at long")
    >>> interval.transform(with_hours).select("hour", "start", "end").show()
    +----+----------+----------+
    |hour|     start|       end|
    +----+----------+----------+
    |   0|3599000000|3600000000|
    |   1|3600000000|3601500000|
    +----+----------+----------+
    <BLANKLINE>
    """
    first = F.expr(f"{AT}{BEFORE} div {HOUR_MICROSECONDS}")
    last = F.expr(f"({AT} - 1) div {HOUR_MICROSECONDS}")
    hour = F.col("hour")
    return intervals_.withColumns({"hour": F.explode(F.sequence(first, last))}).withColumns(
        {
            "start": F.greatest(F.col(f"{AT}{BEFORE}"), hour * HOUR_MICROSECONDS),
            "end": F.least(F.col(AT), (hour + 1) * HOUR_MICROSECONDS),
        }
    )


def part_of(growth: Column) -> Column:
    """Return how much of an interval's growth, a whole number, is in the part between `start` and `end`.

    The parts of an interval add up to its growth: each is the difference of two interpolated values.
    """
    before, length = F.col(f"{AT}{BEFORE}"), F.col(AT) - F.col(f"{AT}{BEFORE}")

    def until(time: str) -> Column:
        return (growth * ((F.col(time) - before) / length)).cast("bigint")

    return until("end") - until("start")


def hour_time(hour: str = "hour") -> Column:
    """Return the start of an hour as a timestamp."""
    return F.timestamp_micros(F.col(hour) * HOUR_MICROSECONDS)


def sum_of(column: Column) -> Column:
    """Sum fractions by millionths, so that the result does not depend on the order of rows; null if all are null."""
    return F.sum(F.round(column * _MILLIONTHS).cast("bigint")) / _MILLIONTHS


_MILLIONTHS: Final = 1_000_000
"""Of a byte per second; the sum of a cluster with a terabyte per second is exact."""
