"""Positions of the groups that one broker coordinates, and the racks of their members.

A broker lists the groups whose coordinator it is, so all requests about a group go to the broker that listed it.
Corresponds to ListGroups, to DescribeGroups, ConsumerGroupDescribe and ShareGroupDescribe, and to OffsetFetch and
DescribeShareGroupOffsets (`GroupCoordinatorService`).
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from kafka.errors import for_code
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from jobs.adapters.brokers.admin_client import error_name
from jobs.adapters.brokers.fanout import Ask
from jobs.adapters.brokers.group_messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from jobs.adapters.brokers.topic_entries import (
    Fields,
    OtherFormError,
    ResponseReader,
    TopicEntries,
    UndecodedResponse,
    UndecodedResponseHeader,
)
from schemas.response_codes import NO_ERROR
from schemas.rows import Key

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
"""Types of groups; brokers that do not report them have only classic groups."""

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of a classic group of consumers; the workers of Connect form groups of another one."""

GROUP_ID_NOT_FOUND: Final = 69

GROUPS_PER_REQUEST: Final = 50
"""Groups described in one response; a group with a thousand members takes some hundred kilobytes."""

NO_POSITION: Final = -1
"""A broker's value for a partition in which a group has committed no offset."""

POSITION: Final[Fields] = (("partition_index", ">i4"), ("committed_offset", ">i8"))
"""Fields of a group's position in a partition."""

COMMITTED: Final[Fields] = (
    *POSITION,
    ("committed_leader_epoch", ">i4"),
    ("metadata_length", "u1"),
    ("error_code", ">i2"),
)
"""Fields of an entry of OffsetFetch, if its metadata is null or empty."""

_MAX_EMPTY: Final = 1
"""The length of an empty text, as it is encoded; 0 stands for null."""

_SINGLE_GROUP: Final = 7
"""The last version of OffsetFetch that is about one group."""

_MEMBERLESS: Final = frozenset({"Empty", "Dead"})
"""States of groups that have no members, and need not be described."""


class GroupPositions(NamedTuple):
    """The positions of one group."""

    group_id: str
    group_type: str
    sampled_at: datetime
    topics: TopicEntries
    """Entries with POSITION and an error code; NO_POSITION where nothing was committed."""
    racks: Mapping[Key, str]
    """Racks of the members that partitions are assigned to."""


@dataclass(slots=True)
class GroupReading:
    """The groups of one broker, and reasons of those that it did not report."""

    groups: list[GroupPositions] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def read_groups(ask: Ask) -> GroupReading:
    """Read the groups that a broker coordinates; raise its error if it does not list them."""
    response = ask(ListGroupsRequest(states_filter=[], types_filter=[]))
    if response.error_code:
        raise for_code(response.error_code)
    types = {row.group_id: (row.group_type or CLASSIC).lower() for row in response.groups}
    reading = GroupReading()
    racks: dict[str, dict[Key, str]] = {}
    for group_type, (describe, members) in _DESCRIPTIONS.items():
        ids = [
            row.group_id
            for row in response.groups
            if types[row.group_id] == group_type and row.group_state not in _MEMBERLESS and _has_consumers(row)
        ]
        for start in range(0, len(ids), GROUPS_PER_REQUEST):
            for row in ask(describe(ids[start : start + GROUPS_PER_REQUEST])).groups:
                if row.error_code == NO_ERROR:
                    racks[row.group_id] = _racks(members(row))
                elif row.error_code != GROUP_ID_NOT_FOUND:  # deleted since it was listed
                    reading.refused[row.group_id] = error_name(row.error_code)
    for group_id in sorted(types.keys() - reading.refused.keys()):
        positions = _share_positions if types[group_id] == SHARE else _committed_positions
        error, topics = positions(ask, group_id)
        if error == NO_ERROR:
            of_group = group_id, types[group_id], datetime.now(UTC), topics, racks.get(group_id, {})
            reading.groups.append(GroupPositions(*of_group))
        elif error != GROUP_ID_NOT_FOUND:
            reading.refused[group_id] = error_name(error)
    return reading


def _has_consumers(row: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
    return row.protocol_type in {CONSUMER_PROTOCOL, SHARE}


Member = tuple[str, Sequence[tuple[str, Sequence[int]]]]
"""The rack of a member that has one, and the partitions that are assigned to it."""


def _classic_members(group: Any) -> Iterator[Member]:  # noqa: ANN401 - as above
    for member in group.members:
        with suppress(struct.error, ValueError, IndexError):  # an assignor of its own may have another form
            rack = ConsumerProtocolSubscription.decode(member.member_metadata).rack_id
            if rack:
                assigned = ConsumerProtocolAssignment.decode(member.member_assignment).assigned_partitions
                yield rack, [(row.topic, row.partitions) for row in assigned]


def _members(group: Any) -> Iterator[Member]:  # noqa: ANN401 - as above
    for member in group.members:
        if member.rack_id:
            yield member.rack_id, [(row.topic_name, row.partitions) for row in member.assignment.topic_partitions]


def _racks(members: Iterable[Member]) -> dict[Key, str]:
    """Return the rack of each partition's member; none for a partition that members of several racks share.

    >>> _racks([("a", [("t", [0, 1])]), ("b", [("t", [1, 2])])])
    {('t', 0): 'a', ('t', 2): 'b'}
    """
    racks: dict[Key, str | None] = {}
    for rack, assigned in members:
        for topic, partitions in assigned:
            for partition in partitions:
                key = topic, partition
                racks[key] = rack if racks.get(key, rack) == rack else None
    return {key: rack for key, rack in racks.items() if rack is not None}


_DESCRIPTIONS: Final[dict[str, tuple[Callable[[list[str]], Any], Callable[[Any], Iterator[Member]]]]] = {
    CLASSIC: (lambda ids: DescribeGroupsRequest(groups=ids, include_authorized_operations=False), _classic_members),
    CONSUMER: (lambda ids: ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False), _members),
    SHARE: (lambda ids: ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=False), _members),
}
"""The request that describes groups of a type, and what returns the members of a described group."""


class _OffsetFetch(OffsetFetchRequest, init=False):  # type: ignore[call-arg, misc] # kafka-python is untyped
    header_class = UndecodedResponseHeader


def _committed_positions(ask: Ask, group_id: str) -> tuple[int, TopicEntries]:
    """Return the error code and the committed offsets of a group that is not a share group."""
    request = _OffsetFetch(group_id=group_id, topics=None, require_stable=False, max_version=_SINGLE_GROUP)
    return decode_committed(ask(request))


def decode_committed(response: UndecodedResponse) -> tuple[int, TopicEntries]:
    """Decode the error code and the offsets of a response to OffsetFetch about one group.

    Metadata of a consumer's own, as Kafka Streams commits it, makes entries of different widths.
    """
    if response.is_flexible:
        reader = ResponseReader(response.data)
        reader.number(4)  # the throttle time
        with suppress(OtherFormError):
            topics = reader.topics(COMMITTED)
            if (topics.entries["metadata_length"] <= _MAX_EMPTY).all():
                return reader.number(2), topics
    decoded = response.decode()
    return decoded.error_code, TopicEntries.of_objects(decoded.topics, (*POSITION, ("error_code", ">i2")))


def _share_positions(ask: Ask, group_id: str) -> tuple[int, TopicEntries]:
    """Return the error code and the start offsets of a share group, before which all records were acknowledged."""
    (group,) = ask(DescribeShareGroupOffsetsRequest(groups=[(group_id, None)])).groups
    rows = [
        (row.partition_index, row.start_offset, row.error_code) for topic in group.topics for row in topic.partitions
    ]
    return group.error_code, TopicEntries(
        names=pa.array([topic.topic_name.encode() for topic in group.topics], pa.binary()),
        counts=np.array([len(topic.partitions) for topic in group.topics], np.int64),
        entries=np.array(rows, np.dtype([*POSITION, ("error_code", ">i2")])),
    )
