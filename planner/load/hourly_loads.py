"""The rows of PARTITION_LOAD and GROUP_LOAD: what partitions carry and groups read in an hour.

In: PARTITION_HOURS with bytes, and what groups read in these hours.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.shape import with_schema
from planner.load.group_hours import reads_of_partitions
from planner.load.intervals import hour_time, sum_of
from planner.load.partition_hours import TOPIC
from schemas.tables import GROUP_LOAD, PARTITION_LOAD

PARTIAL_SECONDS: Final = 1800
"""Covered seconds below which an hour is flagged as partial."""


def partition_load(hours: DataFrame, reads: DataFrame, stored_until: int) -> DataFrame:
    """Return PARTITION_LOAD; a partition without a committing group is read by none, at 0 bytes per second.

    `stored_until` is in microseconds since 1970.
    """
    of_readers = reads.transform(reads_of_partitions)
    joined = hours.join(of_readers, [TOPIC, "partition", "hour"], "left")
    seconds = F.col("covered_seconds")
    is_read = F.col("reset").isNotNull()
    return joined.select(
        hour_time().alias("hour"),
        "cluster",
        "topic",
        "topic_id",
        "partition",
        F.col("newest_leader").alias("leader"),
        (F.col("records") / seconds).alias("records_in"),
        (F.col("bytes") / seconds).alias("bytes_in"),
        F.when(is_read, F.col("bytes_out")).otherwise(F.lit(0.0)).alias("bytes_out"),
        "bytes_out_by_rack",
        "max_5min",
        F.col("newest_bytes").alias("size_bytes"),
        "covered_seconds",
        F.col("samples").cast("int").alias("samples"),
        "method",
        _flags().alias("flags"),
        F.timestamp_micros(F.lit(stored_until)).alias("stored_until"),
    ).transform(with_schema, PARTITION_LOAD)


def group_load(reads: DataFrame, topics: DataFrame) -> DataFrame:
    """Return GROUP_LOAD: what a group reads of each topic; its bytes are unknown if those of a partition are."""
    is_known = F.max(F.col("bytes").isNull().cast("int")) == 0
    sums = reads.groupBy("group_id", TOPIC, "hour").agg(
        sum_of(F.col("records")).alias("records_out"),
        sum_of(F.col("bytes")).alias("known_bytes"),
        is_known.alias("is_known"),
        F.sum("lag").alias("lag"),
    )
    joined = sums.join(F.broadcast(topics), TOPIC)
    bytes_out = F.when(F.col("is_known"), F.col("known_bytes"))
    return joined.withColumns({"bytes_out": bytes_out, "hour": hour_time()}).transform(with_schema, GROUP_LOAD)


def _flags() -> Column:
    conditions = {
        "compacted": F.col("is_compacted"),
        "moved": F.col("moved") == 1,
        "partial": F.col("covered_seconds") < PARTIAL_SECONDS,
        "recompressed": F.col("is_recompressed"),
        "reset": F.col("reset") == 1,
        "truncated": F.col("truncated") == 1,
        "unsized": F.col("is_unsized"),
    }
    flags = F.array_compact(F.array(*(F.when(holds, name) for name, holds in conditions.items())))
    return F.when(F.size(flags) > 0, flags)
