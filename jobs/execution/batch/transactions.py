"""The ZooKeeper operations of each multi, computed from znodes that were read; each multi checks its preconditions.

A topic that is large or gets more partitions is written in a separate multi before its states. A crash in between
leaves a topic without some states: the next commit finds the topic as planned and continues, and so would Kafka's
controller, which treats it as a new topic (`onNewPartitionCreation`). Nothing here reads ZooKeeper: `required_reads`
names the znodes on which a creation depends, and the writer reads them once before. If a znode has changed since, the
multi is refused. The size of a multi in bytes is limited.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, CONFIGS, TOPICS
from jobs.adapters.zookeeper.controllership import check_absent, check_registered
from jobs.adapters.zookeeper.multi_operations import Check, Create, Op, SetData
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.execution.batch.topic_znode_content import TopicZnodes, with_assignments
from jobs.preconditions.change_preconditions import adds_partition, reassigns
from schemas.enums import NO_VERSION
from schemas.rows import Change
from schemas.znode_codecs import encode_state
from schemas.znode_paths import state_path, topic_path

MULTI_BYTES: Final = 1 << 19
"""Maximum bytes of a multi of states: half of jute.maxbuffer (1 MB), beyond which servers close the connection."""

TOPIC_MULTI_BYTES: Final = 1 << 17
"""Bytes of a topic above which it gets a separate multi."""

OPERATION_BYTES: Final = 60
"""Maximum bytes of an operation besides its path and data: header, lengths, ACL, version."""

_STATE_BYTES: Final = 160
"""Maximum bytes of a state without its ISR."""

_ISR_MEMBER_BYTES: Final = 12
"""Maximum bytes of a broker in an ISR."""

ZnodeReads = Mapping[str, Znode]
"""The znodes of `required_reads` as they were read, by path; a znode may be absent."""


def batches(
    changes: Sequence[Change], topics: TopicZnodes, chroot: str, max_changes: int, max_bytes: int = MULTI_BYTES
) -> Iterator[list[Change]]:
    """Split changes into batches of at most `max_changes` that each fit into a multi of `max_bytes`."""
    batch: list[Change] = []
    size, batch_topics = 0, set[str]()
    for change in changes:
        change_bytes = _row_bytes(change, chroot)
        topic_bytes = _shared_bytes(change.topic, topics, chroot)
        if batch and (
            len(batch) >= max_changes
            or size + change_bytes + topic_bytes * (change.topic not in batch_topics) > max_bytes
        ):
            yield batch
            batch, size, batch_topics = [], 0, set()
        size += change_bytes + topic_bytes * (change.topic not in batch_topics)
        batch_topics.add(change.topic)
        batch.append(change)
    if batch:
        yield batch


def _row_bytes(change: Change, chroot: str) -> int:
    """Maximum bytes of one change: its paths, the longest of them that of its state, a broker, and the state.

    An existing state is set and the version of its topic is checked. A new state can have two parents to create.
    """
    path = len(chroot) + len(state_path(change.key))
    paths = 3 if change.state_version == NO_VERSION or reassigns(change) else 2
    return paths * (path + OPERATION_BYTES) + OPERATION_BYTES + _STATE_BYTES + _ISR_MEMBER_BYTES * len(change.isr_after)


def _shared_bytes(topic: str, topics: TopicZnodes, chroot: str) -> int:
    """Bytes that a new topic adds to the multi of its first state: the topic, its config and its folder."""
    if topic not in topics.creations or _is_large(topic, topics):
        return 0
    path = len(f"{chroot}{TOPICS}/{topic}/partitions")
    return 3 * (path + OPERATION_BYTES) + sum(map(len, topics.created(topic)))


def _is_large(topic: str, topics: TopicZnodes) -> bool:
    return sum(map(len, topics.created(topic))) > TOPIC_MULTI_BYTES


def required_reads(changes: Sequence[Change]) -> list[str]:
    """Name the znodes that determine the operations of these changes.

    Changes of existing states that keep their assignment need none.
    """
    paths: list[str] = []
    for change in changes:
        topic = topic_path(change.topic)
        if change.state_version == NO_VERSION:
            paths += [topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions", _partition_path(change)]
        elif reassigns(change):
            paths.append(topic)
    return list(dict.fromkeys(paths))


def topics_needing_own_multi(changes: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads) -> list[str]:
    """Return the topics that must be written in a separate multi before the states of these changes."""
    extended = dict.fromkeys(change.topic for change in changes if adds_partition(change))
    created = dict.fromkeys(change.topic for change in changes if change.topic in topics.creations)
    growing = [topic for topic in extended if _lacks_partitions(topic, topics, znodes)]
    return growing + [name for name in created if _is_large(name, topics) and not znodes[f"{TOPICS}/{name}"].stat]


def _lacks_partitions(topic: str, topics: TopicZnodes, znodes: ZnodeReads) -> bool:
    znode = znodes[f"{TOPICS}/{topic}"]
    return znode.stat is not None and topics.grown(topic, znode.data) is not None


def topic_ops(topic: str, changes: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads) -> list[Op]:
    """Operations that create or extend one topic, with the preconditions of its changes."""
    topic_changes = [change for change in changes if change.topic == topic]
    if topic in topics.creations:
        return [*_precondition_checks(topic_changes), *_creation(topic, topics, znodes)]
    znode = znodes[f"{TOPICS}/{topic}"]
    data = topics.grown(topic, znode.data) or znode.data or b""
    return [*_precondition_checks(topic_changes), SetData(znode.path, data, topic_changes[0].topic_znode_version)]


def state_ops(changes: Sequence[Change], topics: TopicZnodes, znodes: ZnodeReads, controller_epoch: int) -> list[Op]:
    """Operations that write the states of these changes.

    Small topics that do not exist yet are created in the same multi.
    """
    ops = _precondition_checks(changes)
    reassigning = [change for change in changes if reassigns(change)]
    for change in {change.topic: change for change in reversed(changes)}.values():
        topic_changes = (
            [candidate for candidate in reassigning if candidate.topic == change.topic] if reassigning else []
        )
        ops += _assignment_write(topic_changes, znodes) if topic_changes else _topic_ops(change, topics, znodes)
    for change in changes:
        ops += _state_write(change, znodes, controller_epoch)
    return ops


def _precondition_checks(changes: Sequence[Change]) -> list[Op]:
    live = sorted({broker for change in changes for broker in required_brokers(change)})
    dead = sorted({broker for change in changes for broker in change.requires_dead})
    registered = [op for broker in live for op in check_registered(broker)]
    return registered + [op for broker in dead for op in check_absent(broker)]


def _topic_ops(change: Change, topics: TopicZnodes, znodes: ZnodeReads) -> Iterator[Op]:
    """Check a topic's version, or create the topic with all its partitions."""
    topic, path = change.topic, topic_path(change.topic)
    if adds_partition(change):
        yield Check(path, _grown_version(change, topics, znodes[path]))
    elif topic not in topics.creations:
        yield Check(path, change.topic_znode_version)
    elif znodes[path].stat or _is_large(topic, topics):
        yield Check(path, znodes[path].version or 0)
    else:
        yield from _creation(topic, topics, znodes)
    if change.state_version == NO_VERSION and not znodes[f"{path}/partitions"].stat:
        yield Create(f"{path}/partitions")


def _assignment_write(changes: Sequence[Change], znodes: ZnodeReads) -> Iterator[Op]:
    """Set a topic's znode to the reassignments of some partitions; all others keep their assignment."""
    path = topic_path(changes[0].topic)
    yield SetData(path, with_assignments(znodes[path].data, changes), changes[0].topic_znode_version)


def _grown_version(change: Change, topics: TopicZnodes, topic: Znode) -> int:
    """Return the topic version to check: the current one if the topic has the planned partitions, else as planned."""
    grown = topic.stat is None or topics.grown(change.topic, topic.data) is not None
    return int(change.topic_znode_version) if grown or topic.version is None else topic.version


def _creation(topic: str, topics: TopicZnodes, znodes: ZnodeReads) -> list[Op]:
    assignment, config = topics.created(topic)
    path = f"{CONFIGS}/{topic}"
    configured = SetData(path, config) if znodes[path].stat else Create(path, config)
    return [configured, Create(f"{TOPICS}/{topic}", assignment)]


def _state_write(change: Change, znodes: ZnodeReads, controller_epoch: int) -> Iterator[Op]:
    path, data = state_path(change.key), encode_state(change.state_after(controller_epoch))
    if change.state_version != NO_VERSION:
        yield SetData(path, data, change.state_znode_version)
        return
    if not znodes[_partition_path(change)].stat:
        yield Create(_partition_path(change))
    yield Create(path, data)


def _partition_path(change: Change) -> str:
    """The parent znode of a partition's state."""
    return state_path(change.key).rsplit("/", 1)[0]


def required_brokers(change: Change) -> set[int]:
    """Brokers that must be registered when a change is written."""
    leader = change.leader_after
    return set(change.requires_live) | ({leader} if leader >= 0 else set())


def touched_paths(change: Change) -> set[str]:
    """Znodes that this change writes or depends on, and that not every other change shares."""
    topic, state = topic_path(change.topic), state_path(change.key)
    own = {topic, f"{CONFIGS}/{change.topic}", f"{topic}/partitions", _partition_path(change), state}
    return own | {f"{BROKER_IDS}/{broker}" for broker in required_brokers(change) | set(change.requires_dead)}
