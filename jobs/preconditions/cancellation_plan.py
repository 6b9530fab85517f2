"""The state of a plan's partitions before a cancellation: how far each one is, and whether it can be cancelled
safely.

`planner.reassignment.reassignment_status` decides about one partition. Elections and topic operations of a plan finish
at once after they are requested, so they can be cancelled only before that.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.core.errors import RefusedError
from jobs.preconditions.change_preconditions import is_other_topic, other_topic_reason
from jobs.preconditions.change_status import verify_plan
from planner.reassignment.partition_rollback import steps_by_partition, steps_of
from planner.reassignment.reassignment_status import (
    CancellationRisk,
    ReassignmentStatus,
    cancellation_risk,
    is_stranded,
    left_in_sync,
    status_of,
)
from schemas import reasons
from schemas.current_state import CurrentCluster, CurrentPartition, CurrentState, OperationState
from schemas.enums import Action, RejectionCode
from schemas.plan import Plan, Transition
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, PlanRow
from schemas.text import join_ids
from schemas.znode_codecs import MalformedZnodeError


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition, election or operation, and the step of the plan that it has reached."""

    change: PlanRow
    status: ReassignmentStatus
    detail: str
    """The current state, as text for the user."""
    risk: CancellationRisk | None = None
    """Reason why its reassignment must not be cancelled."""
    stranded: bool = False
    """None of its replicas is in its ISR and none is being added, so no replica can lead it."""
    is_unknown: bool = False
    """Its topic cannot be decoded, or changed each time it was read."""
    isr_after: Sequence[int] | None = None
    """In-sync replicas that a cancellation leaves; None if it is not running, or its ISR is unknown."""

    @property
    def key(self) -> Key:
        return self.change.key


@dataclass(frozen=True, slots=True)
class CancellationPlan:
    """The cluster state, and the status of everything in the plan."""

    state: CurrentCluster
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


def refuse_cancellation(plan: Plan) -> None:
    """Raise RefusedError if the plan allows no cancellation, in any state of the cluster."""
    status = plan.row.status
    if status not in Transition.CANCEL.before:
        raise RefusedError(f"plan {plan.title} is {status}: there is nothing to cancel")


def plan_cancellation(
    plan: Plan,
    state: CurrentCluster,
    current: CurrentState,
    operations: OperationState | None,
    *,
    fewer_copies: bool = False,
) -> CancellationPlan:
    """Return the status of all rows of a plan.

    Only the reassignments of partitions in `current` are included. `operations` is None if there are no other rows, or
    they must not be checked. `fewer_copies`: leaving a partition with fewer copies than before is not a risk.
    """
    steps = [moves for key, moves in steps_by_partition(plan.changes).items() if key in current.partitions]
    moves = partitions_of(state, steps, current.partitions, fewer_copies=fewer_copies)
    other_changes = [change for change in plan.changes if change.action != Action.REASSIGN]
    others = dataclasses.replace(plan, changes=other_changes)
    other_statuses = [] if operations is None else verify_plan(others, current, operations)
    return CancellationPlan(
        state,
        [*moves, *(PartitionStatus(row, _as_irreversible(status), detail) for row, status, detail in other_statuses)],
    )


def _as_irreversible(status: ReassignmentStatus) -> ReassignmentStatus:
    """Elections and operations in progress, such as a deletion, cannot be cancelled."""
    return ReassignmentStatus.IRREVERSIBLE if status is ReassignmentStatus.IN_PROGRESS else status


def partitions_of(
    state: CurrentCluster,
    steps_of_each: Iterable[Sequence[Change]],
    partitions: Mapping[Key, CurrentPartition],
    *,
    fewer_copies: bool = False,
) -> list[PartitionStatus]:
    """Return the status of each partition within its steps.

    Two steps of a plan may lead to the same replicas. So the status of a step is found only within that step.
    """
    risk_of = partial(cancellation_risk, live=state.live, fewer_copies=fewer_copies)
    return [_partition_status(steps, partitions[steps[0].key], risk_of, state.deleting) for steps in steps_of_each]


def _partition_status(
    steps: Sequence[Change],
    partition: CurrentPartition,
    risk_of: Callable[..., CancellationRisk | None],
    deleting: Collection[str],
) -> PartitionStatus:
    first_step = steps[0]
    try:
        current, reason = _assignment_of(first_step, partition)
    except MalformedZnodeError as error:
        unknown = reasons.NOT_DECODED.render(path=partition.topic.path, fault=error)
        return PartitionStatus(first_step, ReassignmentStatus.DIVERGED, unknown, is_unknown=True)
    if first_step.topic in deleting:
        reason = reasons.DELETION_REQUESTED.render()
    if current is None or reason is not None:
        return PartitionStatus(first_step, ReassignmentStatus.DIVERGED, reason or "")
    status, number = status_of(steps_of(steps), current)
    detail = reasons.REPLICAS.render(replicas=current.replicas)
    if current.is_being_reassigned:
        detail += f", adding [{join_ids(current.adding)}], removing [{join_ids(current.removing)}]"
    isr = None if partition.state is None else partition.state.isr
    if status is not ReassignmentStatus.IN_PROGRESS:
        stranded = not current.is_being_reassigned and is_stranded(current, isr)
        return PartitionStatus(steps[number], status, detail, stranded=stranded)
    isr_after = None if isr is None else left_in_sync(current, isr)
    return PartitionStatus(steps[number], status, detail, risk_of(current, isr), isr_after=isr_after)


def _assignment_of(change: Change, partition: CurrentPartition) -> tuple[ReplicaAssignment | None, str | None]:
    """Return the assignment of the change's partition, or None and the reason; raise MalformedZnodeError."""
    topic, assignment = partition.topic, partition.assignment
    if assignment is None:
        return None, reasons.PARTITION_GONE.render()
    if is_other_topic(change, topic):
        return None, other_topic_reason(change, topic)
    return assignment, None


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
