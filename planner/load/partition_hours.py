"""The load of partitions by hour, from samples of their offsets and sizes, on arrays.

An interval's growth of the log in bytes is exact if the same leader reported both samples and nothing was deleted in
between. Otherwise its records count with the bytes per record of the hour's other intervals, else with the mean size of
the records in the log, else with the mean of the topic. Each transaction writes a marker, which is one record here. A
log that is compacted shrinks without a change of its start, so only intervals in which it grew count as exact; if the
cleaner runs more often than samples are taken, the bytes are too few.

Corresponds to Cruise Control's `MetricSampler`, which divides the bytes of a topic on a broker by its leaders there.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.load.interval_parts import (
    MICROSECONDS,
    MILLIONTHS,
    UNKNOWN,
    Bools,
    Floats,
    IntervalParts,
    Ints,
    in_millionths,
    interval_parts,
    quotient,
    summed,
)

OWN_SHARE: Final = 0.1
"""Share of an hour's records that exact intervals must have, so that their bytes per record count for the others."""

MIN_PEAK_SECONDS: Final = 30
"""Seconds of an interval from which on its rate can be the highest of the hour; clocks of samplers differ."""

METHODS: Final = ("delta_size", "mean_size", "topic_share")

_NO_RATE: Final = -np.inf


@dataclass(frozen=True, slots=True, eq=False)
class LogSamples:
    """Samples of the logs of partitions, sorted by `key`, a number of the partition, and by `at`."""

    key: Ints
    at: Ints
    log_end: Ints
    bytes: Ints
    leader: Ints
    epoch: Ints
    log_start: Ints
    disk_start: Ints
    """The earliest offset on the leader's disk."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionSums:
    """The sampled hours of partitions; `bytes` and `records` were written in `covered_seconds`."""

    key: Ints
    hour: Ints
    covered_seconds: Floats
    samples: Ints
    exact_bytes: Ints
    exact_records: Ints
    estimated_records: Ints
    peak_bytes: Floats
    """The most bytes per second of an exact interval; NaN if there is none."""
    peak_records: Floats
    """The most records per second of another interval; NaN if there is none."""
    sizes: Ints
    """Bytes of the log, summed over the samples with a size, and the records that they belong to."""
    spans: Ints
    first_log_start: Ints
    newest_leader: Ints
    newest_bytes: Ints
    newest_log_end: Ints
    is_moved: Bools
    is_truncated: Bools

    @property
    def records(self) -> Ints:
        return self.exact_records + self.estimated_records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionBytes:
    """What was written in each hour of PartitionSums; NaN if no size of the topic is known."""

    bytes: Floats
    bytes_per_record: Floats
    max_5min: Floats
    method: Ints
    """A place in METHODS."""
    is_unsized: Bools


def partition_sums(samples: LogSamples, hours: range) -> PartitionSums:
    """Sum the parts of intervals by partition and hour.

    Offsets cannot go back within a leader epoch. If they do, clocks of samplers differ, and the negative records cancel
    those of a neighbour. After an unclean election, or in another topic, they go back with another epoch; what was
    written in such an interval is unknown.
    """
    parts = interval_parts(samples.key, samples.at, hours)
    pair, later = parts.pair, parts.pair + 1
    went_back = samples.log_end[1:] < samples.log_end[:-1]
    is_same_epoch = (samples.epoch[1:] == samples.epoch[:-1]) & (samples.epoch[1:] != UNKNOWN)
    is_other_log = went_back & ~is_same_epoch
    is_moved = samples.leader[1:] != samples.leader[:-1]
    is_undeleted = samples.disk_start[1:] == samples.disk_start[:-1]
    is_sized = samples.bytes != UNKNOWN
    has_grown = is_sized[1:] & is_sized[:-1] & ((samples.bytes[1:] >= samples.bytes[:-1]) | went_back)
    is_exact = (~is_moved & is_undeleted & has_grown & ~is_other_log)[pair]
    is_lost = is_other_log[pair]

    growth, records = np.diff(samples.bytes)[pair], np.diff(samples.log_end)[pair]
    counted_records = np.where(is_lost, 0, parts.part_of(records))
    exact_records = parts.sums(np.where(is_exact, counted_records, 0))
    can_peak = parts.ends_here & (parts.length >= MIN_PEAK_SECONDS * MICROSECONDS)
    seconds = parts.length / MICROSECONDS
    spans = samples.log_end - samples.disk_start
    has_mean = (is_sized & (samples.disk_start != UNKNOWN) & (spans > 0))[later]
    last = np.where(parts.ends_here, later, pair)[parts.last]
    covered = parts.sums(np.where(is_lost, 0, parts.covered))
    sums = PartitionSums(
        key=samples.key[pair[parts.first]],
        hour=parts.hour[parts.first],
        covered_seconds=covered / MICROSECONDS,
        samples=parts.sums(~is_lost),
        exact_bytes=parts.sums(np.where(is_exact, parts.part_of(growth), 0)),
        exact_records=exact_records,
        estimated_records=parts.sums(counted_records) - exact_records,
        peak_bytes=_highest(parts, growth / seconds, can_peak & is_exact),
        peak_records=_highest(parts, records / seconds, can_peak & ~is_exact & ~is_lost),
        sizes=parts.sums(np.where(has_mean, samples.bytes[later], 0)),
        spans=parts.sums(np.where(has_mean, spans[later], 0)),
        first_log_start=parts.lowest(samples.log_start[pair]),
        newest_leader=samples.leader[last],
        newest_bytes=_newest_bytes(samples, parts, is_sized),
        newest_log_end=samples.log_end[last],
        is_moved=parts.highest(is_moved[pair]),
        is_truncated=parts.highest(is_lost),
    )
    is_covered = covered > 0
    return PartitionSums(**{name: getattr(sums, name)[is_covered] for name in PartitionSums.__dataclass_fields__})


def _highest(parts: IntervalParts, rates: Floats, counted: Bools) -> Floats:
    highest = parts.highest(np.where(counted, rates, _NO_RATE))
    return np.where(highest == _NO_RATE, np.nan, highest)


def _newest_bytes(samples: LogSamples, parts: IntervalParts, is_sized: Bools) -> Ints:
    """Return the size of the log in the newest sample of each hour that has one."""
    row = np.where(parts.ends_here, parts.pair + 1, parts.pair)
    newest = parts.highest(np.where(is_sized[row], row, UNKNOWN))
    return np.where(newest == UNKNOWN, UNKNOWN, samples.bytes[newest])


def partition_bytes(sums: PartitionSums, topic: Ints, is_compacted: Bools) -> PartitionBytes:
    """Return the bytes of hours; `topic` is a number of the topic, and `is_compacted` whether it is compacted.

    Nothing is estimated for intervals without records.
    """
    exact = sums.exact_records
    is_typical = (exact > 0) & (exact >= OWN_SHARE * sums.records)
    own = quotient(sums.exact_bytes, np.where(is_typical, exact, 0))
    mean = quotient(sums.sizes, sums.spans)
    own_or_mean: Floats = np.where(np.isnan(own), mean, own)
    known_bytes = own_or_mean * sums.estimated_records + sums.exact_bytes
    of_topic = _topic_ratios(sums, topic, known_bytes)
    # a compacted log has fewer records than offsets, which makes its mean too small
    mean_or_more = np.where(is_compacted, np.fmax(mean, of_topic), mean)
    ratio = np.where(np.isnan(own), np.where(np.isnan(mean_or_more), of_topic, mean_or_more), own)
    is_measured = (sums.estimated_records == 0) | ~np.isnan(own)
    is_unsized = (sums.estimated_records != 0) & np.isnan(ratio)
    total = np.maximum(sums.exact_bytes + sums.estimated_records * np.nan_to_num(ratio), 0.0)
    peak = np.fmax(sums.peak_bytes, sums.peak_records * np.where(sums.peak_records > 0, ratio, 0.0))
    return PartitionBytes(
        bytes=np.where(is_unsized, np.nan, total),
        bytes_per_record=ratio,
        max_5min=np.where(is_unsized, np.nan, np.where(np.isnan(peak), total / sums.covered_seconds, peak)),
        method=np.where(is_measured, 0, np.where(np.isnan(mean), 2, 1)),
        is_unsized=is_unsized,
    )


def _topic_ratios(sums: PartitionSums, topic: Ints, known_bytes: Floats) -> Floats:
    """Return the bytes per record of each partition's topic in the hour, else the mean size of its records."""
    hour = sums.hour - sums.hour.min(initial=sums.hour[0] if len(sums.hour) else 0)
    hours = int(hour.max(initial=0)) + 1
    group, groups = topic * hours + hour, (int(topic.max(initial=0)) + 1) * hours
    has_any = ~np.isnan(known_bytes)
    written = summed(in_millionths(known_bytes), group, groups) / MILLIONTHS
    records = summed(np.where(has_any, sums.records, 0), group, groups)
    by_records = quotient(written, np.maximum(records, 0))
    by_sizes = quotient(summed(sums.sizes, group, groups), summed(sums.spans, group, groups))
    ratios: Floats = np.where(np.isnan(by_records), by_sizes, by_records)[group]
    return ratios
