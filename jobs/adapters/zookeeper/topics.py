"""Topics and their partitions as stored in ZooKeeper: read in bulk, decoded, and read again if torn.

ZooKeeper has no snapshot isolation: the controller may write between the read of a topic and the read of its states. A
topic whose znodes cannot belong to one moment (a leader or an ISR that is not among the replicas, a missing state, a
state of a partition that is not assigned) is read once more as a whole, and the second read is kept. A topic that is
deleted in the meantime yields no row. A znode that an ACL forbids reading is quarantined as one that cannot be decoded.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import CONFIGS, TOPICS, quarantined
from jobs.adapters.zookeeper.connection import Znode, children
from jobs.adapters.zookeeper.multi_read import children_of, read_permitted
from jobs.adapters.zookeeper.precondition_reader import state_path
from schemas.enums import NO_LEADER
from schemas.rows import QuarantinedZnode, Row
from schemas.znode_json import LAST_EPOCH
from schemas.znodes import (
    Assignment,
    MalformedZnodeError,
    check_topic_name,
    controller_epoch_of,
    decode_state,
    read_assignment,
    read_config,
)

PARTITIONS_PER_CHUNK: Final = 50_000
"""Partitions in memory at a time; this bounds a reader's memory."""

_NO_BROKERS: Final[list[int]] = []
"""Of a partition that does not move, or whose entry in the assignment cannot be decoded; never changed."""

_LARGEST_PARTITION: Final = 2**31 - 1

NO_ASSIGNMENT: Final = Assignment({}, {}, {}, None)


@dataclass(slots=True)
class TopicRows:
    """Rows by kind, the topics that may be torn, and the durations of reading and decoding in seconds."""

    topics: list[Row] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    read_seconds: float = 0.0
    decode_seconds: float = 0.0


def latest_epoch_of_states(client: KazooClient) -> int:
    """Return the latest controller epoch that a state carries, or 0 if there is none.

    The epoch counts even if the rest of a state is not understood. LAST_EPOCH does not count: no controller can take a
    later one, and only the partition with that state is blocked.
    """
    names = children(client, TOPICS) or []
    folders = [f"{TOPICS}/{name}/partitions" for name in names]
    partitions = children_of(client, folders, resume=True, permitted=True)
    numbered = zip(names, partitions, strict=True)
    paths = (state_path((name, number)) for name, numbers in numbered for number in numbers)
    latest = 0
    while chunk := list(islice(paths, PARTITIONS_PER_CHUNK)):
        epochs = map(_controller_epoch, read_permitted(client, chunk, resume=True))
        latest = max([latest, *(epoch for epoch in epochs if epoch < LAST_EPOCH)])
    return latest


def _controller_epoch(znode: Znode) -> int:
    return 0 if znode.stat is None else controller_epoch_of(znode.data) or 0


@dataclass(slots=True)
class _Topic:
    """A topic whose own znodes have been read and whose states have not."""

    row: Row
    assignment: Assignment = NO_ASSIGNMENT
    unread: frozenset[int] = frozenset()
    """Partitions whose entry in the assignment cannot be decoded, so their replicas are unknown."""
    orphans: list[str] = field(default_factory=list)
    """Partitions that have a znode but are not in the assignment."""
    quarantine: list[QuarantinedZnode] = field(default_factory=list)

    def state_paths(self) -> Iterator[str]:
        numbers = sorted({*self.assignment.partitions, *self.unread})
        partitions: list[int | str] = [*numbers, *self.orphans]
        for partition in partitions:
            yield state_path((self.row["topic"], partition))


def read_topic_rows(client: KazooClient, names: Sequence[str]) -> Iterator[TopicRows]:
    """Read topics in chunks; torn topics are read once more."""
    for reading in _read(client, names, is_retry=False):
        yield reading
        if reading.torn:
            yield from _read(client, reading.torn, is_retry=True)


def _read(client: KazooClient, names: Sequence[str], *, is_retry: bool) -> Iterator[TopicRows]:
    started = time.perf_counter()
    znodes = read_permitted(client, [f"{TOPICS}/{name}" for name in names], resume=True)
    configs = read_permitted(client, [f"{CONFIGS}/{name}" for name in names], resume=True)
    folders = [f"{TOPICS}/{name}/partitions" for name in names]
    children = children_of(client, folders, resume=True, permitted=True)
    read = time.perf_counter()
    topics = [
        _topic(*of_topic) for of_topic in zip(znodes, configs, children, strict=True) if of_topic[0].stat is not None
    ]
    yield TopicRows(read_seconds=read - started, decode_seconds=time.perf_counter() - read)
    for chunk in _chunks(topics):
        yield _read_states(client, chunk, is_retry=is_retry)


def _chunks(topics: Sequence[_Topic]) -> Iterator[list[_Topic]]:
    chunk: list[_Topic] = []
    size = 0
    for topic in topics:
        size += len(topic.assignment.partitions) + len(topic.unread)
        chunk.append(topic)
        if size >= PARTITIONS_PER_CHUNK:
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
            result.torn.append(topic.row["topic"])
            continue
        result.topics.append(topic.row)
        result.partitions += partitions
        result.quarantine += quarantine
    result.decode_seconds = time.perf_counter() - read
    return result


def _topic(znode: Znode, config: Znode, children: Sequence[str]) -> _Topic:
    """Decode a topic's own znodes; parts that cannot be decoded are quarantined, and the rest is kept."""
    name = znode.path.rsplit("/", 1)[1]
    topic = _Topic({"topic": name, "topic_version": znode.version, "czxid": znode.stat and znode.stat.czxid})
    settings, unread = ({}, []) if config.data is None else read_config(config.data)
    if unread:
        topic.quarantine.append(quarantined(config, "; ".join(unread)))
    reason = _read_assignment(topic, name, znode)
    if reason:
        topic.quarantine.append(quarantined(znode, reason))
    topic.row |= {
        "config": settings,
        "topic_id": topic.assignment.topic_id,
        "assignment_understood": not reason,
        "understood": not (reason or unread),
        "moves_understood": not topic.assignment.unread_moves,
    }
    assigned = {str(partition) for partition in (*topic.assignment.partitions, *topic.unread)}
    others = [child for child in children if child not in assigned]
    if topic.assignment is NO_ASSIGNMENT or any(part.number is None for part in topic.assignment.unread):
        numbers = {child for child in others if child.isdecimal() and str(int(child)) == child}
        topic.unread |= {number for number in map(int, numbers) if number <= _LARGEST_PARTITION}
        others = [child for child in others if child not in numbers]
    topic.orphans = others
    return topic


def _read_assignment(topic: _Topic, name: str, znode: Znode) -> str:
    """Decode a topic's assignment; return why some or all of it cannot be decoded, or an empty string."""
    try:
        check_topic_name(name)
        topic.assignment = read_assignment(znode.data)
    except MalformedZnodeError as error:
        return str(error)
    numbers = (part.number for part in topic.assignment.unread)
    topic.unread = frozenset(number for number in numbers if number is not None)
    return topic.assignment.reason


def _decode_states(topic: _Topic, states: Iterator[Znode]) -> tuple[list[Row], list[QuarantinedZnode], bool]:
    """Decode a topic's states, the next of `states`; return partitions, quarantine rows and whether it may be torn."""
    partitions, quarantine, torn = [], list(topic.quarantine), False
    for row in _assigned_partitions(topic):
        znode = next(states)
        try:
            torn |= _add_state(row, znode)
        except MalformedZnodeError as error:
            row |= {"understood": False, "controller_epoch": controller_epoch_of(znode.data)}
            quarantine.append(quarantined(znode, str(error)))
        partitions.append(row)
    for partition in topic.orphans:
        znode = next(states)
        if znode.stat is not None:
            torn = True
            reason = f"a state without a topic: {TOPICS}/{topic.row['topic']} assigns no partition {partition}"
            quarantine.append(quarantined(znode, reason))
    return partitions, quarantine, torn


def _assigned_partitions(topic: _Topic) -> Iterator[Row]:
    """Yield one row per partition without its state; an opaque partition has no known replicas."""
    assignment = topic.assignment
    topic_columns = {name: topic.row[name] for name in ("topic", "topic_version")}
    for partition, replicas in sorted((dict.fromkeys(topic.unread, _NO_BROKERS) | assignment.partitions).items()):
        yield {
            **topic_columns,
            "understood": bool(replicas) and not assignment.unread_moves,
            "partition": partition,
            "replicas": replicas,
            "adding_replicas": assignment.adding_replicas.get(partition, _NO_BROKERS),
            "removing_replicas": assignment.removing_replicas.get(partition, _NO_BROKERS),
        }


def _add_state(row: Row, znode: Znode) -> bool:
    """Add a state to its partition's row; return whether state and assignment may be of different moments."""
    if znode.stat is None:
        return True
    row["state_version"] = znode.version
    state = decode_state(znode.data)
    row["leader"] = state.leader
    row["isr"] = row["replicas"] if state.isr == row["replicas"] else state.isr  # one list, of a hundred thousand
    row["leader_epoch"] = state.leader_epoch
    row["controller_epoch"] = state.controller_epoch
    row["leader_recovery_state"] = state.leader_recovery_state
    replicas = row["replicas"]
    if not row["understood"] or (state.isr == replicas and state.leader in replicas):  # nearly all
        return False
    return bool({state.leader, *state.isr}.difference(replicas, (NO_LEADER,)))
