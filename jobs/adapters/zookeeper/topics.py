"""Topics and their partitions as stored in ZooKeeper: read in bulk, decoded, and read again if torn.

ZooKeeper has no snapshot isolation: the controller may write between the read of a topic and the read of its states. A
topic whose znodes cannot belong to one moment (a leader or an ISR that is not among the replicas, a missing state, a
state of a partition that is not assigned) is read once more as a whole, and the second read is kept. A topic that is
deleted in the meantime yields no row. A znode that an ACL forbids reading is quarantined as one that cannot be decoded.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster_state import CONFIGS, TOPICS, quarantine_row
from jobs.adapters.zookeeper.multi_read import children_of, read_permitted
from jobs.adapters.zookeeper.znode_reads import Znode
from schemas.enums import NO_LEADER
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import QuarantinedZnode
from schemas.znode_codecs import (
    Assignment,
    MalformedZnodeError,
    check_topic_name,
    controller_epoch_of,
    decode_state,
    read_assignment,
    read_config,
)
from schemas.znode_paths import state_path

PARTITIONS_PER_CHUNK: Final = 50_000
"""Partitions in memory at a time; this bounds a reader's memory."""

_NO_BROKERS: Final[list[int]] = []
"""Of a partition that does not move, or whose entry in the assignment cannot be decoded; never changed."""

_LARGEST_PARTITION: Final = 2**31 - 1

NO_ASSIGNMENT: Final = Assignment({}, {}, {}, None)


@dataclass(slots=True)
class TopicRows:
    """Rows by kind, the topics that may be torn, and the durations of reading and decoding in seconds."""

    topics: list[TopicInfo] = field(default_factory=list)
    partitions: list[PartitionInfo] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    read_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(slots=True)
class _Topic:
    """A topic whose own znodes have been read, but not yet the states of its partitions."""

    info: TopicInfo
    assignment: Assignment
    unread: frozenset[int]
    """Partitions whose entry in the assignment cannot be decoded, so their replicas are unknown."""
    orphans: list[str]
    """Partitions that have a znode but are not in the assignment."""
    quarantine: list[QuarantinedZnode]

    def state_paths(self) -> Iterator[str]:
        numbers = sorted({*self.assignment.partitions, *self.unread})
        partitions: list[int | str] = [*numbers, *self.orphans]
        for partition in partitions:
            yield state_path((self.info.topic, partition))


def read_topic_rows(
    client: KazooClient, names: Sequence[str], chunk_partitions: int = PARTITIONS_PER_CHUNK
) -> Iterator[TopicRows]:
    """Read topics in chunks of whole topics; torn topics are read once more."""
    for reading in _read(client, names, chunk_partitions, is_retry=False):
        yield reading
        if reading.torn:
            yield from _read(client, reading.torn, chunk_partitions, is_retry=True)


def _read(client: KazooClient, names: Sequence[str], chunk_partitions: int, *, is_retry: bool) -> Iterator[TopicRows]:
    started = time.perf_counter()
    znodes = read_permitted(client, [f"{TOPICS}/{name}" for name in names], resume=True)
    configs = read_permitted(client, [f"{CONFIGS}/{name}" for name in names], resume=True)
    folders = [f"{TOPICS}/{name}/partitions" for name in names]
    children = children_of(client, folders, resume=True, permitted=True)
    read_at = time.perf_counter()
    topics = [
        _topic(*of_topic) for of_topic in zip(znodes, configs, children, strict=True) if of_topic[0].stat is not None
    ]
    yield TopicRows(read_seconds=read_at - started, decode_seconds=time.perf_counter() - read_at)
    for chunk in _chunks(topics, chunk_partitions):
        yield _read_states(client, chunk, is_retry=is_retry)


def _chunks(topics: Sequence[_Topic], chunk_partitions: int) -> Iterator[list[_Topic]]:
    chunk: list[_Topic] = []
    size = 0
    for topic in topics:
        size += len(topic.assignment.partitions) + len(topic.unread)
        chunk.append(topic)
        if size >= chunk_partitions:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _read_states(client: KazooClient, topics: Sequence[_Topic], *, is_retry: bool) -> TopicRows:
    started = time.perf_counter()
    paths = [path for topic in topics for path in topic.state_paths()]
    states = iter(read_permitted(client, paths, resume=True))
    read = time.perf_counter()
    result = TopicRows(read_seconds=read - started)
    for topic in topics:
        partitions, quarantine, torn = _decode_states(topic, states)
        if torn and not is_retry:
            result.torn.append(topic.info.topic)
            continue
        result.topics.append(topic.info)
        result.partitions += partitions
        result.quarantine += quarantine
    result.decode_seconds = time.perf_counter() - read
    return result


def _topic(znode: Znode, config: Znode, children: Sequence[str]) -> _Topic:
    """Decode a topic's own znodes; parts that cannot be decoded are quarantined, and the rest is kept."""
    name = znode.path.rsplit("/", 1)[1]
    settings, unread_settings = read_config(config.data)
    assignment, reason = _read_assignment(name, znode)
    info = TopicInfo(
        topic=name,
        topic_version=znode.version,
        topic_id=assignment.topic_id,
        config=settings,
        understood=not (reason or unread_settings),
        assignment_understood=not reason,
        moves_understood=not assignment.unread_moves,
        czxid=None if znode.stat is None else znode.stat.czxid,
    )
    unread = {part.number for part in assignment.unread if part.number is not None}
    assigned = {str(partition) for partition in (*assignment.partitions, *unread)}
    orphans = [child for child in children if child not in assigned]
    if assignment is NO_ASSIGNMENT or any(part.number is None for part in assignment.unread):
        numbers = {child for child in orphans if child.isdecimal() and str(int(child)) == child}
        unread |= {number for number in map(int, numbers) if number <= _LARGEST_PARTITION}
        orphans = [child for child in orphans if child not in numbers]
    quarantine = [quarantine_row(config, "; ".join(unread_settings))] if unread_settings else []
    quarantine += [quarantine_row(znode, reason)] if reason else []
    return _Topic(info, assignment, frozenset(unread), orphans, quarantine)


def _read_assignment(name: str, znode: Znode) -> tuple[Assignment, str]:
    """Decode a topic's assignment; return it and why some or all of it cannot be decoded, or an empty string."""
    try:
        check_topic_name(name)
        assignment = read_assignment(znode.data)
    except MalformedZnodeError as error:
        return NO_ASSIGNMENT, str(error)
    return assignment, assignment.reason


def _decode_states(topic: _Topic, states: Iterator[Znode]) -> tuple[list[PartitionInfo], list[QuarantinedZnode], bool]:
    """Decode a topic's states, the next of `states`; return partitions, quarantine rows and whether it may be torn."""
    partitions, quarantine, torn = list[PartitionInfo](), [*topic.quarantine], False
    for assigned in _assigned_partitions(topic):
        znode = next(states)
        try:
            partition = assigned if znode.stat is None else with_state(assigned, znode)
        except MalformedZnodeError as error:
            epoch = controller_epoch_of(znode.data)
            partition = replace(assigned, understood=False, state_version=znode.version, controller_epoch=epoch)
            quarantine.append(quarantine_row(znode, str(error)))
        partitions.append(partition)
        torn |= _is_torn(partition)
    for orphan in topic.orphans:
        znode = next(states)
        if znode.stat is not None:
            torn = True
            reason = f"a state without a topic: {TOPICS}/{topic.info.topic} assigns no partition {orphan}"
            quarantine.append(quarantine_row(znode, reason))
    return partitions, quarantine, torn


def _assigned_partitions(topic: _Topic) -> Iterator[PartitionInfo]:
    """Yield each partition without its state; one whose entry cannot be decoded has no known replicas."""
    assignment, info = topic.assignment, topic.info
    for partition, replicas in sorted((dict.fromkeys(topic.unread, _NO_BROKERS) | assignment.partitions).items()):
        yield PartitionInfo(
            topic=info.topic,
            topic_version=info.topic_version,
            understood=bool(replicas) and info.moves_understood,
            partition=partition,
            replicas=replicas,
            adding_replicas=assignment.adding_replicas.get(partition, _NO_BROKERS),
            removing_replicas=assignment.removing_replicas.get(partition, _NO_BROKERS),
        )


def with_state(row: PartitionInfo, znode: Znode) -> PartitionInfo:
    """Return a partition with the state in its znode; raise MalformedZnodeError if it cannot be decoded."""
    state = decode_state(znode.data)
    return replace(
        row,
        leader=state.leader,
        isr=row.replicas if state.isr == row.replicas else state.isr,  # one list, of a hundred thousand
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        state_version=znode.version,
        leader_recovery_state=state.leader_recovery_state,
    )


def _is_torn(partition: PartitionInfo) -> bool:
    """Return whether the state and the assignment of a partition may be of different moments."""
    if partition.state_version is None:
        return True
    leader, isr, replicas = partition.leader, partition.isr, partition.replicas
    if not partition.understood or leader is None or isr is None or (isr is replicas and leader in replicas):
        return False  # nearly all
    return bool({leader, *isr}.difference(replicas, (NO_LEADER,)))
