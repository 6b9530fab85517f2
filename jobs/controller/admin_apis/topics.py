"""CreateTopics, CreatePartitions and DeleteTopics.

Corresponds to `ZkAdminManager.createTopics`, `createPartitions` and `deleteTopics`.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from jobs.adapters.brokers.control_encoding import as_uuid, topic_id_text
from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.adapters.zookeeper.cluster_state import CONFIGS, DELETE_TOPICS
from jobs.adapters.zookeeper.multi_operations import Create, SetData, create_or_set
from jobs.adapters.zookeeper.znode_reads import read
from jobs.controller.admin_apis.requests import (
    CHANGED,
    NO_TOPIC,
    OK,
    TIMED_OUT,
    AdminApiContext,
    AdminError,
    ApiError,
    RefusedRequestError,
    error_fields,
    seconds_of,
)
from jobs.controller.failover_znodes import random_topic_id, uses_topic_ids
from planner.rules.replica_placement import place_replicas, start_of_round
from schemas import reasons
from schemas.broker_config_names import CREATE_POLICY
from schemas.internal_topics import METADATA_TOPIC
from schemas.replica_assignment import is_being_reassigned
from schemas.rows import Key
from schemas.text import join_ids
from schemas.topic_configs import DELETION_ENABLED, boolean, config_name_faults, conflicts, value_faults
from schemas.znode_codecs import (
    Assignment,
    MalformedZnodeError,
    check_topic_name,
    decode_assignment,
    encode_assignment,
    encode_config,
    metric_name,
)
from schemas.znode_paths import topic_path

CREATE_TOPICS: Final = 19
CREATE_PARTITIONS: Final = 37
DELETE_TOPICS_API: Final = 20

MAX_NEW_PARTITIONS: Final = 100_000
"""Maximum number of partitions that a request adds; their replicas are placed before they are found to be too many.

KRaft limits a request likewise (`ReplicationControlManager.validateTotalNumberOfPartitions`), to 10,000.
"""

_DEFAULT: Final = -1
"""Number of partitions, or replication factor, of a request that leaves it to the brokers' settings."""

_IDS_SINCE: Final = 6
"""First version of DeleteTopics that may name topics by their ids."""


def create_topics(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Create topics; the response waits until each partition has a leader."""
    counts, remaining_partitions = Counter(topic.name for topic in request.topics), MAX_NEW_PARTITIONS
    made, errors = dict[str, Assignment](), dict[str, ApiError]()
    for topic in request.topics:
        try:
            _refuse_repeated(topic.name, counts[topic.name])
            made[topic.name] = _create(
                api_context, topic, remaining_partitions, is_dry=getattr(request, "validate_only", False)
            )
            remaining_partitions -= len(made[topic.name].partitions)
            errors[topic.name] = OK
        except RefusedRequestError as error:
            errors[topic.name] = error.api_error
    if not getattr(request, "validate_only", False):
        keys = [(name, number) for name, assignment in made.items() for number in assignment.partitions]
        seconds = seconds_of(request.timeout)
        if not api_context.await_cycle(lambda: all(_has_leader(api_context, key) for key in keys), seconds):
            late = {name for name, _ in (key for key in keys if not _has_leader(api_context, key))}
            errors |= dict.fromkeys(late, TIMED_OUT)
    results = [
        _creation_result(version, name, errors[name], made.get(name))
        for name in dict.fromkeys(t.name for t in request.topics)
    ]
    return response_entity(CREATE_TOPICS, version, "CreateTopicsResponse", topics=tuple(results))


def _refuse_repeated(name: str, count: int) -> None:
    if count > 1:
        raise RefusedRequestError(AdminError.INVALID_REQUEST, f"{name} is named {count} times")


def _creation_result(version: int, name: str, error: ApiError, made: Assignment | None) -> ApiMessage:
    shape = (
        {}
        if made is None
        else {"num_partitions": len(made.partitions), "replication_factor": len(made.partitions[min(made.partitions)])}
    )
    is_created = error.error is AdminError.NONE and made is not None
    return response_entity(
        CREATE_TOPICS,
        version,
        "CreatableTopicResult",
        name=name,
        topic_id=None if made is None else as_uuid(made.topic_id),
        topic_config_error_code=0,
        configs=() if is_created else None,
        **shape,
        **error_fields(error),
    )


def _has_leader(api_context: AdminApiContext, key: Key) -> bool:
    row = api_context.context.partitions.get(key)
    return row is not None and row.leader is not None


def _create(api_context: AdminApiContext, topic: ApiMessage, remaining_partitions: int, *, is_dry: bool) -> Assignment:
    """Check a topic and write it; raise RefusedRequestError with Kafka's error for what is wrong with it.

    `remaining_partitions`: the number of partitions that the request may still add.
    """
    api_context.refuse_client()
    _refuse_name(api_context, topic.name)
    policy = api_context.config(CREATE_POLICY, "")
    if policy:
        raise RefusedRequestError(
            AdminError.POLICY_VIOLATION,
            f"{CREATE_POLICY} is {policy}, which only brokers can ask: use `surveyor plan assign`",
        )
    config = {config.name: config.value for config in topic.configs}
    _refuse_config(config)
    partitions = (
        _explicit(api_context, topic) if topic.assignments else _placed(api_context, topic, remaining_partitions)
    )
    assignment = Assignment(partitions, {}, {}, random_topic_id() if uses_topic_ids(api_context.protocol()) else None)
    written = {name: value for name, value in config.items() if value is not None}
    path = f"{CONFIGS}/{topic.name}"
    znode = read(api_context.control.client, path)
    data = encode_config(written)
    setting = create_or_set(path, data, znode.version)
    if is_dry:
        return assignment
    refusal = api_context.write([setting, Create(topic_path(topic.name), encode_assignment(assignment))])
    if refusal is not None:
        raise RefusedRequestError(*refusal)
    return assignment


def _refuse_name(api_context: AdminApiContext, name: str) -> None:
    try:
        check_topic_name(name)
    except ValueError as error:
        raise RefusedRequestError(AdminError.INVALID_TOPIC, str(error)) from None
    if name == METADATA_TOPIC:
        raise RefusedRequestError(AdminError.TOPIC_AUTHORIZATION_FAILED, f"{name} is KRaft's own log")
    if name in api_context.context.topics:
        queued = " and is queued for deletion" if api_context.context.is_queued(name) else ""
        raise RefusedRequestError(AdminError.TOPIC_ALREADY_EXISTS, f"topic {name} exists{queued}")
    metric = metric_name(name)
    alike = [other for other in [*api_context.context.topics] if metric_name(other) == metric]
    if alike:
        raise RefusedRequestError(
            AdminError.INVALID_TOPIC, f"topic {name} collides with {alike[0]}: '.' and '_' are one in metric names"
        )


def _refuse_config(config: Mapping[str, str | None]) -> None:
    values = {name: value for name, value in config.items() if value is not None}
    nulls = [f"{name}: null is not allowed" for name, value in config.items() if value is None]
    faults = [*nulls, *config_name_faults(config), *value_faults(values), *conflicts(values)]
    if faults:
        raise RefusedRequestError(AdminError.INVALID_CONFIG, "; ".join(faults))


def _placed(api_context: AdminApiContext, topic: ApiMessage, remaining_partitions: int) -> dict[int, list[int]]:
    """Place the replicas of a new topic as brokers do, from a random start."""
    count = topic.num_partitions
    count = int(api_context.config("num.partitions", "1")) if count == _DEFAULT else count
    factor = topic.replication_factor
    factor = int(api_context.config("default.replication.factor", "1")) if factor == _DEFAULT else factor
    if count <= 0:
        raise RefusedRequestError(AdminError.INVALID_PARTITIONS, f"{count} partitions: at least 1 is needed")
    _refuse_too_many(count, remaining_partitions)
    racks = _racks(api_context)
    _refuse_factor(factor, racks)
    start, shift = random.randrange(len(racks)), random.randrange(len(racks))  # noqa: S311 - to spread, not to hide
    return place_replicas(racks, range(count), factor, start_index=start, shift=shift)


def _refuse_too_many(count: int, remaining_partitions: int) -> None:
    if count > remaining_partitions:
        message = (
            f"{count} partitions: a request may add {MAX_NEW_PARTITIONS} partitions in total; "
            f"{remaining_partitions} remain"
        )
        raise RefusedRequestError(AdminError.POLICY_VIOLATION, message)


def _racks(api_context: AdminApiContext) -> dict[int, str | None]:
    return {broker: api_context.context.brokers[broker].rack for broker in api_context.context.live}


def _refuse_factor(factor: int, racks: Collection[int]) -> None:
    if not 0 < factor <= len(racks):
        message = f"replication factor {factor}: {len(racks)} brokers are live"
        raise RefusedRequestError(AdminError.INVALID_REPLICATION_FACTOR, message)


def _explicit(api_context: AdminApiContext, topic: ApiMessage) -> dict[int, list[int]]:
    """Return the replicas that a request lists; Kafka wants partitions from 0 on, of equal replication factor."""
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise RefusedRequestError(
            AdminError.INVALID_REQUEST,
            "give either assignments, or the number of partitions and the replication factor",
        )
    partitions = {assignment.partition_index: [*assignment.broker_ids] for assignment in topic.assignments}
    if sorted(partitions) != [*range(len(topic.assignments))]:
        message = f"partitions [{join_ids(sorted(partitions))}]: expected each from 0 on, once"
        raise RefusedRequestError(AdminError.INVALID_REPLICA_ASSIGNMENT, message)
    _refuse_replicas(api_context, partitions.values(), len(partitions[0]))
    return partitions


def _refuse_replicas(api_context: AdminApiContext, lists: Collection[Sequence[int]], factor: int) -> None:
    live = {*api_context.context.live}
    for replicas in lists:
        if not replicas or len({*replicas}) < len(replicas) or len(replicas) != factor:
            message = f"[{join_ids(replicas)}]: expected {factor} broker ids without duplicates"
            raise RefusedRequestError(AdminError.INVALID_REPLICA_ASSIGNMENT, message)
        if dead := sorted({*replicas} - live):
            raise RefusedRequestError(
                AdminError.INVALID_REPLICA_ASSIGNMENT, reasons.BROKERS_NOT_ALIVE.render(dead=dead)
            )


def create_partitions(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Add partitions to topics; the response waits until each has a leader."""
    errors, added, remaining_partitions = dict[str, ApiError](), list[Key](), MAX_NEW_PARTITIONS
    for topic in request.topics:
        try:
            new = _extend(api_context, topic, remaining_partitions, is_dry=request.validate_only)
            added, remaining_partitions = added + new, remaining_partitions - len(new)
            errors[topic.name] = OK
        except RefusedRequestError as error:
            errors[topic.name] = error.api_error
    if not request.validate_only and not api_context.await_cycle(
        lambda: all(_has_leader(api_context, key) for key in added), seconds_of(request.timeout)
    ):
        errors |= {name: TIMED_OUT for name, number in added if not _has_leader(api_context, (name, number))}
    results = [
        response_entity(CREATE_PARTITIONS, version, "CreatePartitionsTopicResult", name=name, **error_fields(error))
        for name, error in errors.items()
    ]
    return response_entity(CREATE_PARTITIONS, version, "CreatePartitionsResponse", results=tuple(results))


def _extend(api_context: AdminApiContext, topic: ApiMessage, remaining_partitions: int, *, is_dry: bool) -> list[Key]:
    """Check the new partitions of a topic and write them unless `is_dry`; return them.

    `remaining_partitions` is as for `_create`.
    """
    api_context.refuse_client()
    name, count = topic.name, topic.count
    if name not in api_context.context.topics or api_context.context.is_queued(name):
        raise RefusedRequestError(*NO_TOPIC)
    znode = read(api_context.control.client, topic_path(name))
    try:
        assignment = decode_assignment(znode.data)
    except MalformedZnodeError as error:
        raise RefusedRequestError(
            AdminError.POLICY_VIOLATION, f"{topic_path(name)} cannot be decoded: {error}"
        ) from None
    present = assignment.partitions
    if is_being_reassigned(assignment.adding_replicas, assignment.removing_replicas):
        raise RefusedRequestError(
            AdminError.REASSIGNMENT_IN_PROGRESS,
            f"partitions of {name} are being reassigned; wait until that is complete",
        )
    if count <= len(present):
        raise RefusedRequestError(AdminError.INVALID_PARTITIONS, f"{name} has {len(present)} partitions already")
    _refuse_too_many(count - len(present), remaining_partitions)
    new = range(len(present), count)
    factor = len(present[0])
    if topic.assignments is None:
        racks = _racks(api_context)
        _refuse_factor(factor, racks)
        start = start_of_round(sorted(racks), present[0][0])
        placed = place_replicas(racks, new, factor, start_index=start, shift=start)
    else:
        lists = [[*assignment.broker_ids] for assignment in topic.assignments]
        if len(lists) != len(new):
            message = f"{len(lists)} assignments for {len(new)} new partitions"
            raise RefusedRequestError(AdminError.INVALID_REPLICA_ASSIGNMENT, message)
        _refuse_replicas(api_context, lists, factor)
        placed = dict(zip(new, lists, strict=True))
    if is_dry:
        return [(name, number) for number in new]
    data = encode_assignment(replace(assignment, partitions=present | placed))
    refusal = api_context.write([SetData(topic_path(name), data, znode.version or 0)])
    if refusal is not None:
        raise RefusedRequestError(*refusal)
    return [(name, number) for number in new]


def delete_topics(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Queue topics for deletion; the response waits until they are deleted."""
    deletions = _deletions(api_context, version, request)
    errors = dict[int, ApiError]()
    for number, (name, _) in enumerate(deletions):
        unknown = ApiError(AdminError.UNKNOWN_TOPIC_ID) if name is None else None
        errors[number] = api_context.refusal or unknown or _queue(api_context, str(name))
    due = {name for number, (name, _) in enumerate(deletions) if name is not None and errors[number] == OK}
    is_done: Callable[[], bool] = lambda: due.isdisjoint(api_context.context.topics)  # noqa: E731
    if due and not api_context.await_cycle(is_done, seconds_of(request.timeout)):
        remaining_topics = due & api_context.context.topics.keys()
        errors |= {number: TIMED_OUT for number, (name, _) in enumerate(deletions) if name in remaining_topics}
    results = [
        response_entity(
            DELETE_TOPICS_API,
            version,
            "DeletableTopicResult",
            name=name,
            topic_id=topic_id,
            **error_fields(errors[number]),
        )
        for number, (name, topic_id) in enumerate(deletions)
    ]
    return response_entity(DELETE_TOPICS_API, version, "DeleteTopicsResponse", responses=tuple(results))


def _deletions(api_context: AdminApiContext, version: int, request: ApiMessage) -> list[tuple[str | None, object]]:
    """Return the names of the topics with the ids that were given.

    A name is None if there is no topic of that id, or if the client is refused and must not learn the name.
    """
    if version < _IDS_SINCE:
        return [(name, None) for name in request.topic_names]
    name_of: Callable[[str], str | None] = (
        api_context.context.topic_of_id if api_context.refusal is None else lambda _: None
    )
    return [
        (topic.name, None) if topic.name is not None else (name_of(topic_id_text(topic.topic_id)), topic.topic_id)
        for topic in request.topics
    ]


def _queue(api_context: AdminApiContext, name: str) -> ApiError:
    if name not in api_context.context.topics:
        return NO_TOPIC
    if boolean(api_context.config(DELETION_ENABLED, "true")) is False:
        return ApiError(AdminError.TOPIC_DELETION_DISABLED, reasons.DELETION_DISABLED.render())
    path = f"{DELETE_TOPICS}/{name}"
    if read(api_context.control.client, path).version is not None:
        return OK
    refused = api_context.control.commit([Create(path)])
    return OK if refused is None or read(api_context.control.client, path).version is not None else CHANGED
