"""Reads from ZooKeeper what the rows of a plan depend on, for `jobs.preconditions`.

If an ACL forbids reading a znode, only the values that depend on it are unknown (`read_permitted`). Nothing here calls
`sync`: callers do, if the data must not be older than the call.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster_state import (
    CONFIGS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    PREFERRED_ELECTION,
    REASSIGN,
    TOPICS,
    broker_epochs,
    ignored_request,
    reassign_requests,
    registered_brokers,
    topics_to_delete,
)
from jobs.adapters.zookeeper.multi_read import read_many, read_permitted
from jobs.adapters.zookeeper.znode_reads import Znode, children
from schemas.current_state import (
    CurrentPartition,
    CurrentReassignments,
    CurrentState,
    CurrentTopic,
    Decoded,
    OperationState,
    Targets,
    TopicSettings,
)
from schemas.replica_assignment import is_being_reassigned, target
from schemas.rows import Change, Key, Operation
from schemas.znode_codecs import (
    FORBIDDEN,
    Assignment,
    MalformedZnodeError,
    State,
    TopicPartition,
    decode_config,
    decode_epoch,
    decode_state,
    read_assignment,
    read_partitions,
)
from schemas.znode_paths import state_path, topic_path

_SHARED: Final = (REASSIGN, PREFERRED_ELECTION, CONTROLLER_EPOCH)


def read_current(client: KazooClient, changes: Sequence[Change]) -> CurrentState:
    """Read what changes depend on: first requests, live brokers and deletions, then their topics and states."""
    requests = reassign_requests(client) or {}
    live, deleting = registered_brokers(client), frozenset(topics_to_delete(client))
    return CurrentState(partitions_now(client, [change.key for change in changes]), requests, live, deleting)


def partitions_now(client: KazooClient, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
    """Read the topics and states of these partitions in batches."""
    unique_keys = list(dict.fromkeys(keys))
    topics = sorted({topic for topic, _ in unique_keys})
    znodes = iter(read_permitted(client, [*map(topic_path, topics), *map(state_path, unique_keys)]))
    by_topic = {topic: current_topic(next(znodes)) for topic in topics}
    return {key: current_partition(by_topic[key[0]], key[1], next(znodes)) for key in unique_keys}


def current_topic(znode: Znode) -> CurrentTopic:
    """Decode a topic's znode."""
    if znode.stat is None:
        return CurrentTopic(znode.path, None, Decoded(None, "it does not exist"))
    return CurrentTopic(
        znode.path, znode.version, Decoded.of(read_assignment, znode.data), is_forbidden=znode.data is FORBIDDEN
    )


def current_partition(topic: CurrentTopic, number: int, znode: Znode) -> CurrentPartition:
    """Decode the znode of a partition's state."""
    absent: Decoded[State] = Decoded(None, "it does not exist")
    content = absent if znode.stat is None else Decoded.of(decode_state, znode.data)
    return CurrentPartition(topic, number, znode.path, znode.version, content)


def read_operations(client: KazooClient, operations: Sequence[Operation]) -> OperationState:
    """Read what operations depend on; raise UnreadableError if an ACL forbids reading a request or the epoch."""
    names = list(dict.fromkeys(operation.topic for operation in operations))
    shared = read_many(client, _SHARED)
    paths = [f"{root}/{name}" for name in names for root in (TOPICS, CONFIGS, DELETE_TOPICS)]
    znodes = iter(read_permitted(client, paths))
    topics = {name: topic_settings(next(znodes), next(znodes), next(znodes)) for name in names}
    return operation_state(topics, *shared)


def topic_settings(topic: Znode, config: Znode, deletion: Znode) -> TopicSettings:
    """Decode the znodes of an operation's topic."""
    overrides = Decoded.of(decode_config, config.data)
    return TopicSettings(current_topic(topic), overrides, config.version, deletion.stat is not None)


def operation_state(
    topics: dict[str, TopicSettings], reassign: Znode, election: Znode, controller_epoch: Znode
) -> OperationState:
    """Decode the znodes that operations on all topics depend on."""
    epoch = Decoded(0) if controller_epoch.stat is None else Decoded.of(decode_epoch, controller_epoch.data)
    return OperationState(topics, _requested(reassign), _requested(election), epoch)


def _requested(request: Znode) -> Decoded[list[TopicPartition]]:
    if request.stat is None:
        return Decoded([])
    return Decoded.of(lambda data: read_partitions(data)[0], request.data)


def read_reassignments(client: KazooClient, moving: Targets | None = None) -> CurrentReassignments:
    """Read all reassignments that run or are requested.

    `moving` has the reassignments that Kafka's controller lists. Without it they are read from the topics, where
    controllers since 2.4 write them.
    """
    not_understood: list[str] = []
    if moving is None:
        moving, not_understood = _moving_in_topics(client)
    requests = reassign_requests(client)
    keys = sorted({*moving, *(requests or {})})
    if not keys:
        return CurrentReassignments(moving, requests, {}, {}, frozenset(), None, not_understood)
    live, deleting = broker_epochs(client), frozenset(topics_to_delete(client))
    ignored = ignored_request(client) if requests else None
    return CurrentReassignments(moving, requests, partitions_now(client, keys), live, deleting, ignored, not_understood)


def moving_in_zookeeper(client: KazooClient) -> dict[Key, list[int]]:
    """Return the target of each partition that moves; topics that cannot be decoded are left out."""
    return _moving_in_topics(client)[0] | (reassign_requests(client) or {})


def _moving_in_topics(client: KazooClient) -> tuple[dict[Key, list[int]], list[str]]:
    """Targets of the partitions that move according to their topics, and the topics that cannot be decoded."""
    targets: dict[Key, list[int]] = {}
    not_understood = []
    for znode in read_permitted(client, [topic_path(name) for name in children(client, TOPICS) or []]):
        if znode.stat is None:
            continue
        try:
            assignment = read_assignment(znode.data)
        except MalformedZnodeError as error:
            not_understood.append(f"{znode.path} ({error})")
            continue
        targets |= _moving(znode.path.rsplit("/", 1)[1], assignment)
        if assignment.reason:
            not_understood.append(f"{znode.path} ({assignment.reason})")
    return targets, not_understood


def _moving(topic: str, assignment: Assignment) -> dict[Key, list[int]]:
    """Partitions of a topic that move, with their targets."""
    adding, removing = assignment.adding_replicas, assignment.removing_replicas
    return {
        (topic, number): target(assignment.partitions[number], removing.get(number, []))
        for number in sorted(adding.keys() | removing.keys())
        if is_being_reassigned(adding.get(number), removing.get(number))
    }
