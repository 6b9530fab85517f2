"""Replica sizes from the brokers: bytes and lag by log dir, and log end offsets.

Corresponds to `ReplicaManager.describeLogDirs`, and to ListOffsets of a debugging replica, which followers answer as
well as leaders. The lag in DescribeLogDirs is relative to the high watermark that the broker itself knows, so it does
not show how far a replica being copied is behind. Only a comparison with the end of its leader's log does.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from kafka.errors import for_code
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from jobs.adapters.brokers.admin_client import error_name, read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.brokers.partition_offsets import LATEST
from jobs.adapters.brokers.topic_entries import (
    Fields,
    OtherFormError,
    ResponseReader,
    TopicEntries,
    UndecodedResponse,
    UndecodedResponseHeader,
    as_native,
)
from jobs.adapters.delta.table_schemas import schema_of
from jobs.core.arrow_rows import values_of
from schemas.response_codes import NO_ERROR
from schemas.rows import Broker, LogDir

PartitionNumbers = Mapping[str, Sequence[int]]
"""Partitions by topic."""

TIMEOUT_SECONDS: Final = 15.0
"""Minimum seconds for each broker; MAX_CONNECTIONS are asked at a time."""

MAX_CONNECTIONS: Final = 16
"""Brokers asked at a time; each may have tens of thousands of logs, which are in memory until they are stored."""

DEBUGGING_REPLICA: Final = -2
"""`replica_id` of ListOffsets with which a broker also answers for replicas that it does not lead."""

LOG_COLUMNS: Final = schema_of("sizes").remove(0)
"""Columns of SIZES without the cluster."""

_ERROR_SINCE, _VOLUME_SINCE, _CORDONED_SINCE = 3, 4, 5
"""Versions of DescribeLogDirs from which on it has an error code, bytes of volumes, and a mark of cordoned log dirs."""

LOG: Final[Fields] = (
    ("partition_index", ">i4"),
    ("partition_size", ">i8"),
    ("offset_lag", ">i8"),
    ("is_future_key", "u1"),
)
"""Fields of a log."""

UNKNOWN_BYTES: Final = -1
"""A broker's value for unknown bytes; before Kafka 3.3 (DescribeLogDirs 4) the field does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirs:
    """The log dirs of one broker.

    `logs` are rows of LOG_COLUMNS, `failed` are the log dirs that the broker could not read, with the error's name.
    """

    logs: pa.Table
    failed: Mapping[str, str]
    dirs: Sequence[LogDir] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSizes:
    """One broker's replicas: bytes and log end offsets by topic and partition, without future logs."""

    sizes: Mapping[tuple[str, int], int]
    ends: Mapping[tuple[str, int], int]


def read_log_dirs(
    brokers: Sequence[Broker],
    command_config: Path | None,
    on_response: Callable[[LogDirs], None],
    timeout_seconds: float | None = None,
) -> tuple[dict[int, LogDirs], dict[int, str]]:
    """Ask brokers (rows of BROKERS) for all their logs; return results, and reasons for missing ones, by broker id.

    `on_response` is called with each result as it arrives, from several threads. `timeout_seconds` bounds the whole.
    Raise UsageError for an invalid client.properties; a failing broker raises nothing.
    """

    def question(ask: Ask, broker: Broker) -> LogDirs:
        log_dirs = log_dirs_of(broker.broker_id, describe_log_dirs(ask), datetime.now(UTC))
        on_response(log_dirs)
        return log_dirs

    bound = TIMEOUT_SECONDS * -(-len(brokers) // MAX_CONNECTIONS) if timeout_seconds is None else timeout_seconds
    return ask_brokers(brokers, read_properties(command_config), bound, question, max_connections=MAX_CONNECTIONS)


def read_replica_sizes(
    brokers: Sequence[Broker],
    command_config: Path | None,
    partitions: Mapping[int, PartitionNumbers],
    timeout_seconds: float,
) -> tuple[dict[int, ReplicaSizes], dict[int, str]]:
    """Ask brokers for their replicas of the `partitions` given by broker id; return results and reasons by broker id.

    A replica that does not exist yet is in neither map; the end offset may be missing although the size is known.
    """

    def question(ask: Ask, broker: Broker) -> ReplicaSizes:
        requested = partitions[broker.broker_id]
        logs = log_dirs_of(broker.broker_id, describe_log_dirs(ask, requested), datetime.now(UTC)).logs
        current = logs.filter(pc.invert(logs["is_future"]))
        sizes = {(topic, number): size for topic, number, size in values_of(current, "topic", "partition", "bytes")}
        return ReplicaSizes(sizes=sizes, ends=_end_offsets(ask, requested))

    return ask_brokers(brokers, read_properties(command_config), timeout_seconds, question)


class ReportedLogDir(NamedTuple):
    """A log dir as a broker reported it; UNKNOWN_BYTES and None for what its version does not report."""

    error_code: int
    log_dir: str
    topics: TopicEntries
    """Its logs, with the fields of LOG."""
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool | None


class _Request(DescribeLogDirsRequest, init=False):  # type: ignore[call-arg, misc] # kafka-python is untyped
    header_class = UndecodedResponseHeader
    __slots__ = ()


def describe_log_dirs(ask: Ask, partitions: PartitionNumbers | None = None) -> list[ReportedLogDir]:
    """Return a broker's log dirs, with the logs of all partitions or of some; raise its error if it refuses."""
    topics = None if partitions is None else [(topic, list(numbers)) for topic, numbers in partitions.items()]
    error, log_dirs = decode_log_dirs(ask(_Request(topics=topics)))
    if error:  # always 0 before version 3
        raise for_code(error)
    if not log_dirs:
        raise PermissionError("it returned no log dir: DescribeLogDirs needs DESCRIBE on the cluster")
    return log_dirs


def decode_log_dirs(response: UndecodedResponse) -> tuple[int, list[ReportedLogDir]]:
    """Decode the error code and the log dirs of a response."""
    if response.is_flexible:
        with suppress(OtherFormError):
            return _decode_flexible(ResponseReader(response.data), response.version)
    described = response.decode()
    marks_cordoned = response.version >= _CORDONED_SINCE
    return described.error_code, [
        ReportedLogDir(
            error_code=row.error_code,
            log_dir=row.log_dir,
            topics=TopicEntries.of_objects(row.topics, LOG),
            total_bytes=row.total_bytes,
            usable_bytes=row.usable_bytes,
            is_cordoned=row.is_cordoned if marks_cordoned else None,
        )
        for row in described.results
    ]


def _decode_flexible(reader: ResponseReader, version: int) -> tuple[int, list[ReportedLogDir]]:
    reader.number(4)  # the throttle time
    error = reader.number(2) if version >= _ERROR_SINCE else NO_ERROR
    log_dirs = []
    for _ in range(reader.length()):
        has_volume = version >= _VOLUME_SINCE
        row = ReportedLogDir(
            error_code=reader.number(2),
            log_dir=reader.text().decode(),
            topics=reader.topics(LOG),
            total_bytes=reader.number(8) if has_volume else UNKNOWN_BYTES,
            usable_bytes=reader.number(8) if has_volume else UNKNOWN_BYTES,
            is_cordoned=bool(reader.number(1)) if version >= _CORDONED_SINCE else None,
        )
        reader.end_structure()
        log_dirs.append(row)
    return error, log_dirs


def log_dirs_of(broker_id: int, log_dirs: Sequence[ReportedLogDir], now: datetime) -> LogDirs:
    """Turn a broker's log dirs into rows."""
    logs = [_logs(broker_id, row, now) for row in log_dirs if row.error_code == NO_ERROR]
    dirs = dir_rows(broker_id, log_dirs, now)
    failed = {row.log_dir: row.error for row in dirs if row.error is not None}
    return LogDirs(logs=pa.concat_tables([LOG_COLUMNS.empty_table(), *logs]), failed=failed, dirs=dirs)


def dir_rows(broker_id: int, log_dirs: Sequence[ReportedLogDir], now: datetime) -> list[LogDir]:
    """Turn a broker's log dirs into rows of LOG_DIRS."""
    return [
        LogDir(
            broker_id=broker_id,
            log_dir=row.log_dir,
            total_bytes=_known(row.total_bytes),
            usable_bytes=_known(row.usable_bytes),
            error=error_name(row.error_code) if row.error_code != NO_ERROR else None,
            taken_at=now,
            cordoned=row.is_cordoned,
        )
        for row in log_dirs
    ]


def _logs(broker_id: int, log_dir: ReportedLogDir, now: datetime) -> pa.Table:
    names, _, entries = log_dir.topics
    topics = names.cast(pa.string()).take(pa.array(log_dir.topics.topic_of_entry))
    columns = {
        "broker_id": pa.repeat(broker_id, len(entries)),
        "topic": topics,
        "partition": as_native(entries["partition_index"]),
        "log_dir": pa.repeat(log_dir.log_dir, len(entries)),
        "bytes": as_native(entries["partition_size"]),
        "offset_lag": as_native(entries["offset_lag"]),
        "is_future": entries["is_future_key"].astype(bool),
        "taken_at": pa.repeat(pa.scalar(now, LOG_COLUMNS.field("taken_at").type), len(entries)),
    }
    return pa.table(columns).cast(LOG_COLUMNS)


def _known(count: int) -> int | None:
    return None if count == UNKNOWN_BYTES else count


def _end_offsets(ask: Ask, partitions: PartitionNumbers) -> dict[tuple[str, int], int]:
    """Return log end offsets; logs that the broker does not have or refuses are missing."""
    topics = [(topic, [(number, -1, LATEST) for number in numbers]) for topic, numbers in partitions.items()]
    response = ask(ListOffsetsRequest(replica_id=DEBUGGING_REPLICA, isolation_level=0, topics=topics))
    return {
        (topic.name, log.partition_index): log.offset
        for topic in response.topics
        for log in topic.partitions
        if log.error_code == NO_ERROR
    }
