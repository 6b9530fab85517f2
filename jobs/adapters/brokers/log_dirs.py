"""Replica sizes from the brokers: bytes and lag by log dir, and log end offsets.

Corresponds to `ReplicaManager.describeLogDirs`, and to ListOffsets of a debugging replica, which followers answer as
well as leaders. The lag in DescribeLogDirs is relative to the high watermark that the broker itself knows, so it does
not show how far a replica being copied is behind. Only a comparison with the end of its leader's log does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from kafka.errors import for_code
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from jobs.adapters.brokers.admin_client import NO_ERROR, error_name, read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.delta.table_schemas import schema_of
from schemas.rows import Broker, LogDir

PartitionNumbers = Mapping[str, Sequence[int]]
"""Partitions by topic."""

TIMEOUT_SECONDS: Final = 15.0
"""Minimum seconds for each broker; MAX_CONNECTIONS are asked at a time."""

MAX_CONNECTIONS: Final = 16
"""Brokers asked at a time; each may have tens of thousands of logs, which are in memory until they are stored."""

DEBUGGING_REPLICA: Final = -2
"""`replica_id` of ListOffsets with which a broker also answers for replicas that it does not lead."""

LATEST: Final = -1

LOG_COLUMNS: Final = schema_of("sizes").remove(0)
"""Columns of SIZES without the cluster."""

CORDONED_SINCE: Final = 5
"""Version of DescribeLogDirs that marks cordoned log dirs."""

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
        response = _describe_log_dirs(ask, None)
        log_dirs = log_dirs_of(broker.broker_id, response.results, datetime.now(UTC), response.API_VERSION)
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
        sizes = {
            (topic.name, log.partition_index): log.partition_size
            for log_dir in _describe_log_dirs(ask, requested).results
            for topic in log_dir.topics
            for log in topic.partitions
            if not log.is_future_key
        }
        return ReplicaSizes(sizes=sizes, ends=_end_offsets(ask, requested))

    return ask_brokers(brokers, read_properties(command_config), timeout_seconds, question)


def _describe_log_dirs(ask: Ask, partitions: PartitionNumbers | None) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Return a broker's response with the logs of all partitions, or of `partitions`; raise its error if it refuses."""
    topics = None if partitions is None else [(topic, list(numbers)) for topic, numbers in partitions.items()]
    response = ask(DescribeLogDirsRequest(topics=topics))
    if response.error_code:  # always 0 before version 3
        raise for_code(response.error_code)
    if not response.results:
        raise PermissionError("it returned no log dir: DescribeLogDirs needs DESCRIBE on the cluster")
    return response


def log_dirs_of(broker_id: int, log_dirs: Sequence[Any], now: datetime, version: int = CORDONED_SINCE) -> LogDirs:
    """Turn a broker's `DescribeLogDirsResult`s into rows; `version` is the response's API version."""
    marks_cordoned = version >= CORDONED_SINCE
    logs = [
        (topic.name, log.partition_index, log_dir.log_dir, log.partition_size, log.offset_lag, log.is_future_key)
        for log_dir in log_dirs
        if log_dir.error_code == NO_ERROR
        for topic in log_dir.topics
        for log in topic.partitions
    ]
    columns = [[broker_id] * len(logs), *(zip(*logs, strict=True) if logs else [()] * 6), [now] * len(logs)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, LOG_COLUMNS, strict=True)]
    failed = {log_dir.log_dir: error_name(log_dir.error_code) for log_dir in log_dirs if log_dir.error_code != NO_ERROR}
    dirs = [
        LogDir(
            broker_id=broker_id,
            log_dir=log_dir.log_dir,
            total_bytes=_byte_count(log_dir, "total_bytes"),
            usable_bytes=_byte_count(log_dir, "usable_bytes"),
            error=failed.get(log_dir.log_dir),
            taken_at=now,
            cordoned=bool(log_dir.is_cordoned) if marks_cordoned else None,
        )
        for log_dir in log_dirs
    ]
    return LogDirs(logs=pa.Table.from_arrays(arrays, schema=LOG_COLUMNS), failed=failed, dirs=dirs)


def _byte_count(log_dir: Any, name: str) -> int | None:  # noqa: ANN401 - kafka-python is untyped
    count = getattr(log_dir, name, UNKNOWN_BYTES)
    return None if count is None or count == UNKNOWN_BYTES else int(count)


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
