"""Whether a topic's config may still be altered, or the topic deleted: compare it with the plan's snapshot.

The counterpart of `jobs.preconditions.change_preconditions` for operations without a partition, in both modes. An
operation is already applied if the cluster is as the operation leaves it, so a commit after a crash finds out by
reading. It is stale if the topic is another one, or if another client has altered the same configs since.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from schemas import reasons
from schemas.current_state import Decoded, OperationState, TopicSettings
from schemas.enums import Action, OperationKind, Outcome
from schemas.operation_data import (
    AlteredConfig,
    CreatedTopic,
    DeletedReplicas,
    DeletedTopic,
    ExpandedTopic,
    RemovedTopic,
    WithdrawnDeletion,
    WithdrawnElection,
    WithdrawnReassignment,
    data_of,
)
from schemas.rows import Operation
from schemas.stored_plan import Plan, RowOutcome
from schemas.topic_configs import conflicts, same_value
from schemas.znode_codecs import MalformedZnodeError, TopicPartition

_Verdict = tuple[Outcome, str] | None

_FOUND_GONE: Final = "found gone"
_FOUND_WITHDRAWN: Final = "found withdrawn"
_TOPIC_GONE: Final = "the topic is gone"


def check_operations(
    operations: Sequence[Operation], current: OperationState
) -> tuple[list[Operation], list[RowOutcome]]:
    """Return the pending operations, and the outcomes of the others."""
    outcomes = [(operation, outcome_of(operation, current)) for operation in operations]
    pending = [operation for operation, outcome in outcomes if outcome is None]
    return pending, [outcome for _, outcome in outcomes if outcome is not None]


def confirm_creations(
    plan: Plan, outcomes: list[RowOutcome], read: Callable[[Sequence[Operation]], OperationState]
) -> list[RowOutcome]:
    """Return the outcomes, with partitions found created or added as stale if their topic is not as planned.

    A partition's change has only its replicas and leader. `read` reads what operations depend on.
    """
    found = {row.change.topic for row in outcomes if _is_found_created(row)}
    operations = [operation for operation in topic_creations(plan) if operation.topic in found]
    if not operations:
        return outcomes
    differing = differing_topics(plan, read(operations))
    return [
        RowOutcome(row.change, Outcome.STALE, differing[row.change.topic])
        if _is_found_created(row) and row.change.topic in differing
        else row
        for row in outcomes
    ]


def _is_found_created(outcome: RowOutcome) -> bool:
    return outcome.outcome is Outcome.APPLIED and outcome.change.action == Action.CREATE


def topic_creations(plan: Plan) -> list[Operation]:
    """Return the operations that create or expand a topic; the plan's changes are their partitions."""
    return [operation for operation in plan.operations if not operation.is_standalone]


def differing_topics(plan: Plan, current: OperationState) -> dict[str, str]:
    """Return how topics in `current` differ from what the plan creates or expands them to, by topic."""
    planned = Counter(change.topic for change in plan.changes if change.action == Action.CREATE)
    differences = {
        operation.topic: _difference(operation, planned[operation.topic], current.topics[operation.topic])
        for operation in topic_creations(plan)
        if operation.topic in current.topics
    }
    return {topic: difference for topic, difference in differences.items() if difference is not None}


def _difference(operation: Operation, created: int, settings: TopicSettings) -> str | None:
    """Return how an existing topic differs from its creation with `created` partitions, or from its expansion."""
    if not settings.topic.exists:
        return None
    topic, is_new = operation.topic, operation.kind == OperationKind.CREATE_TOPIC
    try:
        assignment = settings.topic.content.get()
        found = len(assignment.partitions) + len(assignment.unread)
        planned = created if is_new else data_of(operation, ExpandedTopic).partitions
        # an expansion may be under way: its missing partitions are checked on their own
        if found > planned or (is_new and found < planned):
            return reasons.PARTITIONS_DIFFER.render(topic=topic, found=found, planned=planned)
        config = data_of(operation, CreatedTopic).config if is_new else {}
        overrides = settings.config.get() if config else {}
    except MalformedZnodeError as error:
        return f"topic {topic} is not understood: {error}"
    for name, value in config.items():
        if not same_value(name, overrides.get(name), value):
            return reasons.CONFIG_DIFFERS.render(
                topic=topic, name=name, found=overrides.get(name, "not set"), planned=value
            )
    return None


def outcome_of(operation: Operation, current: OperationState) -> RowOutcome | None:
    """Check one operation; None if it is pending."""
    try:
        verdict = _check(operation, current.topics[operation.topic], current)
    except MalformedZnodeError as error:
        verdict = Outcome.STALE, f"topic {operation.topic} is not understood: {error}"
    return None if verdict is None else RowOutcome(operation, *verdict)


def _check(operation: Operation, settings: TopicSettings, current: OperationState) -> _Verdict:
    match OperationKind(operation.action):
        case OperationKind.WITHDRAW_REASSIGNMENT:
            orders = data_of(operation, WithdrawnReassignment).orders
            verdict = _reassignments(orders, _requested_replicas(operation.topic, current.reassignments))
        case OperationKind.WITHDRAW_ELECTION:
            partitions = data_of(operation, WithdrawnElection).partitions
            verdict = _elections(partitions, _requested_replicas(operation.topic, current.elections))
        case OperationKind.REMOVE_TOPIC:
            verdict = _removal(data_of(operation, RemovedTopic), settings, current.controller_epoch)
        case OperationKind.ALTER_CONFIG:
            verdict = _alteration(data_of(operation, AlteredConfig), settings)
        case OperationKind.DELETE_TOPIC:
            verdict = _deletion(data_of(operation, DeletedTopic).topic_id, settings)
        case OperationKind.WITHDRAW_DELETION:
            verdict = _refusal(settings, existed=data_of(operation, WithdrawnDeletion).exists)
        case OperationKind.DELETE_REPLICAS:
            verdict = _pending_deletion(data_of(operation, DeletedReplicas).topic_id, settings)
        case OperationKind.CREATE_TOPIC | OperationKind.EXPAND_TOPIC as kind:
            raise ValueError(f"{kind} of {operation.topic} is judged by its changes")
    return verdict


def _alteration(data: AlteredConfig, settings: TopicSettings) -> _Verdict:
    if not settings.topic.exists:
        return Outcome.STALE, _TOPIC_GONE
    if (other := _other_topic(data.topic_id, settings)) is not None:
        return Outcome.STALE, other
    if settings.is_queued:
        return Outcome.STALE, "the topic is queued for deletion"
    overrides = settings.config.get()
    values = {name: overrides.get(name) for name in data.after}
    if all(same_value(name, value, data.after[name]) for name, value in values.items()):
        return Outcome.APPLIED, reasons.FOUND_APPLIED.render()
    moved = [name for name, value in values.items() if not same_value(name, value, data.before[name])]
    if moved:
        value = "not set" if values[moved[0]] is None else values[moved[0]]
        return Outcome.STALE, f"{moved[0]} is now {value}: another client altered it since the snapshot"
    conflict = next(conflicts(overrides | data.after), None)
    reason = f"{conflict}: another client altered one of them since the snapshot"
    return None if conflict is None else (Outcome.STALE, reason)


def _deletion(topic_id: str | None, settings: TopicSettings) -> _Verdict:
    if not settings.topic.exists:
        return Outcome.APPLIED, _FOUND_GONE
    if (other := _other_topic(topic_id, settings)) is not None:
        return Outcome.STALE, reasons.NOT_THE_TOPIC_TO_DELETE.render(cause=other)
    return (Outcome.APPLIED, "found queued for deletion") if settings.is_queued else None


def _reassignments(orders: Mapping[int, list[int]], requested: Mapping[int, list[int]]) -> _Verdict:
    same = [p for p, replicas in orders.items() if requested.get(p) == replicas]
    return None if same else (Outcome.APPLIED, _FOUND_WITHDRAWN)


def _elections(partitions: Collection[int], requested: Mapping[int, list[int]]) -> _Verdict:
    return None if requested.keys() & set(partitions) else (Outcome.APPLIED, _FOUND_WITHDRAWN)


def _requested_replicas(topic: str, requests: Decoded[list[TopicPartition]]) -> dict[int, list[int]]:
    """Return the replicas that are requested, by partition of the topic."""
    return {request.partition: request.replicas or [] for request in requests.get() if request.topic == topic}


def _refusal(settings: TopicSettings, *, existed: bool) -> _Verdict:
    if not settings.is_queued:
        return Outcome.APPLIED, _FOUND_WITHDRAWN
    if existed is not settings.topic.exists:
        return Outcome.STALE, _TOPIC_GONE if existed else "there is such a topic now"
    return None


def _pending_deletion(topic_id: str | None, settings: TopicSettings) -> _Verdict:
    if not settings.topic.exists:
        return Outcome.APPLIED, _FOUND_GONE
    if (other := _other_topic(topic_id, settings)) is not None:
        return Outcome.STALE, reasons.NOT_THE_TOPIC_TO_DELETE.render(cause=other)
    return (Outcome.STALE, "the topic is no longer queued for deletion") if not settings.is_queued else None


def _removal(data: RemovedTopic, settings: TopicSettings, controller_epoch: Decoded[int]) -> _Verdict:
    verdict = _pending_deletion(data.topic_id, settings)
    if verdict is not None:
        return verdict
    if settings.topic.version != data.topic_version:
        return Outcome.STALE, "partitions were added since its replicas were deleted"
    epoch, planned_epoch = controller_epoch.get(), data.controller_epoch
    if epoch - planned_epoch in {0, 1}:
        return None
    return Outcome.STALE, f"another controller has taken over, with epoch {epoch}"


def _other_topic(planned_id: str | None, settings: TopicSettings) -> str | None:
    """Return what happened to the topic; None if it is still the same.

    A topic created before 2.8 may get its id from an upgraded controller; it is still the same topic.
    """
    topic_id = settings.topic.content.get().topic_id
    if planned_id is None or topic_id == planned_id:
        return None
    return reasons.other_topic("the topic", planned_id, topic_id)
