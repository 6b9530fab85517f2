"""The load of partitions by hour, from samples of their offsets and sizes.

An interval's growth of the log in bytes is exact if the same leader reported both samples and nothing was deleted in
between. Otherwise its records count with the bytes per record of the hour's other intervals, else with the mean size of
the records in the log, else with the mean of the topic. Each transaction writes a marker, which is one record here. A
log that is compacted shrinks without a change of its start, so only intervals in which it grew count as exact; if the
cleaner runs more often than samples are taken, the bytes are too few.

Corresponds to Cruise Control's `MetricSampler`, which divides the bytes of a topic on a broker by its leaders there.
In: PARTITION_OFFSETS, TOPICS. Out: PARTITION_HOURS.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.shape import false, true
from planner.load.intervals import AT, BEFORE, intervals, micros, part_of, sum_of, with_hours
from schemas.topic_configs import AS_PRODUCED, COMPRESSION, POLICY

OWN_SHARE: Final = 0.1
"""Share of an hour's records that exact intervals must have, so that their bytes per record count for the others."""

MIN_PEAK_SECONDS: Final = 30
"""Seconds of an interval from which on its rate can be the highest of the hour; clocks of samplers differ."""

TOPIC: Final = "topic_key"
"""A hash of a topic's name and id.

It takes the place of both in all steps that move rows; as text they would be copied with each sample. A pair of a
hundred thousand topics shares one with a probability of 3e-10.
"""

_KEY: Final = (TOPIC, "partition")
_HOUR: Final = (*_KEY, "hour")
_VALUES: Final = ("log_end", "bytes", "leader", "epoch", "log_start", "disk_start")

DELTA_SIZE, MEAN_SIZE, TOPIC_SHARE = "delta_size", "mean_size", "topic_share"


def topic_key() -> Column:
    return F.xxhash64("topic", "topic_id")


def sampled_topics(samples: DataFrame, topics: DataFrame) -> DataFrame:
    """Return the topics that were sampled: TOPIC, topic, topic_id, `is_compacted` and `is_recompressed`.

    Brokers compress what they store of a topic again if its compression.type is not that of producers. A topic that was
    deleted or created again counts as the topic that has the name now.
    """
    config = F.col("config")
    policies = topics.select(
        "topic",
        config[POLICY].contains("compact").alias("is_compacted"),
        (config[COMPRESSION] != AS_PRODUCED).alias("is_recompressed"),
    )
    sampled = samples.select("cluster", "topic", "topic_id").distinct().withColumns({TOPIC: topic_key()})
    joined = sampled.join(policies, "topic", "left")
    marks = (F.coalesce(mark, false()).alias(mark) for mark in ("is_compacted", "is_recompressed"))
    return joined.select(TOPIC, "cluster", "topic", "topic_id", *marks)


def partition_hours(samples: DataFrame, topics: DataFrame, tasks: int = 1) -> DataFrame:
    """Return the sampled hours of partitions, with bytes per record wherever their topic has any.

    `topics` are those of `sampled_topics`. `bytes` and `records` were written in `covered_seconds`, and `hour` is
    counted from 1970. `tasks` is as in `intervals`.
    """
    return (
        samples.where(F.col("log_end").isNotNull())
        .transform(_numbered)
        .transform(intervals, _KEY, _VALUES, tasks)
        .transform(_with_growth)
        .transform(with_hours)
        .transform(_by_hour)
        .join(F.broadcast(topics), TOPIC)
    )


def _numbered(samples: DataFrame) -> DataFrame:
    """Return samples as numbers; `disk_start` is the earliest offset on the leader's disk.

    Without a topic id, the epochs of two topics of a name cannot be told from each other.
    """
    has_id = F.col("topic_id").isNotNull()
    return samples.select(
        topic_key().alias(TOPIC),
        "partition",
        micros("sampled_at").alias(AT),
        "log_end",
        "bytes",
        "leader",
        F.when(has_id, F.col("leader_epoch")).alias("epoch"),
        "log_start",
        F.coalesce("local_start", "log_start").alias("disk_start"),
    )


def _before(column: str) -> Column:
    return F.col(f"{column}{BEFORE}")


def _with_growth(pairs: DataFrame) -> DataFrame:
    """Add what was written between two samples, and how far it is known.

    Offsets cannot go back within a leader epoch. If they do, clocks of samplers differ, and the negative records cancel
    those of a neighbour. After an unclean election, or in another topic, they go back with another epoch; what was
    written in such an interval is unknown.
    """
    records, growth = F.col("log_end") - _before("log_end"), F.col("bytes") - _before("bytes")
    went_back = records < 0
    is_other_log = went_back & ~F.coalesce(F.col("epoch") == _before("epoch"), false())
    is_moved = F.col("leader") != _before("leader")
    is_undeleted = F.col("disk_start").eqNullSafe(_before("disk_start"))
    is_exact = ~is_moved & is_undeleted & F.coalesce((growth >= 0) | (went_back & (growth < 0)), false())
    return pairs.withColumns(
        {
            "records": records,
            "growth": growth,
            "is_moved": is_moved,
            "is_lost": is_other_log,
            "is_exact": is_exact & ~is_other_log,
        }
    )


def _by_hour(parts: DataFrame) -> DataFrame:
    """Sum the parts of intervals by partition and hour."""
    is_counted, is_exact = ~F.col("is_lost"), F.col("is_exact")
    is_estimated = is_counted & ~is_exact
    seconds = (F.col(AT) - _before(AT)) / 1_000_000
    ends_here = F.col("end") == F.col(AT)
    can_peak = ends_here & (seconds >= MIN_PEAK_SECONDS)
    span = F.col("log_end") - F.col("disk_start")
    is_sized = F.col("bytes").isNotNull() & (span > 0)
    seen_at = F.when(ends_here, F.col(AT)).otherwise(_before(AT))

    def newest(column: str) -> Column:
        value = F.when(ends_here, F.col(column)).otherwise(_before(column))
        return F.max_by(value, F.when(value.isNotNull(), seen_at)).alias(f"newest_{column}")

    sums = parts.groupBy(*_HOUR).agg(
        F.sum(F.when(is_exact, part_of(F.col("growth")))).alias("exact_bytes"),
        F.sum(F.when(is_exact, part_of(F.col("records")))).alias("exact_records"),
        F.sum(F.when(is_estimated, part_of(F.col("records")))).alias("estimated_records"),
        F.sum(F.when(is_counted, F.col("end") - F.col("start"))).alias("covered"),
        F.count_if(is_counted).alias("samples"),
        F.max(F.when(can_peak & is_exact, F.col("growth") / seconds)).alias("peak_bytes"),
        F.max(F.when(can_peak & is_estimated, F.col("records") / seconds)).alias("peak_records"),
        F.sum(F.when(is_sized, F.col("bytes"))).alias("sizes"),
        F.sum(F.when(is_sized, span)).alias("spans"),
        F.min(_before("log_start")).alias("first_log_start"),
        *map(newest, ("leader", "bytes", "log_end")),
        F.max(F.col("is_moved").cast("int")).alias("moved"),
        F.max(F.col("is_lost").cast("int")).alias("truncated"),
    )
    return sums.where("covered > 0").transform(_with_bytes_per_record)


def _with_bytes_per_record(sums: DataFrame) -> DataFrame:
    exact, estimated = F.coalesce("exact_records", F.lit(0)), F.coalesce("estimated_records", F.lit(0))
    is_typical = (exact > 0) & (exact >= OWN_SHARE * (exact + estimated))
    return sums.withColumns(
        {
            "exact_bytes": F.coalesce("exact_bytes", F.lit(0)),
            "estimated_records": estimated,
            "records": exact + estimated,
            "covered_seconds": F.col("covered") / 1_000_000,
            "own_ratio": F.when(is_typical, F.col("exact_bytes") / exact),
            "mean_ratio": F.try_divide("sizes", "spans"),
        }
    )


def with_bytes(hours: DataFrame) -> DataFrame:
    """Add `bytes`, `bytes_per_record`, `max_5min` and `method` to PARTITION_HOURS; null if no size of a topic is known.

    Nothing is estimated for intervals without records.
    """
    own_or_mean = F.coalesce("own_ratio", "mean_ratio")
    has_any = own_or_mean.isNotNull()
    known_bytes = F.col("exact_bytes") + F.col("estimated_records") * own_or_mean
    means = hours.groupBy(TOPIC, "hour").agg(
        sum_of(F.when(has_any, known_bytes)).alias("topic_bytes"),
        F.sum(F.when(has_any, F.col("records"))).alias("topic_records"),
        F.sum("sizes").alias("topic_sizes"),
        F.sum("spans").alias("topic_spans"),
    )
    written = F.when(F.col("topic_records") > 0, F.col("topic_bytes") / F.col("topic_records"))
    ratios = means.select(
        TOPIC, "hour", F.coalesce(written, F.try_divide("topic_sizes", "topic_spans")).alias("topic_ratio")
    )
    # a compacted log has fewer records than offsets, which makes its mean too small
    mean = F.when(F.col("is_compacted"), F.greatest("mean_ratio", "topic_ratio")).otherwise(F.col("mean_ratio"))
    ratio = F.coalesce("own_ratio", mean, "topic_ratio")
    method = (
        F.when((F.col("estimated_records") == 0) | F.col("own_ratio").isNotNull(), DELTA_SIZE)
        .when(F.col("mean_ratio").isNotNull(), MEAN_SIZE)
        .otherwise(TOPIC_SHARE)
    )
    is_unsized = (F.col("estimated_records") != 0) & ratio.isNull()
    joined = hours.join(ratios, [TOPIC, "hour"], "left").withColumns(
        {"bytes_per_record": ratio, "method": method, "is_unsized": is_unsized}
    )
    estimated = F.col("estimated_records") * F.coalesce("bytes_per_record", F.lit(0.0))
    peak = F.greatest(
        F.col("peak_bytes"),
        F.col("peak_records") * F.when(F.col("peak_records") > 0, F.col("bytes_per_record")).otherwise(F.lit(0.0)),
    )
    known = F.when(~F.col("is_unsized"), true())
    total = F.when(known, F.greatest(F.col("exact_bytes") + estimated, F.lit(0.0)))
    return joined.withColumns(
        {"bytes": total, "max_5min": F.when(known, F.coalesce(peak, total / F.col("covered_seconds")))}
    )
