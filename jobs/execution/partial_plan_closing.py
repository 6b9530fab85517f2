"""Closes partial plans with nothing left to do: the cluster shows all changes, or later plans have overtaken the rest.

A change is overtaken if a later commit of another plan has changed its partition, or if its topic is gone. A plan whose
changes are all complete is committed. If the others are all overtaken, it is cancelled, and its row names the cause.
Plans that batch mode has begun are left out: a state in ZooKeeper does not show that the brokers were notified.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.preconditions.change_preconditions import is_other_topic
from jobs.preconditions.change_status import verify_plan
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.plans.plans_writer import apply_transition
from jobs.runtime.console import log
from jobs.runtime.settings import Settings
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentState, OperationState
from schemas.enums import Action, Outcome, PlanKind, PlanStatus, Step
from schemas.rows import Change, CommitRecord, Key, PlanRecord, PlanRow
from schemas.stored_plan import Plan, Transition
from schemas.text import abbreviate


def close_ended_before_status(settings: Settings) -> None:
    """Close the partial plans that have ended, if there are any; do nothing if warehouse or cluster do not answer."""
    try:
        if settings.warehouse.exists() and _partial_plans(settings.warehouse):
            with settings.connect() as cluster:
                close_ended_plans(settings, cluster)
    except (SurveyorError, OSError):
        return  # the status itself reports that


def _partial_plans(warehouse: Warehouse) -> list[PlanRecord]:
    rows = warehouse.typed_rows(PlanRecord, ("status", "=", PlanStatus.PARTIAL.value)) if warehouse.has("plans") else []
    return [row for row in rows if not row.is_cycle]


def close_ended_plans(settings: Settings, cluster: Cluster) -> None:
    """Close the partial plans that have ended; only log a warning if that cannot be found out or recorded."""
    try:
        for row in _partial_plans(settings.warehouse):
            plan = read_plan(settings.warehouse, row.plan_id)
            cluster.sync()
            if cluster.read_cluster().cluster_id == row.cluster_id:
                current, operations = cluster.read_current(plan.changes), cluster.read_operations(plan.operations)
                close_ended(settings.warehouse, cluster, plan, current, operations)
    except (SurveyorError, OSError) as error:
        log(f"surveyor: could not find out which partial plans have ended: {error}", logging.WARNING)


def close_ended(
    warehouse: Warehouse, cluster: Cluster, plan: Plan, current: CurrentState, operations: OperationState
) -> None:
    """Close a partial plan if nothing of it is left to do and no commit of it runs; log a warning if that fails."""
    try:
        _close(warehouse, cluster, plan, current, operations)
    except (SurveyorError, OSError) as error:
        log(f"surveyor: could not record that plan {plan.title} has ended: {error}", logging.WARNING)


def _close(
    warehouse: Warehouse, cluster: Cluster, plan: Plan, current: CurrentState, operations: OperationState
) -> None:
    holder = cluster.read_lease_holder()
    is_running = holder is not None and holder.plan == plan.plan_id
    if plan.row.status != PlanStatus.PARTIAL or is_running or plan.row.traits.changes_drained:
        return
    if _begun_in_batch_mode(warehouse, plan.plan_id):
        return
    statuses = verify_plan(plan, current, operations)
    is_cancellation = plan.row.kind == PlanKind.CANCEL
    ended = {ReassignmentStatus.COMPLETE, *([ReassignmentStatus.DIVERGED] if is_cancellation else [])}
    left = [row for row, status, _ in statuses if status not in ended]
    if not left:
        apply_transition(warehouse, plan.plan_id, Transition.FIND_COMPLETE)
    elif all(status is not ReassignmentStatus.IN_PROGRESS for _, status, _ in statuses):
        reason = _overtaken_by(warehouse, plan, left, current, operations)
        if reason is not None:
            apply_transition(warehouse, plan.plan_id, Transition.OVERTAKE, reason)


def _begun_in_batch_mode(warehouse: Warehouse, plan_id: str) -> bool:
    own, take_over = ("plan_id", "=", plan_id), ("action", "=", Step.TAKE_OVER.value)
    return bool(warehouse.read(CommitRecord.TABLE, own, take_over, columns=["attempt"]).num_rows)


def _overtaken_by(
    warehouse: Warehouse, plan: Plan, left: Sequence[PlanRow], current: CurrentState, operations: OperationState
) -> str | None:
    """Return what has overtaken all rows that are left; None if one of them may still be carried out."""
    gone = [row for row in left if _is_gone(row, current, operations)]
    existing = [row for row in left if row not in gone]
    records = _commits_of(warehouse, existing)
    overtaking = [_later_plan(records[row.key], plan, row) for row in existing]
    later = [plan_id for plan_id in dict.fromkeys(overtaking) if plan_id is not None]
    if None in overtaking:
        return None
    titles = [row.title for row in warehouse.typed_rows(PlanRecord, ("plan_id", "in", later))] if later else []
    topics = sorted({row.topic for row in gone})
    causes = [f"overtaken by {'plans' if len(titles) > 1 else 'plan'} {abbreviate(sorted(titles))}"] if titles else []
    causes += [f"{'topics' if len(topics) > 1 else 'topic'} {abbreviate(topics)} gone"] if topics else []
    return "; ".join(causes)


def _is_gone(row: PlanRow, current: CurrentState, operations: OperationState) -> bool:
    """Return whether the topic of a row no longer exists, or was created again since the plan."""
    if not isinstance(row, Change):
        return not operations.topics[row.topic].topic.exists
    topic = current.partitions[row.key].topic
    if row.is_new or topic.is_forbidden or (topic.exists and topic.content.value is None):
        return False
    return not topic.exists or (row.topic_id is not None and is_other_topic(row, topic))


def _commits_of(warehouse: Warehouse, rows: Sequence[PlanRow]) -> dict[Key, list[CommitRecord]]:
    """Return what commits of plans recorded on the partitions, or the topics, of these rows, the latest last."""
    by_key: dict[Key, list[CommitRecord]] = defaultdict(list)
    topics = sorted({row.topic for row in rows})
    records = warehouse.typed_rows(CommitRecord, ("topic", "in", topics)) if topics else []
    for record in sorted(records, key=attrgetter("committed_at")):
        if record.plan_id:
            by_key[record.topic, record.partition].append(record)  # type: ignore[index] # as the key of a row
    return by_key


def _later_plan(records: Sequence[CommitRecord], plan: Plan, row: PlanRow) -> str | None:
    """Return the last other plan that changed the partition of a row in the same way, after the plan's own commits."""
    own = [record.committed_at for record in records if record.plan_id == plan.plan_id]
    since = own[-1] if own else plan.row.created_at
    later = [
        record.plan_id
        for record in records
        if record.plan_id != plan.plan_id
        and record.outcome == Outcome.APPLIED
        and record.action in {row.action, Action.REASSIGN}
        and record.committed_at > since
    ]
    return later[-1] if later else None
