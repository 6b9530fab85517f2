"""Offsets of many partitions from the broker that leads them: the high watermark, the earliest and the earliest local.

Corresponds to ListOffsets of a consumer that reads uncommitted records (`KafkaApis.handleListOffsetRequest`), in
requests of bounded size.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from kafka.protocol.consumer import ListOffsetsRequest

from jobs.adapters.brokers.fanout import Ask
from jobs.adapters.brokers.topic_entries import (
    Array,
    Fields,
    TopicEntries,
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

_REQUESTED: Final[Fields] = (("partition_index", ">i4"), ("current_leader_epoch", ">i4"), ("timestamp", ">i8"))
_ANSWERED: Final[Fields] = (
    ("partition_index", ">i4"),
    ("error_code", ">i2"),
    ("timestamp", ">i8"),
    ("offset", ">i8"),
    ("leader_epoch", ">i4"),
)
_ANY_EPOCH: Final = -1


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


class Offsets(NamedTuple):
    """Answers for partitions, in their order."""

    error: Array
    offset: Array
    leader_epoch: Array
    answered_at: Array
    """Seconds since 1970."""


class _Request(ListOffsetsRequest, init=False):  # type: ignore[call-arg, misc] # kafka-python is untyped
    """ListOffsets whose `topics` are TopicEntries."""

    header_class = UndecodedResponseHeader
    topics: Any

    def encode(self, *args: Any, **settings: Any) -> bytes:  # noqa: ANN401 - as kafka-python has it
        if not self.flexible_version_q(self.API_VERSION):
            self.topics = self.topics.objects()
            encoded: bytes = super().encode(*args, **settings)
            return encoded
        body = struct.pack(">ib", self.replica_id, self.isolation_level) + self.topics.encode(_REQUESTED) + b"\0"
        framed: bytes = self.encode_header(flexible=True) + body
        return struct.pack(">i", len(framed)) + framed


def list_offsets(
    ask: Ask, names: Sequence[bytes], codes: Mapping[bytes, int], partitions: Partitions, timestamp: int
) -> Offsets:
    """Ask a broker for offsets of partitions that it leads, in several requests; a missing answer is NOT_ANSWERED.

    `names` are the names of topics by their code, and `codes` the reverse.
    """
    answers = Offsets(
        error=np.full(len(partitions.topic), NOT_ANSWERED, np.int16),
        offset=np.full(len(partitions.topic), NO_OFFSET, np.int64),
        leader_epoch=np.full(len(partitions.topic), _ANY_EPOCH, np.int32),
        answered_at=np.zeros(len(partitions.topic)),
    )
    keys = partitions.keys
    for start in range(0, len(keys), MAX_PARTITIONS):
        part = slice(start, start + MAX_PARTITIONS)
        requested = _requested(names, Partitions(partitions.topic[part], partitions.partition[part]), timestamp)
        response = ask(
            _Request(
                replica_id=CONSUMER,
                isolation_level=READ_UNCOMMITTED,
                topics=requested,
                min_version=_LOCAL_SINCE if timestamp == EARLIEST_LOCAL else 0,
                max_version=_MAX_VERSION,
            )
        )
        answers.answered_at[part] = time.time()
        topics = decode_topics(response, _ANSWERED)
        codes_of_topics = np.array([codes.get(name, -1) for name in topics.names], np.int64)
        rows = np.searchsorted(
            keys, partition_keys(codes_of_topics[topics.topic_of_entry], topics.entries["partition_index"])
        )
        answers.error[rows] = topics.entries["error_code"]
        answers.offset[rows] = topics.entries["offset"]
        answers.leader_epoch[rows] = topics.entries["leader_epoch"]
    return answers


def _requested(names: Sequence[bytes], partitions: Partitions, timestamp: int) -> TopicEntries:
    entries = np.empty(len(partitions.topic), np.dtype([*_REQUESTED]))
    entries["partition_index"] = partitions.partition
    entries["current_leader_epoch"] = _ANY_EPOCH
    entries["timestamp"] = timestamp
    topics, counts = np.unique(partitions.topic, return_counts=True)
    return TopicEntries([names[code] for code in topics.tolist()], counts, entries)
