"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders.

Corresponds to `KafkaController.alterPartitionReassignments`, `listPartitionReassignments` and `electLeaders`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.adapters.zookeeper.cluster_state import PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.multi_operations import create_or_set
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.controller.admin_apis.requests import (
    CHANGED,
    MAX_ATTEMPTS,
    NO_TOPIC,
    OK,
    TIMED_OUT,
    AdminApiContext,
    AdminError,
    ApiError,
    error_fields,
    seconds_of,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from schemas import reasons
from schemas.enums import RequestKind
from schemas.partition_info import PartitionInfo
from schemas.replica_assignment import difference, is_broker_list
from schemas.rows import Key
from schemas.text import join_ids
from schemas.znode_codecs import MalformedZnodeError, TopicPartition, encode_partitions, read_partitions

ALTER_REASSIGNMENTS: Final = 45
LIST_REASSIGNMENTS: Final = 46
ELECT_LEADERS: Final = 43

_PREFERRED: Final = 0


def alter_reassignments(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Begin, replace or cancel reassignments, as /admin/reassign_partitions does; each partition has a result."""
    requested_targets = {
        (topic.name, partition.partition_index): None if partition.replicas is None else [*partition.replicas]
        for topic in request.topics
        for partition in topic.partitions
    }
    errors, targets = dict[Key, ApiError](), dict[Key, list[int]]()
    for key, replicas in requested_targets.items():
        refusal = _refusal(api_context, key, replicas)
        if refusal is None:
            targets[key] = _target(api_context.context.partitions[key], replicas)
        else:
            errors[key] = refusal
    if targets:
        errors |= _request(api_context, targets, seconds_of(request.timeout))
    topics = [
        response_entity(
            ALTER_REASSIGNMENTS,
            version,
            "ReassignableTopicResponse",
            name=topic.name,
            partitions=tuple(
                response_entity(
                    ALTER_REASSIGNMENTS,
                    version,
                    "ReassignablePartitionResponse",
                    partition_index=partition.partition_index,
                    **error_fields(errors[topic.name, partition.partition_index]),
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    name = "AlterPartitionReassignmentsResponse"
    return response_entity(ALTER_REASSIGNMENTS, version, name, responses=tuple(topics), **error_fields(OK))


def _refusal(api_context: AdminApiContext, key: Key, replicas: Sequence[int] | None) -> ApiError | None:
    if api_context.refusal is not None:
        return api_context.refusal
    row = api_context.context.partitions.get(key)
    if row is None or api_context.context.is_queued(key[0]):
        return NO_TOPIC
    if replicas is None:
        none = ApiError(AdminError.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of this partition is in progress")
        return None if row.is_being_reassigned or key in api_context.context.requested(RequestKind.REASSIGN) else none
    if not is_broker_list(replicas):
        return ApiError(
            AdminError.INVALID_REPLICA_ASSIGNMENT, f"[{join_ids(replicas)}]: expected broker ids without duplicates"
        )
    if dead := difference(replicas, {*api_context.context.live}):
        message = reasons.BROKERS_NOT_ALIVE.render(dead=dead) + f"; alive are {join_ids(api_context.context.live)}"
        return ApiError(AdminError.INVALID_REPLICA_ASSIGNMENT, message)
    return None


def _target(row: PartitionInfo, replicas: Sequence[int] | None) -> list[int]:
    """Return the requested replicas; for a cancellation those before the move."""
    return row.assignment.origin if replicas is None else [*replicas]


def _request(api_context: AdminApiContext, targets: Mapping[Key, list[int]], seconds: float) -> dict[Key, ApiError]:
    """Write the requests, and wait until the cycle has begun or refused each."""
    entries = [TopicPartition(topic, partition, replicas) for (topic, partition), replicas in targets.items()]
    refusal = _merge(api_context, REASSIGN, entries)
    if refusal is not None:
        return dict.fromkeys(targets, refusal)

    def is_begun(key: Key) -> bool:
        row = api_context.context.partitions.get(key)
        return row is None or status_towards(targets[key], row.assignment) is not ReassignmentStatus.DIVERGED

    def is_taken() -> bool:
        """Return whether each has begun, or is no longer requested."""
        waiting = [key for key in targets if not is_begun(key)]
        requested = api_context.context.requested(RequestKind.REASSIGN)
        if not waiting or any(key in requested for key in waiting):
            return not waiting
        # the context may not know them yet
        in_znode = {(entry.topic, entry.partition) for entry in _entries(read(api_context.control.client, REASSIGN))}
        return in_znode.isdisjoint(waiting)

    api_context.await_cycle(is_taken, seconds)
    waits = ApiError(AdminError.REQUEST_TIMED_OUT, "the request waits; `surveyor status` shows for what")
    return {key: OK if is_begun(key) else waits for key in targets}


def _entries(znode: Znode) -> list[TopicPartition]:
    """Return the entries of a request znode; one that cannot be decoded has none, and the controller withdraws it."""
    try:
        return read_partitions(znode.data)[0] if znode.data else []
    except MalformedZnodeError:
        return []


def _merge(api_context: AdminApiContext, path: str, entries: Collection[TopicPartition]) -> ApiError | None:
    """Add entries to a request znode, in place of those for the same partitions; return why not, None if written."""
    added = {(entry.topic, entry.partition) for entry in entries}
    for _ in range(MAX_ATTEMPTS):
        znode = read(api_context.control.client, path)
        present = [entry for entry in _entries(znode) if (entry.topic, entry.partition) not in added]
        data = encode_partitions([*present, *entries])
        op = create_or_set(path, data, znode.version)
        refusal = api_context.write([op])
        if refusal != CHANGED:
            return refusal
    return CHANGED


def list_reassignments(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """List the partitions whose replicas are being added or removed."""
    if api_context.refusal is not None:
        return response_entity(
            LIST_REASSIGNMENTS,
            version,
            "ListPartitionReassignmentsResponse",
            topics=(),
            **error_fields(api_context.refusal),
        )
    moving = [api_context.context.partitions.get(key) for key in sorted(api_context.context.moving.copy())]
    rows = [row for row in moving if row is not None]
    if request.topics is not None:
        keys = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
        rows = [row for row in rows if row.key in keys]
    by_topic = defaultdict[str, list[ApiMessage]](list)
    for row in rows:
        by_topic[row.topic].append(
            response_entity(
                LIST_REASSIGNMENTS,
                version,
                "OngoingPartitionReassignment",
                partition_index=row.partition,
                replicas=tuple(row.replicas),
                adding_replicas=tuple(row.adding_replicas),
                removing_replicas=tuple(row.removing_replicas),
            )
        )
    topics = [
        response_entity(
            LIST_REASSIGNMENTS, version, "OngoingTopicReassignment", name=name, partitions=tuple(partitions)
        )
        for name, partitions in by_topic.items()
    ]
    name = "ListPartitionReassignmentsResponse"
    return response_entity(LIST_REASSIGNMENTS, version, name, topics=tuple(topics), **error_fields(OK))


def elect_leaders(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Elect preferred replicas; an unclean election is left to a plan with its evidence."""
    is_preferred = getattr(request, "election_type", _PREFERRED) == _PREFERRED
    requested_topics = request.topic_partitions
    if requested_topics is None and api_context.refusal is not None:  # as in Kafka, the response has no partition
        return _elections(version, {}, api_context.refusal)
    keys: Iterable[Key] = (
        [*api_context.context.partitions.copy()]
        if requested_topics is None
        else [(requested.topic, number) for requested in requested_topics for number in requested.partitions]
    )
    check = _preferred_refusal if is_preferred else _unclean_refusal
    errors = dict[Key, ApiError]()
    due = list[Key]()
    for key in keys:
        refusal = api_context.refusal or check(
            api_context.context.partitions.get(key), api_context.context.is_queued(key[0])
        )
        if refusal is None:
            due.append(key)
        else:
            errors[key] = refusal
    if due:
        errors |= _elect(api_context, due, seconds_of(request.timeout))
    if requested_topics is None:  # as Kafka does, only those have a result for which something was to be done
        errors = {key: error for key, error in errors.items() if error.error is not AdminError.ELECTION_NOT_NEEDED}
    return _elections(version, errors)


def _elections(version: int, errors: Mapping[Key, ApiError], error_of_all: ApiError = OK) -> ApiMessage:
    """Return the response to ElectLeaders; in version 0 it has errors of partitions only."""
    by_topic = defaultdict[str, list[ApiMessage]](list)
    for (topic, partition), error in sorted(errors.items()):
        fields = error_fields(error)
        by_topic[topic].append(
            response_entity(ELECT_LEADERS, version, "PartitionResult", partition_id=partition, **fields)
        )
    results = [
        response_entity(ELECT_LEADERS, version, "ReplicaElectionResult", topic=name, partition_result=tuple(partitions))
        for name, partitions in by_topic.items()
    ]
    name, fields = "ElectLeadersResponse", error_fields(error_of_all)
    return response_entity(ELECT_LEADERS, version, name, replica_election_results=tuple(results), **fields)


def _preferred_refusal(row: PartitionInfo | None, is_queued: bool) -> ApiError | None:  # noqa: FBT001
    if row is None or is_queued or not row.replicas:
        return NO_TOPIC
    is_led = row.leader == row.replicas[0]
    return ApiError(AdminError.ELECTION_NOT_NEEDED, "Leader election not needed.") if is_led else None


def _unclean_refusal(row: PartitionInfo | None, is_queued: bool) -> ApiError | None:  # noqa: FBT001
    if row is None or is_queued:
        return NO_TOPIC
    if row.leader is not None and row.leader >= 0:
        return ApiError(AdminError.ELECTION_NOT_NEEDED, "it has a leader")
    return ApiError(
        AdminError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "an unclean election may lose acknowledged records: `surveyor plan recover` shows the evidence first",
    )


def _elect(api_context: AdminApiContext, due: Sequence[Key], seconds: float) -> dict[Key, ApiError]:
    """Request the elections, and wait until the cycle has made a pass over all of them."""
    refusal = _merge(api_context, PREFERRED_ELECTION, [TopicPartition(*key) for key in due])
    if refusal is not None:
        return dict.fromkeys(due, refusal)

    def is_led(key: Key) -> bool:
        row = api_context.context.partitions.get(key)
        return row is None or row.leader == row.replicas[0]

    was_made: Callable[[], bool] = lambda: all(map(is_led, due)) or not _is_election_requested(api_context)  # noqa: E731
    if not api_context.await_cycle(was_made, seconds):
        return {key: OK if is_led(key) else TIMED_OUT for key in due}
    unavailable = ApiError(
        AdminError.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is not live or not in sync"
    )
    return {key: OK if is_led(key) else unavailable for key in due}


def _is_election_requested(api_context: AdminApiContext) -> bool:
    return read(api_context.control.client, PREFERRED_ELECTION).version is not None
