"""The load of each hour, from samples: bytes of partitions (PARTITION_LOAD) and reads of groups (GROUP_LOAD).

Samples move once, as numbers, to the task of their topic, which computes all hours of the topic on arrays
(`partition_hours`, `group_hours`). Names of topics and groups are looked up at the end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Semaphore
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from planner.columns.shape import false, with_schema
from planner.load.group_hours import GroupReads, GroupSamples, group_reads
from planner.load.interval_parts import (
    MILLIONTHS,
    UNKNOWN,
    Bools,
    Floats,
    Ints,
    hour_time,
    in_millionths,
    sample_order,
    summed,
)
from planner.load.partition_hours import (
    METHODS,
    LogSamples,
    PartitionBytes,
    PartitionSums,
    partition_bytes,
    partition_sums,
)
from schemas.tables import GROUP_LOAD, PARTITION_LOAD
from schemas.topic_configs import AS_PRODUCED, COMPRESSION, POLICY

PARTIAL_SECONDS: Final = 1800
"""Covered seconds below which an hour is flagged as partial."""

TOPIC: Final = "topic_key"
"""A hash of a topic's name and id.

It takes the place of both in rows that move; as text they would be copied with each sample. A pair of a hundred
thousand topics shares one with a probability of 3e-10.
"""

GROUP: Final = "group_key"
"""A hash of a group's name."""

FLAGS: Final = ("compacted", "moved", "partial", "recompressed", "reset", "truncated", "unsized")

_FLAG_LISTS: Final = pa.array(
    [[flag for place, flag in enumerate(FLAGS) if number >> place & 1] or None for number in range(1 << len(FLAGS))],
    pa.list_(pa.string()),
)
"""The flags for each number whose bits they are."""

LOADS: Final = StructType(
    [
        StructField("hour", LongType()),
        *(column for column in PARTITION_LOAD if column.name not in {"cluster", "hour", "stored_until"}),
        *(GROUP_LOAD[name] for name in ("group_id", "records_out", "lag")),
    ]
)
"""Rows of PARTITION_LOAD, and those of GROUP_LOAD, which have a `group_id`; `hour` is counted from 1970."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledNames:
    """The topics and groups that have samples, by the keys that samples have in place of names."""

    topics: pa.Table
    """TOPIC, topic, topic_id, is_compacted, is_recompressed."""
    groups: pa.Table
    """GROUP, group_id."""


def topic_key() -> Column:
    return F.xxhash64("topic", "topic_id").alias(TOPIC)


def group_key() -> Column:
    return F.xxhash64("group_id").alias(GROUP)


def sampled_names(samples: DataFrame, positions: DataFrame, topics: DataFrame) -> SampledNames:
    """Return the names in PARTITION_OFFSETS and GROUP_OFFSETS, with what TOPICS tells about their logs.

    Brokers compress what they store of a topic again if its compression.type is not that of producers. A topic that was
    deleted or created again counts as the topic that has the name now.
    """
    config = F.col("config")
    marks = {
        "is_compacted": config[POLICY].contains("compact"),
        "is_recompressed": config[COMPRESSION] != AS_PRODUCED,
    }
    key = ("topic", "topic_id")
    sampled = samples.select(*key).distinct().unionByName(positions.select(*key).distinct()).distinct()
    joined = sampled.join(topics.select("topic", *(mark.alias(name) for name, mark in marks.items())), "topic", "left")
    known = joined.select(topic_key(), *key, *(F.coalesce(name, false()).alias(name) for name in marks))
    groups = positions.select("group_id").distinct().select(group_key(), "group_id")
    return SampledNames(known.toArrow(), groups.toArrow())


def hourly_loads(
    samples: DataFrame, positions: DataFrame, names: SampledNames, hours: range, tasks: int = 1
) -> DataFrame:
    """Return LOADS of some hours, which are counted from 1970.

    In: rows of PARTITION_OFFSETS and GROUP_OFFSETS, all of a topic or none. The work is divided into `tasks`.
    """
    rows = _log_rows(samples).unionByName(_position_rows(positions), allowMissingColumns=True)
    return rows.repartition(tasks, TOPIC).mapInArrow(partial(_loads_of_task, names=names, hours=hours), LOADS)


def partition_load(loads: DataFrame, cluster: str, stored_until: int) -> DataFrame:
    """Return PARTITION_LOAD; a partition without a committing group is read by none, at 0 bytes per second.

    `stored_until` is in microseconds since 1970.
    """
    stored = F.timestamp_micros(F.lit(stored_until))
    columns = {"cluster": F.lit(cluster), "hour": hour_time(), "stored_until": stored}
    return loads.where(F.col("group_id").isNull()).withColumns(columns).transform(with_schema, PARTITION_LOAD)


def group_load(loads: DataFrame, cluster: str) -> DataFrame:
    """Return GROUP_LOAD: what a group reads of each topic; its bytes are unknown if those of a partition are."""
    columns = {"cluster": F.lit(cluster), "hour": hour_time()}
    return loads.where(F.col("group_id").isNotNull()).withColumns(columns).transform(with_schema, GROUP_LOAD)


def _log_rows(samples: DataFrame) -> DataFrame:
    """Return samples as numbers; without a topic id, the epochs of two topics of a name cannot be told apart."""
    return samples.where(F.col("log_end").isNotNull()).select(
        topic_key(),
        "partition",
        F.unix_micros("sampled_at").alias("at"),
        F.col("log_end").alias("offset"),
        "bytes",
        "leader",
        F.when(F.col("topic_id").isNotNull(), F.col("leader_epoch")).alias("epoch"),
        "log_start",
        F.coalesce("local_start", "log_start").alias("disk_start"),
    )


def _position_rows(positions: DataFrame) -> DataFrame:
    return positions.select(
        topic_key(),
        "partition",
        F.unix_micros("sampled_at").alias("at"),
        F.col("committed").alias("offset"),
        group_key(),
        F.col("member_rack").alias("rack"),
    )


def _loads_of_task(batches: Iterable[pa.RecordBatch], names: SampledNames, hours: range) -> Iterator[pa.RecordBatch]:
    """Compute the hours of the topics of a task."""
    received = [batch for batch in batches if batch.num_rows]
    if received:
        with _places:
            loads = TopicLoads.of(pa.Table.from_batches(received), names, hours)
            computed = pa.concat_tables([loads.of_partitions(), loads.of_groups()]).combine_chunks()
        yield from computed.to_batches()


_places: Final = Semaphore(2)
"""Places for tasks that compute; the embedded engine runs all tasks at once, as threads of one process."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicLoads:
    """The loads of some topics; topics, groups and racks have numbers, and so have partitions and their readers."""

    partitions: "NumberedPairs"
    """Of topic and partition."""
    readers: "NumberedPairs"
    """Of group and number of the partition."""
    topics: pa.Table
    groups: pa.Array
    racks: pa.Array
    """In order."""
    sums: PartitionSums
    written: PartitionBytes
    reads: GroupReads

    @classmethod
    def of(cls, rows: pa.Table, names: SampledNames, hours: range) -> "TopicLoads":
        topic, topic_keys = _encoded(rows[TOPIC])
        group, group_keys = _encoded(rows[GROUP])
        rack, racks = _encoded(rows["rack"])
        by_name = pc.sort_indices(racks).to_numpy()
        rack = np.append(np.argsort(by_name), UNKNOWN)[rack]
        topics = names.topics.take(pc.index_in(topic_keys, names.topics[TOPIC].combine_chunks()))
        partitions = NumberedPairs.of(topic, _numbers(rows["partition"]))
        at, offset = _numbers(rows["at"]), _numbers(rows["offset"])

        is_log, is_position = group == UNKNOWN, group != UNKNOWN
        logs = rows.filter(pa.array(is_log))
        of_logs = [column[is_log] for column in (partitions.number, at, offset)]
        samples = LogSamples(*_in_order([*of_logs, *(_numbers(logs[name]) for name in _OF_LOGS)]))
        sums = partition_sums(samples, hours)
        topic_of_sums = partitions.first[sums.key]
        written = partition_bytes(sums, topic_of_sums, topics["is_compacted"].to_numpy()[topic_of_sums])

        key = partitions.number[is_position]
        readers = NumberedPairs.of(group[is_position], key)
        of_positions = (column[is_position] for column in (at, offset, rack))
        positions = GroupSamples(*_in_order([readers.number, *of_positions, key]))
        return cls(
            partitions=partitions,
            readers=readers,
            topics=topics,
            groups=names.groups["group_id"].take(pc.index_in(group_keys, names.groups[GROUP].combine_chunks())),
            racks=racks.take(pa.array(by_name)),
            sums=sums,
            written=written,
            reads=group_reads(positions, sums, written, hours),
        )

    def of_partitions(self) -> pa.Table:
        sums, written = self.sums, self.written
        topic = self.partitions.first[sums.key]
        columns = {
            **self._topic(topic),
            **self._reads_of_partitions(),
            "hour": sums.hour,
            "partition": self.partitions.second[sums.key],
            "leader": sums.newest_leader,
            "records_in": sums.records / sums.covered_seconds,
            "bytes_in": written.bytes / sums.covered_seconds,
            "max_5min": written.max_5min,
            "size_bytes": sums.newest_bytes,
            "covered_seconds": sums.covered_seconds,
            "samples": sums.samples,
            "method": pa.array(METHODS).take(pa.array(written.method)),
            "flags": _FLAG_LISTS.take(pa.array(self._flags(topic))),
        }
        return _table(columns, len(sums.key))

    def _topic(self, topic: Ints) -> dict[str, pa.ChunkedArray]:
        rows = self.topics.take(pa.array(topic))
        return {name: rows[name] for name in ("topic", "topic_id")}

    def _flags(self, topic: Ints) -> Ints:
        """Return the flags of each partition and hour as bits."""
        holds = {
            "compacted": self.topics["is_compacted"].to_numpy()[topic],
            "recompressed": self.topics["is_recompressed"].to_numpy()[topic],
            "moved": self.sums.is_moved,
            "truncated": self.sums.is_truncated,
            "partial": self.sums.covered_seconds < PARTIAL_SECONDS,
            "reset": _any(self.reads.row[self.reads.is_reset], len(topic)),
            "unsized": self.written.is_unsized,
        }
        bits = [holds[flag].astype(np.int64) << place for place, flag in enumerate(FLAGS)]
        flags: Ints = np.sum(bits, axis=0, dtype=np.int64)
        return flags

    def _reads_of_partitions(self) -> dict[str, Floats | pa.Array]:
        """Sum what all groups read of a partition, and what members with a rack read, by rack."""
        reads, count = self.reads, len(self.sums.key)
        is_known = (reads.row != UNKNOWN) & ~np.isnan(reads.bytes)
        row, rack, read = reads.row[is_known], reads.rack[is_known], in_millionths(reads.bytes[is_known])
        total = np.where(_any(row, count), summed(read, row, count) / MILLIONTHS, np.nan)
        has_rack = rack != UNKNOWN
        places, group = np.unique(row[has_rack] * len(self.racks) + rack[has_rack], return_inverse=True)
        by_rack = summed(read[has_rack], group, len(places)) / MILLIONTHS
        row_of_place, rack_of_place = np.divmod(places, max(len(self.racks), 1))
        offsets = np.searchsorted(row_of_place, np.arange(count + 1))
        is_without = np.append(np.diff(offsets) == 0, False)
        return {
            "bytes_out": np.where(_any(reads.row, count), total, 0.0),
            "bytes_out_by_rack": pa.MapArray.from_arrays(
                pa.array(offsets, pa.int32(), mask=is_without), self.racks.take(pa.array(rack_of_place)), by_rack
            ),
        }

    def of_groups(self) -> pa.Table:
        reads = self.reads
        group, key = self.readers.first[reads.reader], self.readers.second[reads.reader]
        of_topic = NumberedPairs.of(group, self.partitions.first[key])
        of_hour = NumberedPairs.of(of_topic.number, reads.hour)
        rows, number = len(of_hour.first), of_hour.number
        is_unknown = np.isnan(reads.bytes)
        bytes_out = summed(in_millionths(reads.bytes), number, rows) / MILLIONTHS
        has_lag = reads.lag != UNKNOWN
        lag = summed(np.where(has_lag, reads.lag, 0), number, rows)
        columns = {
            **self._topic(of_topic.second[of_hour.first]),
            "hour": of_hour.second,
            "group_id": self.groups.take(pa.array(of_topic.first[of_hour.first])),
            "records_out": summed(in_millionths(reads.records), number, rows) / MILLIONTHS,
            "bytes_out": np.where(_any(number[is_unknown], rows), np.nan, bytes_out),
            "lag": np.where(_any(number[has_lag], rows), lag, UNKNOWN),
        }
        return _table(columns, rows)


_OF_LOGS: Final = ("bytes", "leader", "epoch", "log_start", "disk_start")
"""Columns of rows that LogSamples have besides offsets, in its order."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberedPairs:
    """A number for each distinct pair, and the pair of each number; the second is a number of 32 bits."""

    number: Ints
    first: Ints
    second: Ints

    @classmethod
    def of(cls, first: Ints, second: Ints) -> "NumberedPairs":
        number, pairs = _encoded(pa.array(first << 32 | second))
        distinct = pairs.to_numpy()
        return cls(number, distinct >> 32, distinct & 0xFFFFFFFF)


def _encoded(values: pa.Array | pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Return a number for each value, UNKNOWN for null, and the value of each number."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    encoded = whole.dictionary_encode()
    numbers: Ints = pc.fill_null(encoded.indices, UNKNOWN).to_numpy().astype(np.int64)
    return numbers, encoded.dictionary


def _numbers(values: pa.ChunkedArray) -> Ints:
    """Return UNKNOWN for null."""
    numbers: Ints = pc.fill_null(values, UNKNOWN).to_numpy().astype(np.int64, copy=False)
    return numbers


def _in_order(columns: Sequence[Ints]) -> Iterator[Ints]:
    """Yield the columns of samples in their order, by the first two columns, key and time."""
    order = sample_order(*columns)
    return (column[order] for column in columns)


def _any(places: Ints, count: int) -> Bools:
    """Return whether a place is among those given; UNKNOWN is none."""
    is_given = np.zeros(count + 1, np.bool_)
    is_given[places] = True  # UNKNOWN is the place of the last one
    return is_given[:-1]


def _table(columns: Mapping[str, Ints | Floats | pa.Array | pa.ChunkedArray], count: int) -> pa.Table:
    """Return rows of LOADS; columns that are not given are null."""
    schema = to_arrow_schema(LOADS)
    return pa.table([_column(columns.get(column.name), column.type, count) for column in schema], schema=schema)


def _column(values: Ints | Floats | pa.Array | pa.ChunkedArray | None, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, np.ndarray):
        is_unknown = np.isnan(values) if values.dtype == np.float64 else values == UNKNOWN
        return pa.array(values, mask=is_unknown).cast(kind)
    return values.cast(kind)
