"""Reads from brokers of a KRaft cluster what the rows of a plan depend on, for `jobs.preconditions`.

Brokers report no versions, so topics and partitions have none. An undecodable value keeps its reason, and only its
dependents are unknown. This module does not ensure that a broker has caught up with the quorum; `fresh_reads` does.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.adapters.kraft.cluster import Reassignments, refused
from jobs.adapters.kraft.session import BrokerSession
from jobs.adapters.kraft.topics import (
    TOPIC_OVERRIDE,
    UNKNOWN_TOPIC,
    KRaftTopic,
    permitted_moves,
    read_named_partitions,
    read_named_topics,
)
from schemas.current_state import (
    CurrentPartition,
    CurrentReassignments,
    CurrentTopic,
    Decoded,
    LeaderAndIsr,
    OperationState,
    TopicSettings,
)
from schemas.partition_info import PartitionInfo
from schemas.response_codes import NO_ERROR
from schemas.rows import Key, Operation
from schemas.znode_codecs import Assignment, UnreadPartition

NOT_READ: Final = "it changed while it was read, or its reassignment is not listed"


def read_partitions(session: BrokerSession, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
    """Read the topics and states of these partitions; the topics have an assignment for these partitions only."""
    unique = list(dict.fromkeys(keys))
    return _partitions(unique, read_named_partitions(session, unique))


def read_operations(session: BrokerSession, operations: Sequence[Operation]) -> OperationState:
    """Read what operations depend on: topics and their configs. KRaft stores no requests."""
    names = list(dict.fromkeys(operation.topic for operation in operations))
    topics = read_named_topics(session, names)
    return OperationState(
        {name: _settings(name, topics.get(name)) for name in names},
        Decoded([]),
        Decoded([]),
        Decoded(None, "a KRaft cluster has no controller epoch of ZooKeeper"),
    )


def read_reassignments(session: BrokerSession, live: Collection[int]) -> CurrentReassignments:
    """Read all running reassignments, and their partitions."""
    moves = permitted_moves(session)
    not_understood = ["running reassignments (they are not listed)"] if moves is None else []
    running: Reassignments = moves or {}
    targets = {key: move.target for key, move in running.items()}
    partitions = read_partitions(session, running) if running else {}
    return CurrentReassignments(targets, {}, partitions, dict.fromkeys(live), frozenset(), None, not_understood)


def read_topic_overrides(session: BrokerSession, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
    """Read the overrides of topics, None for one that does not exist; raise RefusedReadError if not permitted."""
    overrides: dict[str, dict[str, str] | None] = {}
    if not topics:
        return overrides
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.TOPIC, name, None) for name in topics])
    for result in session.ask(request).results:
        if result.error_code == UNKNOWN_TOPIC:
            overrides[result.resource_name] = None
        elif result.error_code != NO_ERROR:
            raise refused(result.error_code, "topic", "DESCRIBE_CONFIGS")
        else:
            rows = (row for row in result.configs if row.config_source == TOPIC_OVERRIDE and row.value is not None)
            overrides[result.resource_name] = {row.name: row.value for row in rows}
    return overrides


def _partitions(keys: Sequence[Key], topics: Mapping[str, KRaftTopic]) -> dict[Key, CurrentPartition]:
    current = {name: _topic(name, topics.get(name)) for name in {topic for topic, _ in keys}}
    rows = {(row.topic, row.partition): row for topic in topics.values() for row in topic.partitions}
    return {key: _partition(current[key[0]], key[1], rows.get(key)) for key in keys}


def _topic(name: str, topic: KRaftTopic | None) -> CurrentTopic:
    path = f"topic {name}"
    if topic is None:
        return CurrentTopic(path, None, Decoded(None, "it does not exist"))
    if topic.fault is not None:
        return CurrentTopic(path, None, Decoded(None, topic.fault), is_unversioned=True)
    understood = [row for row in topic.partitions if row.understood]
    unread = (row.partition for row in topic.partitions if not row.understood)
    assignment = Assignment(
        {row.partition: list(row.replicas) for row in understood},
        {row.partition: list(row.adding_replicas) for row in understood if row.adding_replicas},
        {row.partition: list(row.removing_replicas) for row in understood if row.removing_replicas},
        topic.topic_id,
        unread=tuple(UnreadPartition(str(number), NOT_READ, {"partitions": b""}) for number in unread),
    )
    return CurrentTopic(path, None, Decoded(assignment), is_unversioned=True)


def _partition(topic: CurrentTopic, number: int, row: PartitionInfo | None) -> CurrentPartition:
    path = f"{topic.path.removeprefix('topic ')}-{number}"
    if row is None or not row.understood or row.leader is None:
        unknown: Decoded[LeaderAndIsr] = Decoded(None, "it does not exist" if row is None else NOT_READ)
        return CurrentPartition(topic, number, path, None, unknown)
    state = LeaderAndIsr(row.leader, row.leader_epoch, list(row.isr or ()))
    lists = (row.eligible_leader_replicas, row.last_known_elr)
    eligible, last_known = (None if brokers is None else list(brokers) for brokers in lists)
    return CurrentPartition(topic, number, path, None, Decoded(state), eligible, last_known)


def _settings(name: str, topic: KRaftTopic | None) -> TopicSettings:
    no_overrides: dict[str, str] = {}
    if topic is None:
        return TopicSettings(_topic(name, None), Decoded(no_overrides), None, is_queued=False)
    config: Decoded[dict[str, str]] = Decoded(None, "its configs need the permission DESCRIBE_CONFIGS on the topic")
    if topic.config is not None:
        config = Decoded({key: value for key, value in topic.config.items() if value is not None})
    return TopicSettings(_topic(name, topic), config, None, is_queued=False)
