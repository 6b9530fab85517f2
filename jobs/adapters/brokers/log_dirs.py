"""What brokers hold on their disks, asked of each broker itself: bytes and lag by log dir, and where logs end.

Corresponds to `ReplicaManager.describeLogDirs`, and to ListOffsets as a debugging replica asks it, which a follower
answers as well as a leader. DescribeLogDirs knows a lag behind the high watermark that the broker itself knows, which
a replica being copied never is: how far that is behind shows only against the end of its leader's log.
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

from jobs.adapters.brokers.admin import NONE, error_name, read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers

Row = dict[str, Any]
PartitionNumbers = Mapping[str, Sequence[int]]
"""Partitions by topic."""

TIMEOUT_SECONDS: Final = 15.0
"""Seconds for each broker, at least; AT_ONCE are asked at a time."""

MAX_CONNECTIONS: Final = 16
"""Brokers whose logs are read at a time: each may have tens of thousands, which are in memory until they are stored."""

DEBUGGING_REPLICA: Final = -2
"""`replica_id` of ListOffsets to which a broker answers for replicas that it does not lead (`ListOffsetsRequest`)."""

LATEST: Final = -1

COLUMNS: Final = pa.schema(
    [
        ("broker_id", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_dir", pa.string()),
        ("bytes", pa.int64()),
        ("offset_lag", pa.int64()),
        ("is_future", pa.bool_()),
        ("taken_at", pa.timestamp("us", tz="UTC")),
    ],
)
"""SIZES without the cluster."""

UNKNOWN_BYTES: Final = -1
"""What a broker says of bytes that it does not know; those before 3.3 (DescribeLogDirs 4) know none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirs:
    """What one broker said: its logs, rows of COLUMNS, and the log dirs it could not read, with the error's name.

    `dirs`: rows of LOG_DIRS without the cluster.
    """

    logs: pa.Table
    failed: Mapping[str, str]
    dirs: Sequence[Row] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSizes:
    """What one broker holds of partitions: bytes of each log that is no future one, and the offset it ends at."""

    sizes: Mapping[tuple[str, int], int]
    ends: Mapping[tuple[str, int], int]


def read_log_dirs(
    brokers: Sequence[Row],
    command_config: Path | None,
    on_answer: Callable[[LogDirs], None],
    patience: float | None = None,
) -> tuple[dict[int, LogDirs], dict[int, str]]:
    """Ask brokers, rows of BROKERS, for all their logs; return what they said, and why the others did not, by id.

    `on_answer` is called with each answer as it comes, from several threads. `patience` is in seconds and bounds the
    whole. Raises UsageError for a client.properties that is not understood, and nothing for a broker that fails.
    """

    def question(ask: Ask, broker: Row) -> LogDirs:
        log_dirs = log_dirs_of(broker["broker_id"], _describe_log_dirs(ask, None), datetime.now(UTC))
        on_answer(log_dirs)
        return log_dirs

    bound = TIMEOUT_SECONDS * -(-len(brokers) // MAX_CONNECTIONS) if patience is None else patience
    return ask_brokers(brokers, read_properties(command_config), bound, question, max_connections=MAX_CONNECTIONS)


def read_replica_sizes(
    brokers: Sequence[Row],
    command_config: Path | None,
    partitions: Mapping[int, PartitionNumbers],
    patience: float,
) -> tuple[dict[int, ReplicaSizes], dict[int, str]]:
    """Ask brokers for their replicas of the `partitions` given for each; silent ones as `read_log_dirs` has them.

    A replica that is not there yet is in neither map; the end of a log may be missing where its size is known.
    """

    def question(ask: Ask, broker: Row) -> ReplicaSizes:
        mine = partitions[broker["broker_id"]]
        sizes = {
            (topic.name, log.partition_index): log.partition_size
            for log_dir in _describe_log_dirs(ask, mine)
            for topic in log_dir.topics
            for log in topic.partitions
            if not log.is_future_key
        }
        return ReplicaSizes(sizes=sizes, ends=_end_offsets(ask, mine))

    return ask_brokers(brokers, read_properties(command_config), patience, question)


def _describe_log_dirs(ask: Ask, named: PartitionNumbers | None) -> Sequence[Any]:
    """Return a broker's log dirs with their logs: all, or those named; raise the error of one that may not tell."""
    topics = None if named is None else [(topic, list(numbers)) for topic, numbers in named.items()]
    response = ask(DescribeLogDirsRequest(topics=topics))
    if response.error_code:  # not there before version 3
        raise for_code(response.error_code)
    if not response.results:
        raise PermissionError("it tells of no log dir: DescribeLogDirs needs DESCRIBE on the cluster")
    log_dirs: Sequence[Any] = response.results
    return log_dirs


def log_dirs_of(broker_id: int, log_dirs: Sequence[Any], now: datetime) -> LogDirs:
    """Make rows of what a broker answered, `DescribeLogDirsResult`s of kafka-python."""
    logs = [
        (topic.name, log.partition_index, log_dir.log_dir, log.partition_size, log.offset_lag, log.is_future_key)
        for log_dir in log_dirs
        if log_dir.error_code == NONE
        for topic in log_dir.topics
        for log in topic.partitions
    ]
    columns = [[broker_id] * len(logs), *(zip(*logs, strict=True) if logs else [()] * 6), [now] * len(logs)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    failed = {log_dir.log_dir: error_name(log_dir.error_code) for log_dir in log_dirs if log_dir.error_code != NONE}
    dirs = [
        {
            "broker_id": broker_id,
            "log_dir": log_dir.log_dir,
            "total_bytes": _byte_count(log_dir, "total_bytes"),
            "usable_bytes": _byte_count(log_dir, "usable_bytes"),
            "error": failed.get(log_dir.log_dir),
            "taken_at": now,
        }
        for log_dir in log_dirs
    ]
    return LogDirs(logs=pa.Table.from_arrays(arrays, schema=COLUMNS), failed=failed, dirs=dirs)


def _byte_count(log_dir: Any, name: str) -> int | None:  # noqa: ANN401 - kafka-python is untyped
    count = getattr(log_dir, name, UNKNOWN_BYTES)
    return None if count is None or count == UNKNOWN_BYTES else int(count)


def _end_offsets(ask: Ask, named: PartitionNumbers) -> dict[tuple[str, int], int]:
    """Return the offset each log ends at, none for those that the broker does not have or does not tell."""
    topics = [(topic, [(number, -1, LATEST) for number in numbers]) for topic, numbers in named.items()]
    response = ask(ListOffsetsRequest(replica_id=DEBUGGING_REPLICA, isolation_level=0, topics=topics))
    return {
        (topic.name, log.partition_index): log.offset
        for topic in response.topics
        for log in topic.partitions
        if log.error_code == NONE
    }
