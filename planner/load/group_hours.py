"""What groups read by hour, from samples of their committed offsets.

A group reads at least what it commits, so readers that do not commit are missing. Offsets are records, which count with
the partition's bytes per record in that hour; a group that reads old records of another size is measured less exactly.
Share groups have a start offset for each partition, which moves like a committed one. In: GROUP_OFFSETS and
PARTITION_HOURS.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from planner.load.intervals import AT, BEFORE, intervals, micros, part_of, sum_of, with_hours
from planner.load.partition_hours import TOPIC, topic_key

_GROUP: Final = ("group_id", TOPIC, "partition")
_PARTITION_HOUR: Final = (TOPIC, "partition", "hour")


def group_hours(samples: DataFrame, hours: DataFrame, tasks: int = 1) -> DataFrame:
    """Return what each group reads of each partition in each hour, as `records` and `bytes` per second.

    `hours` are those of `partition_hours.with_bytes`; without one of the partition the bytes are unknown. Offsets that
    go back were set by hand: such an interval counts as nothing, and is marked as `reset`. Records that were deleted
    before the group read them are not counted. `tasks` is as in `intervals`.
    """
    parts = (
        samples.select(
            "group_id",
            topic_key().alias(TOPIC),
            "partition",
            micros("sampled_at").alias(AT),
            "committed",
            "member_rack",
        )
        .transform(intervals, _GROUP, ("committed", "member_rack"), tasks)
        .transform(with_hours)
    )
    of_partition = hours.select(
        *_PARTITION_HOUR, "first_log_start", "newest_log_end", "bytes_per_record", "covered_seconds"
    )
    return parts.join(of_partition, list(_PARTITION_HOUR), "left").transform(_by_hour)


def _by_hour(parts: DataFrame) -> DataFrame:
    """Sum the parts by group, partition and hour; the rack is that of the newest member."""
    before = F.col(f"committed{BEFORE}")
    went_back = F.col("committed") < before
    available = F.greatest(before, F.coalesce("first_log_start", before))
    read = F.when(went_back, F.lit(0)).otherwise(F.greatest(F.col("committed") - available, F.lit(0)))
    of_partition = ("newest_log_end", "bytes_per_record", "covered_seconds")
    is_inside = F.col("end") == F.col(AT)
    committed = F.when(is_inside, F.col("committed")).otherwise(before)
    sums = parts.groupBy(*_GROUP, "hour").agg(
        F.sum(part_of(read)).alias("read"),
        (F.sum(F.col("end") - F.col("start")) / 1_000_000).alias("own_seconds"),
        F.max(went_back.cast("int")).alias("reset"),
        F.max_by(committed, F.when(is_inside, F.col(AT)).otherwise(F.col(f"{AT}{BEFORE}"))).alias("committed"),
        F.max_by("member_rack", F.when(F.col("member_rack").isNotNull(), F.col(AT))).alias("rack"),
        *(F.max(name).alias(name) for name in of_partition),
    )
    behind = F.col("newest_log_end") - F.col("committed")
    seconds = F.greatest("own_seconds", F.coalesce("covered_seconds", "own_seconds"))
    return sums.withColumns({"records": F.col("read") / seconds}).withColumns(
        {
            "bytes": F.col("records") * F.col("bytes_per_record"),
            "lag": F.when(F.col("newest_log_end").isNotNull(), F.greatest(behind, F.lit(0))),
        }
    )


def reads_of_partitions(reads: DataFrame) -> DataFrame:
    """Sum what all groups read of a partition: `bytes_out`, `bytes_out_by_rack`, and whether an offset was set."""
    by_rack = reads.groupBy(*_PARTITION_HOUR, "rack").agg(
        sum_of(F.col("bytes")).alias("bytes"), F.max("reset").alias("reset")
    )
    plain_rack = F.concat("rack", F.lit("")).alias("rack")  # Sail loses the metadata of a column in a struct, and fails
    is_of_rack = F.col("rack").isNotNull() & F.col("bytes").isNotNull()
    sums = by_rack.groupBy(*_PARTITION_HOUR).agg(
        sum_of(F.col("bytes")).alias("bytes_out"),
        F.max("reset").alias("reset"),
        F.sort_array(F.collect_list(F.when(is_of_rack, F.struct(plain_rack, "bytes")))).alias("racks"),
    )
    racks = F.when(F.size("racks") > 0, F.map_from_entries("racks"))
    return sums.select(*_PARTITION_HOUR, "bytes_out", "reset", racks.alias("bytes_out_by_rack"))
