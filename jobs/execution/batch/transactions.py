"""What multis do for changes, from what was found and nothing else: each proves its premises, and is bounded in bytes.

A topic whose znode is large, or that grows, is written in a multi of its own, before those of its states. A crash in
between leaves a topic without some states: the next commit finds it as it planned it and goes on, and so would Kafka's
controller, to which such a topic is a new one (`onPartitionCreation`). Nothing here reads ZooKeeper: `required_reads`
names what a creation depends on, the writer reads it once before, and what has moved on since refuses the multi.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.adapters.zookeeper.cluster import BROKER_IDS, CONFIGS, TOPICS
from jobs.adapters.zookeeper.connection import Znode
from jobs.adapters.zookeeper.controllership import check_absent, check_registered
from jobs.adapters.zookeeper.multi import Check, Create, Op, SetData
from jobs.execution.batch.topic_znodes import TopicZnodes, with_assignments
from jobs.preconditions.changes import adds_partition, reassigns, state_path, topic_path
from schemas.enums import NO_VERSION
from schemas.rows import Change
from schemas.znodes import encode_state

MULTI_BYTES: Final = 1 << 19
"""What a multi of states does not exceed: half of jute.maxbuffer (1 MB), beyond which servers close the connection."""

TOPIC_MULTI_BYTES: Final = 1 << 17
"""Bytes of a topic that no longer shares a multi with states."""

_OPERATION_BYTES: Final = 60
"""Bytes of an operation around its path and data, at most: header, lengths, ACL, version."""

_STATE_BYTES: Final = 160
"""Bytes of a state without its ISR, at most."""

_ISR_MEMBER_BYTES: Final = 12
"""Bytes of a broker in an ISR, at most."""


@dataclass(frozen=True, slots=True)
class ZnodeReads:
    """The znodes of `required_reads` as they were read, there or not, by path."""

    znodes: Mapping[str, Znode]

    def __getitem__(self, path: str) -> Znode:
        return self.znodes[path]

    def has(self, path: str) -> bool:
        return self.znodes[path].stat is not None


def batches(changes: Sequence[Change], topics: TopicZnodes, chroot: str, max_changes: int) -> Iterator[list[Change]]:
    """Cut changes into what fits into a multi each, `most` of them at most."""
    batch: list[Change] = []
    size, counted = 0, set[str]()
    for change in changes:
        more = _row_bytes(change, chroot)
        topic = _shared_bytes(change.topic, topics, chroot)
        if batch and (len(batch) >= max_changes or size + more + topic * (change.topic not in counted) > MULTI_BYTES):
            yield batch
            batch, size, counted = [], 0, set()
        size += more + topic * (change.topic not in counted)
        counted.add(change.topic)
        batch.append(change)
    if batch:
        yield batch


def _row_bytes(change: Change, chroot: str) -> int:
    """At most three paths, the longest of them its state's, and the state."""
    path = len(chroot) + len(state_path(change))
    return 3 * (path + _OPERATION_BYTES) + _OPERATION_BYTES + _STATE_BYTES + _ISR_MEMBER_BYTES * len(change.isr_after)


def _shared_bytes(topic: str, topics: TopicZnodes, chroot: str) -> int:
    """What a topic to be created adds to the multi of its first state: itself, its configuration, its folder."""
    if topic not in topics.creations or _is_large(topic, topics):
        return 0
    path = len(f"{chroot}{TOPICS}/{topic}/partitions")
    return 3 * (path + _OPERATION_BYTES) + sum(map(len, topics.created(topic)))


def _is_large(topic: str, topics: TopicZnodes) -> bool:
    return sum(map(len, topics.created(topic))) > TOPIC_MULTI_BYTES


def required_reads(due: Sequence[Change]) -> list[str]:
    """Name the znodes that decide how these changes are made; none for states that are there, as they are assigned."""
    paths: list[str] = []
    for change in due:
        topic = topic_path(change)
        if change.state_version == NO_VERSION:
            paths += [topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions", _partition_path(change)]
        elif reassigns(change):
            paths.append(topic)
    return list(dict.fromkeys(paths))


def topics_needing_own_multi(due: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads) -> list[str]:
    """Name the topics that must be written in a multi of their own before the states of these changes."""
    grows = dict.fromkeys(change.topic for change in due if adds_partition(change))
    made = dict.fromkeys(change.topic for change in due if change.topic in topics.creations)
    growing = [topic for topic in grows if _lacks_partitions(topic, topics, znodes)]
    return growing + [name for name in made if _is_large(name, topics) and not znodes.has(f"{TOPICS}/{name}")]


def _lacks_partitions(topic: str, topics: TopicZnodes, znodes: ZnodeReads) -> bool:
    now = znodes[f"{TOPICS}/{topic}"]
    return now.stat is not None and topics.grown(topic, now.data) is not None


def topic_ops(topic: str, due: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads) -> list[Op]:
    """Make or grow one topic, if the premises of the changes due to it hold."""
    mine = [change for change in due if change.topic == topic]
    if topic in topics.creations:
        return [*_precondition_checks(mine), *_creation(topic, topics, znodes)]
    now = znodes[f"{TOPICS}/{topic}"]
    data = topics.grown(topic, now.data) or now.data or b""
    return [*_precondition_checks(mine), SetData(now.path, data, mine[0].topic_version)]


def state_ops(due: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads, controller_epoch: int) -> list[Op]:
    """Write the states of these changes, and make the small topics among theirs that are not there."""
    ops = _precondition_checks(due)
    moved = [change for change in due if reassigns(change)]
    for change in {change.topic: change for change in reversed(due)}.values():
        of_it = [each for each in moved if each.topic == change.topic] if moved else []
        ops += _assignment_write(of_it, znodes) if of_it else _topic_ops(change, topics, znodes)
    for change in due:
        ops += _state_write(change, znodes, controller_epoch)
    return ops


def _precondition_checks(due: Sequence[Change]) -> list[Op]:
    live = sorted({broker for change in due for broker in required_brokers(change)})
    dead = sorted({broker for change in due for broker in change.requires_dead})
    registered = [op for broker in live for op in check_registered(broker)]
    return registered + [op for broker in dead for op in check_absent(broker)]


def _topic_ops(change: Change, topics: TopicZnodes, znodes: ZnodeReads) -> Iterator[Op]:
    """Check a topic's version, or create it with all its partitions."""
    topic, path = change.topic, topic_path(change)
    if adds_partition(change):
        yield Check(path, _grown_version(change, topics, znodes[path]))
    elif topic not in topics.creations:
        yield Check(path, change.topic_version)
    elif znodes.has(path) or _is_large(topic, topics):
        yield Check(path, znodes[path].version or 0)
    else:
        yield from _creation(topic, topics, znodes)
    if change.state_version == NO_VERSION and not znodes.has(f"{path}/partitions"):
        yield Create(f"{path}/partitions")


def _assignment_write(moved: Sequence[Change], znodes: ZnodeReads) -> Iterator[Op]:
    """Set a topic to what the reassignments of some of its partitions make of it, all others as they are."""
    path = topic_path(moved[0])
    yield SetData(path, with_assignments(znodes[path].data, moved), moved[0].topic_version)


def _grown_version(change: Change, topics: TopicZnodes, topic: Znode) -> int:
    """The version of a topic that has the planned partitions; of one that has not, one it is not at any more."""
    grown = topic.stat is None or topics.grown(change.topic, topic.data) is not None
    return int(change.topic_version) if grown or topic.version is None else topic.version


def _creation(topic: str, topics: TopicZnodes, znodes: ZnodeReads) -> list[Op]:
    assignment, config = topics.created(topic)
    path = f"{CONFIGS}/{topic}"
    configured = SetData(path, config) if znodes.has(path) else Create(path, config)
    return [configured, Create(f"{TOPICS}/{topic}", assignment)]


def _state_write(change: Change, znodes: ZnodeReads, controller_epoch: int) -> Iterator[Op]:
    path, data = state_path(change), encode_state(change.state_after(controller_epoch))
    if change.state_version != NO_VERSION:
        yield SetData(path, data, change.state_version)
        return
    if not znodes.has(_partition_path(change)):
        yield Create(_partition_path(change))
    yield Create(path, data)


def _partition_path(change: Change) -> str:
    """The znode that holds a partition's state."""
    return state_path(change).rsplit("/", 1)[0]


def required_brokers(change: Change) -> set[int]:
    """Brokers that must be registered when a change is written."""
    leader = change.leader_after
    return set(change.requires_live) | ({leader} if leader >= 0 else set())


def touched_paths(change: Change) -> set[str]:
    """Znodes that only some changes touch or count on, this one among them."""
    topic, state = topic_path(change), state_path(change)
    own = {topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions", _partition_path(change), state}
    return own | {f"{BROKER_IDS}/{broker}" for broker in required_brokers(change) | set(change.requires_dead)}
