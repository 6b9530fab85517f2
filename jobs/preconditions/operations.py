"""Whether a topic's config may still be altered, or the topic deleted: compare it with what was planned from.

The counterpart of `jobs.preconditions.changes` for operations without a partition; the same in both modes. An operation
is already applied if the cluster is as the operation leaves it, so a commit after a crash finds out by reading. It is
stale if the topic is another one, or if another client has altered the same configs since.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from jobs.repositories.plans.commit_log import RowOutcome
from schemas.current_state import Decoded, OperationState, TopicSettings
from schemas.enums import OperationKind, Outcome
from schemas.rows import Operation
from schemas.text import other_topic
from schemas.topic_configs import conflicts
from schemas.znodes import MalformedZnodeError, TopicPartition

_Judged = tuple[Outcome, str] | None


def judge_operations(
    operations: Sequence[Operation], current: OperationState
) -> tuple[list[Operation], list[RowOutcome]]:
    """Return the pending operations, and the outcomes of the others."""
    judged = [(operation, verdict_on(operation, current)) for operation in operations]
    pending = [operation for operation, verdict in judged if verdict is None]
    return pending, [verdict for _, verdict in judged if verdict is not None]


def verdict_on(operation: Operation, current: OperationState) -> RowOutcome | None:
    """Judge one operation; None if it is pending."""
    data, settings = json.loads(operation.data), current.topics[operation.topic]
    try:
        judged = _judge(operation, data, settings, current)
    except MalformedZnodeError as error:
        judged = Outcome.STALE, f"topic {operation.topic} is not understood: {error}"
    return None if judged is None else RowOutcome(operation, *judged)


def _judge(operation: Operation, data: Mapping[str, Any], settings: TopicSettings, current: OperationState) -> _Judged:
    match OperationKind(operation.action):
        case OperationKind.WITHDRAW_REASSIGNMENT:
            return _reassignments(data, operation.topic, current.reassignments)
        case OperationKind.WITHDRAW_ELECTION:
            return _elections(data, operation.topic, current.elections)
        case OperationKind.REMOVE_TOPIC:
            return _removal(data, settings, current.controller_epoch)
        case kind:
            return _JUDGES_OF_TOPIC[kind](data, settings)


def _alteration(data: Mapping[str, Any], settings: TopicSettings) -> _Judged:
    if not settings.topic.exists:
        return Outcome.STALE, "the topic is gone"
    if (other := _other_topic(data, settings)) is not None:
        return Outcome.STALE, other
    if settings.is_queued:
        return Outcome.STALE, "the topic is queued for deletion"
    overrides = settings.config.get()
    values = {name: overrides.get(name) for name in data["after"]}
    if values == data["after"]:
        return Outcome.APPLIED, "found applied"
    moved = [name for name, value in values.items() if value != data["before"][name]]
    if moved:
        value = "not set" if values[moved[0]] is None else values[moved[0]]
        return Outcome.STALE, f"{moved[0]} is now {value}: another client altered it since the snapshot"
    merged = overrides | data["after"]
    conflict = next(conflicts({name: value for name, value in merged.items() if value is not None}), None)
    return (
        None
        if conflict is None
        else (Outcome.STALE, f"{conflict}: another client altered one of them since the snapshot")
    )


def _deletion(data: Mapping[str, Any], settings: TopicSettings) -> _Judged:
    if not settings.topic.exists:
        return Outcome.APPLIED, "found gone"
    if (other := _other_topic(data, settings)) is not None:
        return Outcome.STALE, f"{other}; this one is not the one planned to go"
    return (Outcome.APPLIED, "found queued for deletion") if settings.is_queued else None


def _reassignments(data: Mapping[str, Any], topic: str, requests: Decoded[list[TopicPartition]]) -> _Judged:
    requested = _requested_replicas(topic, requests)
    same = [p for p, replicas in data["orders"].items() if requested.get(int(p)) == replicas]
    return None if same else (Outcome.APPLIED, "found withdrawn")


def _elections(data: Mapping[str, Any], topic: str, requests: Decoded[list[TopicPartition]]) -> _Judged:
    requested = _requested_replicas(topic, requests)
    return None if requested.keys() & set(data["partitions"]) else (Outcome.APPLIED, "found withdrawn")


def _requested_replicas(topic: str, requests: Decoded[list[TopicPartition]]) -> dict[int, list[int]]:
    """Return the replicas that are requested, by partition of the topic."""
    return {request.partition: request.replicas or [] for request in requests.get() if request.topic == topic}


def _refusal(data: Mapping[str, Any], settings: TopicSettings) -> _Judged:
    if not settings.is_queued:
        return Outcome.APPLIED, "found withdrawn"
    if data["exists"] is not settings.topic.exists:
        return Outcome.STALE, "the topic is gone" if data["exists"] else "there is such a topic now"
    return None


def _pending_deletion(data: Mapping[str, Any], settings: TopicSettings) -> _Judged:
    if not settings.topic.exists:
        return Outcome.APPLIED, "found gone"
    if (other := _other_topic(data, settings)) is not None:
        return Outcome.STALE, f"{other}; this one is not the one that goes"
    return (Outcome.STALE, "the topic is no longer queued for deletion") if not settings.is_queued else None


def _removal(data: Mapping[str, Any], settings: TopicSettings, controller_epoch: Decoded[int]) -> _Judged:
    judged = _pending_deletion(data, settings)
    if judged is not None:
        return judged
    if settings.topic.version != data["topic_version"]:
        return Outcome.STALE, "partitions were added since its replicas were deleted"
    epoch, planned_epoch = controller_epoch.get(), data["controller_epoch"]
    if epoch - planned_epoch in {0, 1}:
        return None
    return Outcome.STALE, f"another controller has taken over, with epoch {epoch}"


def _other_topic(data: Mapping[str, Any], settings: TopicSettings) -> str | None:
    """Say what happened to the topic; None if it is still the same.

    A topic created before 2.8 may get its id from an upgraded controller; it is still the same topic.
    """
    topic_id = settings.topic.content.get().topic_id
    if data["topic_id"] is None or topic_id == data["topic_id"]:
        return None
    return other_topic("the topic", data["topic_id"], topic_id)


_JUDGES_OF_TOPIC: Final[dict[OperationKind, Callable[[Mapping[str, Any], TopicSettings], _Judged]]] = {
    OperationKind.ALTER_CONFIG: _alteration,
    OperationKind.DELETE_TOPIC: _deletion,
    OperationKind.WITHDRAW_DELETION: _refusal,
    OperationKind.DELETE_REPLICAS: _pending_deletion,
}
"""How operations are judged that rest on their topic alone."""
