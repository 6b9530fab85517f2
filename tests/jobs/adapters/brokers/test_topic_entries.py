"""Lists of topics as arrays against kafka-python's own encoding, of any names, numbers and versions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeLogDirsResponse
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse, OffsetFetchResponse

from jobs.adapters.brokers.group_offsets import decode_committed
from jobs.adapters.brokers.log_dirs import decode_log_dirs
from jobs.adapters.brokers.partition_offsets import (
    LATEST,
    NO_OFFSET,
    NOT_ANSWERED,
    REQUESTED,
    Offsets,
    Partitions,
    list_offsets,
)
from jobs.adapters.brokers.topic_entries import OtherFormError, ResponseReader, TopicEntries, UndecodedResponse

Respond = Callable[[Any], Any]
"""Returns the response to a request, both as kafka-python's objects, which are untyped."""

Topics = dict[str, dict[int, tuple[int, int, int]]]
"""An error, an offset and a leader epoch by topic and partition."""

_INT32 = st.integers(0, 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.one_of(st.sampled_from(["t", "é", "x" * 126, "x" * 127, "x" * 249]), st.text(min_size=1, max_size=20))
_ANSWERS = st.tuples(st.integers(-1, 120), _INT64, st.integers(-1, 2**31 - 1))
_TOPICS = st.dictionaries(_NAMES, st.dictionaries(_INT32, _ANSWERS, min_size=1, max_size=4), max_size=4)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse
_LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
_LogTopic = _LogDir.DescribeLogDirsTopic
_Log = _LogTopic.DescribeLogDirsPartition


def _ask(respond: Respond, kind: Any, version: int) -> Callable[[Any], UndecodedResponse]:  # noqa: ANN401 - as above
    """Answer a request, as it is sent, in a version of the API; `respond` gets what kafka-python reads of it."""

    def ask(request: Any) -> UndecodedResponse:  # noqa: ANN401 - as above
        request.API_VERSION = version
        request.with_header(7, "tests")
        sent = bytes(request.encode(header=True, framed=True))
        received = ListOffsetsRequest.decode(sent, version=version, header=True, framed=True)
        assert len(sent) == int.from_bytes(sent[:4], "big") + 4
        return UndecodedResponse(kind[version], bytes(respond(received).encode(version=version)))

    return ask


@pytest.mark.parametrize("version", [5, 6, 8])
@given(topics=_TOPICS, is_reversed=st.booleans())
def test_offsets(version: int, topics: Topics, is_reversed: bool) -> None:  # noqa: FBT001 - Hypothesis
    """Each partition gets the answer of its own, in whatever order the topics are."""
    names = sorted(topics)
    keys = [(name, number) for name in names for number in sorted(topics[name])]

    def respond(received: Any) -> Any:  # noqa: ANN401 - as above
        assert (received.replica_id, received.isolation_level) == (-1, 0)
        requested = {
            (topic.name, row.partition_index): row.timestamp for topic in received.topics for row in topic.partitions
        }
        assert requested == dict.fromkeys(keys, LATEST)
        rows = [
            _Topic(
                name=name,
                partitions=[
                    _Partition(
                        partition_index=number, error_code=error, timestamp=-1, offset=offset, leader_epoch=epoch
                    )
                    for number, (error, offset, epoch) in topics[name].items()
                ],
            )
            for name in (reversed(names) if is_reversed else names)
        ]
        return ListOffsetsResponse(throttle_time_ms=9, topics=rows)

    encoded = pa.array([name.encode() for name in names], pa.binary())
    led = Partitions(np.array([names.index(name) for name, _ in keys], int), np.array([n for _, n in keys], int))
    (answered,) = list_offsets(_ask(respond, ListOffsetsResponse, version), encoded, led, (LATEST,))

    assert _rows(answered) == [topics[name][number] for name, number in keys]


def _rows(answered: Offsets) -> list[tuple[int, int, int]]:
    return list(zip(answered.error.tolist(), answered.offset.tolist(), answered.leader_epoch.tolist(), strict=True))


def test_partitions_without_an_answer() -> None:
    led = Partitions(np.array([0, 0]), np.array([0, 1]))

    def respond(_: Any) -> Any:  # noqa: ANN401 - as above
        row = _Partition(partition_index=1, error_code=0, timestamp=-1, offset=5, leader_epoch=2)
        return ListOffsetsResponse(throttle_time_ms=0, topics=[_Topic(name="t", partitions=[row])])

    (answered,) = list_offsets(_ask(respond, ListOffsetsResponse, 8), pa.array([b"t"]), led, (LATEST,))
    assert _rows(answered) == [(NOT_ANSWERED, NO_OFFSET, -1), (0, 5, 2)]


_LOGS = st.lists(st.tuples(_NAMES, st.lists(st.tuples(_INT32, _INT64, _INT64, st.booleans()), max_size=4)), max_size=4)
_LOG_DIRS = st.lists(st.tuples(st.integers(0, 120), _NAMES, _LOGS, _INT64, _INT64, st.booleans()), max_size=3)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
@given(log_dirs=_LOG_DIRS, error=st.integers(0, 120))
def test_log_dirs(version: int, log_dirs: list[Any], error: int) -> None:
    response = DescribeLogDirsResponse(
        throttle_time_ms=9,
        error_code=error,
        results=[
            _LogDir(
                error_code=code,
                log_dir=path,
                topics=[
                    _LogTopic(
                        name=name,
                        partitions=[
                            _Log(partition_index=number, partition_size=size, offset_lag=lag, is_future_key=is_future)
                            for number, size, lag, is_future in rows
                        ],
                    )
                    for name, rows in logs
                ],
                total_bytes=total,
                usable_bytes=usable,
                is_cordoned=is_cordoned,
            )
            for code, path, logs, total, usable, is_cordoned in log_dirs
        ],
    )
    encoded = bytes(response.encode(version=version))
    decoded_error, decoded = decode_log_dirs(UndecodedResponse(DescribeLogDirsResponse[version], encoded))

    assert decoded_error == (error if version >= 3 else 0)
    assert [
        (row.error_code, row.log_dir, _logs(row.topics), row.total_bytes, row.usable_bytes, row.is_cordoned)
        for row in decoded
    ] == [
        (
            code,
            path,
            [(name, *row) for name, rows in logs for row in rows],
            *((total, usable) if version >= 4 else (-1, -1)),
            is_cordoned if version >= 5 else None,
        )
        for code, path, logs, total, usable, is_cordoned in log_dirs
    ]


def _logs(topics: TopicEntries) -> list[tuple[str, int, int, int, bool]]:
    names = [topics.names[number].as_py().decode() for number in topics.topic_of_entry.tolist()]
    columns = (topics.entries[name].tolist() for name in ("partition_index", "partition_size", "offset_lag"))
    return [*zip(names, *columns, topics.entries["is_future_key"].astype(bool).tolist(), strict=True)]


def test_log_dirs_of_many_logs() -> None:
    """Lengths of names and lists that take several bytes."""
    sizes = {"x" * 249: range(127), "y" * 126: range(40_000), "z": range(1)}
    topics = [
        _LogTopic(
            name=name,
            partitions=[
                _Log(partition_index=number, partition_size=number + 7, offset_lag=0, is_future_key=False)
                for number in numbers
            ],
        )
        for name, numbers in sizes.items()
    ]
    log_dir = _LogDir(error_code=0, log_dir="d", topics=topics, total_bytes=1, usable_bytes=1, is_cordoned=False)
    response = DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[log_dir])
    _, (decoded,) = decode_log_dirs(UndecodedResponse(DescribeLogDirsResponse[5], bytes(response.encode(version=5))))
    assert decoded.topics.names.to_pylist() == [name.encode() for name in sizes]
    assert _logs(decoded.topics) == [
        (name, number, number + 7, 0, False) for name, numbers in sizes.items() for number in numbers
    ]


_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_Fetched = _FetchedTopic.OffsetFetchResponsePartition
_COMMITTED = st.tuples(_INT32, _INT64, st.sampled_from(["", None, "x" * 200, "time"]), st.integers(0, 120))
_POSITIONS = st.lists(st.tuples(_NAMES, st.lists(_COMMITTED, max_size=4)), max_size=4)


@pytest.mark.parametrize("version", [5, 6, 7])
@given(topics=_POSITIONS, error=st.integers(0, 120))
def test_committed_offsets(version: int, topics: list[Any], error: int) -> None:
    """Also with metadata, which has any length."""
    rows = [
        _FetchedTopic(
            name=name,
            partitions=[
                _Fetched(partition_index=number, committed_offset=offset, metadata=text, error_code=code)
                for number, offset, text, code in partitions
            ],
        )
        for name, partitions in topics
    ]
    response = OffsetFetchResponse(throttle_time_ms=9, topics=rows, error_code=error)
    encoded = bytes(response.encode(version=version))
    decoded_error, decoded = decode_committed(UndecodedResponse(OffsetFetchResponse[version], encoded))
    columns = (decoded.entries[name].tolist() for name in ("partition_index", "committed_offset", "error_code"))
    names = [decoded.names[number].as_py().decode() for number in decoded.topic_of_entry.tolist()]
    assert decoded_error == error
    assert [*zip(names, *columns, strict=True)] == [
        (name, number, offset, code) for name, partitions in topics for number, offset, _, code in partitions
    ]


@pytest.mark.parametrize(
    "encoded",
    [
        b"\2\2t\2" + bytes(16) + b"\1\7\1x" + b"\0",  # an entry with a tagged field
        b"\2\2t\2" + bytes(16) + b"\0" + b"\1\7\1x",  # a topic with one
        b"\2\2t\3" + bytes(16) + b"\0",  # an entry is missing
        b"\2",  # and all of a topic
        b"\2\0\2" + bytes(16) + b"\0\0",  # a topic without a name
        b"\xff\xff\xff\x7f",  # more topics than bytes
    ],
)
def test_lists_of_another_form_are_left_to_kafka_python(encoded: bytes) -> None:
    assert ResponseReader(b"\2\2t\2" + bytes(16) + b"\0\0").topics(REQUESTED).names.to_pylist() == [b"t"]
    with pytest.raises(OtherFormError):
        ResponseReader(encoded).topics(REQUESTED)
