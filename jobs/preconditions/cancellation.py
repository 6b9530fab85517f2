"""The state of a plan's partitions before a cancellation: how far each one is, and whether it can be cancelled
safely.

This module only reads; `planner.reassignment.cancellation` decides. The rest of a plan, elections and topic operations,
finishes at once after it was requested. So only what has not been requested yet can be cancelled of it.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import Znode
from jobs.adapters.zookeeper.controllership import refuse_migration
from jobs.core.errors import RefusedError
from jobs.preconditions.changes import assigned, is_other_topic, other_topic_reason, read_changed, understood
from jobs.preconditions.limits import refuse_other_cluster
from jobs.preconditions.verification import verify_plan
from jobs.repositories.plans.repository import Plan, refuse_edited
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import CancellationRisk, ReassignmentStatus, cancellation_risk, status_of
from planner.reassignment.rollback import steps_by_partition, steps_of
from schemas.enums import Action, PlanStatus, RejectionCode, RequestKind
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, PlanRow
from schemas.znodes import MalformedZnodeError


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition, election or operation, and the step of the plan that it has reached."""

    change: PlanRow
    status: ReassignmentStatus
    detail: str
    """The current state, as text for the user."""
    risk: CancellationRisk | None = None
    """Why its reassignment must not be cancelled."""
    stranded: bool = False
    """None of its replicas is in its ISR and none is being added, so no replica can lead it."""

    @property
    def key(self) -> Key:
        return self.change.key


@dataclass(frozen=True, slots=True)
class CancellationPlan:
    """The cluster state, and the status of everything in the plan."""

    state: ClusterState
    partitions: list[PartitionStatus]

    def of(self, status: ReassignmentStatus) -> list[PartitionStatus]:
        return [partition for partition in self.partitions if partition.status is status]

    @property
    def safe(self) -> list[PartitionStatus]:
        """The reassignments to cancel."""
        return [partition for partition in self.of(ReassignmentStatus.IN_PROGRESS) if partition.risk is None]

    @property
    def unsafe(self) -> list[PartitionStatus]:
        return [partition for partition in self.partitions if partition.risk is not None]

    @property
    def counts(self) -> dict[str, int]:
        return {status.value: len(self.of(status)) for status in ReassignmentStatus} | {"unsafe": len(self.unsafe)}


def plan_cancellation(
    client: KazooClient, settings: Settings, plan: Plan, *, fewer_copies: bool = False
) -> CancellationPlan:
    """Read the status of everything in a plan; raise RefusedError if plan or cluster do not allow a cancellation.

    `fewer_copies`: leaving a partition with fewer copies than before is not a risk.
    """
    _refuse(plan)
    refuse_edited(plan)
    state = read_cluster(client)
    refuse_migration(state)
    refuse_other_cluster(settings, plan, state)
    moves = partitions_of(client, state, steps_by_partition(plan.changes), fewer_copies=fewer_copies)
    other_changes = [change for change in plan.changes if change.action != Action.REASSIGN]
    other_statuses = (
        verify_plan(client, dataclasses.replace(plan, changes=other_changes)) if other_changes or plan.tasks else []
    )
    return CancellationPlan(
        state,
        [*moves, *(PartitionStatus(row, _as_irreversible(status), detail) for row, status, detail in other_statuses)],
    )


def _as_irreversible(status: ReassignmentStatus) -> ReassignmentStatus:
    """Elections and operations in progress, such as a deletion, cannot be cancelled."""
    return ReassignmentStatus.IRREVERSIBLE if status is ReassignmentStatus.IN_PROGRESS else status


def _refuse(plan: Plan) -> None:
    status = plan.row.status
    if status in {PlanStatus.REFUSED, PlanStatus.ROLLED_BACK}:
        raise RefusedError(f"plan {plan.title} is {status}: there is nothing to cancel")


def partitions_of(
    client: KazooClient,
    state: ClusterState,
    steps_by_key: Mapping[Key, Sequence[Change]],
    *,
    fewer_copies: bool = False,
) -> list[PartitionStatus]:
    """Read the status of these partitions; the caller has called `sync` before."""
    deleting = {row["topic"] for row in state.requests if row["kind"] == RequestKind.DELETE_TOPIC}
    changed_znodes = read_changed(client, [steps[0] for steps in steps_by_key.values()])
    risk_of = partial(cancellation_risk, live=state.live, fewer_copies=fewer_copies)
    return [
        _partition_status(steps_by_key[change.key], topic, znode, risk_of, deleting)
        for change, topic, znode in changed_znodes
    ]


def _partition_status(
    steps: Sequence[Change],
    topic: Znode,
    state: Znode,
    risk_of: Callable[..., CancellationRisk | None],
    deleting: Collection[str],
) -> PartitionStatus:
    first_step = steps[0]
    current, reason = assignment_of(first_step, topic)
    if first_step.topic in deleting:
        reason = "its topic is queued for deletion"
    if current is None or reason is not None:
        return PartitionStatus(first_step, ReassignmentStatus.DIVERGED, reason or "")
    status, number = status_of(steps_of(steps), current)
    detail = f"replicas {list(current.replicas)}"
    if current.is_moving:
        detail += f", adding {list(current.adding)}, removing {list(current.removing)}"
    state_content = understood(state)
    if status is not ReassignmentStatus.IN_PROGRESS:
        stranded = (
            not current.is_moving and state_content is not None and not set(state_content.isr) & set(current.replicas)
        )
        return PartitionStatus(steps[number], status, detail, stranded=stranded)
    return PartitionStatus(
        steps[number], status, detail, risk_of(current, None if state_content is None else state_content.isr)
    )


def assignment_of(change: Change, topic: Znode) -> tuple[ReplicaAssignment | None, str | None]:
    """Return the assignment of the change's partition, or None and the reason."""
    try:
        assignment = assigned(topic, change.partition)
    except MalformedZnodeError as error:
        return None, f"{topic.path}: {error}"
    if assignment is None:
        return None, "the partition is gone"
    if is_other_topic(change, topic):
        return None, other_topic_reason(change, topic)
    return ReplicaAssignment(*assignment), None


def allowed_by_option(risks: Iterable[CancellationRisk | None]) -> str:
    """Name the option that permits cancellations which only leave fewer copies."""
    allowed = any(risk is not None and risk.code is RejectionCode.REPLICA_NOT_ALIVE for risk in risks)
    return ", or leave those with REPLICA_NOT_ALIVE on fewer copies by --allow-fewer-copies" if allowed else ""


def rejections(cancellation: CancellationPlan) -> list[dict[str, Any]]:
    """Return the partitions that must not be cancelled, with code and reason, for the JSON output."""
    return [
        {"topic": topic, "partition": partition, "code": risk.code.value, "reason": risk.reason}
        for (topic, partition), risk in (
            (partition_status.key, partition_status.risk) for partition_status in cancellation.unsafe
        )
        if risk is not None
    ]
