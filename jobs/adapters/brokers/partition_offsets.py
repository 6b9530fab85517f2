"""Offsets of many partitions from the broker that leads them: the high watermark, the earliest and the earliest local.

Corresponds to ListOffsets of a consumer that reads uncommitted records (`KafkaApis.handleListOffsetRequest`), in
requests of bounded size.
"""

import struct
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kafka.protocol.consumer import ListOffsetsRequest

from jobs.adapters.brokers.fanout import Ask
from jobs.adapters.brokers.topic_entries import (
    Array,
    Fields,
    TopicEntries,
    TopicLayout,
    UndecodedResponse,
    UndecodedResponseHeader,
    decode_topics,
)

LATEST: Final = -1
"""Timestamp that stands for the end of a log."""
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
"""Timestamp that stands for the earliest offset on the leader's own disk, since Kafka 3.4."""

MAX_PARTITIONS: Final = 10_000
"""Partitions in one request; with long names of topics, request and response have about a megabyte each."""

CONSUMER: Final = -1
"""`replica_id` of a client that is no broker; only leaders answer it."""

READ_UNCOMMITTED: Final = 0

NOT_ANSWERED: Final = -1
"""Stands for an error code if the response lacks a partition (`UNKNOWN_SERVER_ERROR`)."""

NO_OFFSET: Final = -1

_MAX_VERSION: Final = 8
"""The highest version of ListOffsets that is requested; later ones concern other timestamps than these."""

_LOCAL_SINCE: Final = 8
"""The version of ListOffsets that knows EARLIEST_LOCAL."""

REQUESTED: Final[Fields] = (("partition_index", ">i4"), ("current_leader_epoch", ">i4"), ("timestamp", ">i8"))
ANSWERED: Final[Fields] = (
    ("partition_index", ">i4"),
    ("error_code", ">i2"),
    ("timestamp", ">i8"),
    ("offset", ">i8"),
    ("leader_epoch", ">i4"),
)
_ANY_EPOCH: Final = -1

_AFTER_THROTTLE_TIME: Final = 4
"""Offset of the list of topics in a response."""


class Partitions(NamedTuple):
    """Partitions as arrays of the same length: codes of topics, and numbers; sorted by both."""

    topic: Array
    partition: Array

    @property
    def keys(self) -> Array:
        """One number for each partition, in the same order."""
        return partition_keys(self.topic, self.partition)


def partition_keys(topic: Array, partition: Array) -> Array:
    """Combine codes of topics and numbers of partitions."""
    return (topic.astype(np.int64) << 32) | partition.astype(np.int64)


def positions_in(names: pa.Array, wanted: pa.Array) -> Array:
    """Return the positions of wanted names among names, -1 for those that are not among them."""
    return pc.fill_null(pc.index_in(wanted, names), -1).to_numpy()  # type: ignore[no-any-return] # pyarrow is untyped


class Offsets(NamedTuple):
    """Answers for partitions, in their order."""

    error: Array
    offset: Array
    leader_epoch: Array
    answered_at: Array
    """Seconds since 1970."""

    @classmethod
    def none(cls, count: int) -> "Offsets":
        """Return arrays without an answer yet."""
        offset, epoch = np.full(count, NO_OFFSET, np.int64), np.full(count, _ANY_EPOCH, np.int32)
        return cls(np.full(count, NOT_ANSWERED, np.int16), offset, epoch, np.zeros(count))


class _Request(ListOffsetsRequest, init=False):  # type: ignore[call-arg, misc] # kafka-python is untyped
    """ListOffsets with `topics` as a layout and entries for it, and with names and counts for older versions."""

    header_class = UndecodedResponseHeader
    topics: Any

    def encode(self, *args: Any, **settings: Any) -> bytes:  # noqa: ANN401 - as kafka-python has it
        layout, names, counts, entries = self.topics
        if not self.flexible_version_q(self.API_VERSION):
            self.topics = TopicEntries(names, counts, entries).objects
            encoded: bytes = super().encode(*args, **settings)
            return encoded
        replica_and_isolation = struct.pack(">ib", self.replica_id, self.isolation_level)
        body = replica_and_isolation + layout.encode(entries, REQUESTED) + b"\0"
        framed: bytes = self.encode_header(flexible=True) + body
        return struct.pack(">i", len(framed)) + framed


def list_offsets(ask: Ask, names: pa.Array, partitions: Partitions, timestamps: Sequence[int]) -> list[Offsets]:
    """Ask a broker for offsets of partitions that it leads, for each timestamp; a missing answer is NOT_ANSWERED.

    `names` are the names of topics by their code, as bytes. There are several requests if there are many partitions,
    and those about the same partitions follow each other.
    """
    answers = [Offsets.none(len(partitions.topic)) for _ in timestamps]
    for start in range(0, len(partitions.topic), MAX_PARTITIONS):
        part = slice(start, start + MAX_PARTITIONS)
        asked = _Asked(names, Partitions(partitions.topic[part], partitions.partition[part]))
        for timestamp, answer in zip(timestamps, answers, strict=True):
            response = ask(asked.request(timestamp))
            answer.answered_at[part] = time.time()
            rows, entries = asked.answers(response)
            answer.error[part][rows] = entries["error_code"]
            answer.offset[part][rows] = entries["offset"]
            answer.leader_epoch[part][rows] = entries["leader_epoch"]
    return answers


class _Asked:
    """The partitions of one request, and of its repetition for another timestamp."""

    def __init__(self, names: pa.Array, partitions: Partitions) -> None:
        topics, self._counts = np.unique(partitions.topic, return_counts=True)
        self._names = names.take(pa.array(topics))
        self._partition = partitions.partition
        self._layout = TopicLayout(self._names, self._counts)
        self._answered: tuple[TopicLayout, Array | slice] = self._layout, slice(None)
        """The layout of the latest response, and the positions of its partitions."""

    def request(self, timestamp: int) -> _Request:
        entries = np.empty(len(self._partition), np.dtype([*REQUESTED]))
        entries["partition_index"] = self._partition
        entries["current_leader_epoch"] = _ANY_EPOCH
        entries["timestamp"] = timestamp
        return _Request(
            replica_id=CONSUMER,
            isolation_level=READ_UNCOMMITTED,
            topics=(self._layout, self._names, self._counts, entries),
            min_version=_LOCAL_SINCE if timestamp == EARLIEST_LOCAL else 0,
            max_version=_MAX_VERSION,
        )

    def answers(self, response: UndecodedResponse) -> tuple[Array | slice, Array]:
        """Return the positions of partitions, and their entries.

        Brokers before Kafka 4.0 answer in the order of the request, later ones in that of their hash tables, which is
        the same for each timestamp.
        """
        if response.is_flexible:
            layout, rows = self._answered
            entries = layout.decode(response.data, _AFTER_THROTTLE_TIME, ANSWERED)
            if entries is not None and np.array_equal(entries["partition_index"], self._partition[rows]):
                return rows, entries
        topics = decode_topics(response, ANSWERED)
        answered = positions_in(self._names, topics.names)
        asked = partition_keys(np.repeat(np.arange(len(self._names)), self._counts), self._partition)
        keys = partition_keys(np.repeat(answered, topics.counts), topics.entries["partition_index"])
        rows = np.searchsorted(asked, keys)
        if not np.array_equal(asked.take(rows, mode="clip"), keys):
            raise ValueError("it answered for other partitions than it was asked for")
        self._answered = TopicLayout(topics.names, topics.counts), rows
        return rows, topics.entries
