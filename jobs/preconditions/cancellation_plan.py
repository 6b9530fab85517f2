"""The state of a plan's partitions before a cancellation: how far each one is, and whether it can be cancelled
safely.

`planner.reassignment.reassignment_status` decides about one partition. Elections and topic operations of a plan finish
at once after they are requested, so they can be cancelled only before that.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from jobs.core.errors import RefusedError
from jobs.preconditions.change_preconditions import is_other_topic, other_topic_reason, turns_back
from jobs.preconditions.change_status import verify_plan
from planner.reassignment.cancellation import CancellationRisk, cancellation_risk, is_stranded, left_in_sync
from planner.reassignment.partition_rollback import steps_by_partition, steps_of
from planner.reassignment.reassignment_status import ReassignmentStatus, status_of, status_towards
from schemas import reasons
from schemas.current_state import CurrentCluster, CurrentPartition, CurrentState, OperationState
from schemas.enums import Action, Outcome, RejectionCode
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Brokers, Change, Key, PlanRow
from schemas.stored_plan import Plan, RowOutcome, Transition
from schemas.text import LINES_SHOWN, join_ids, pluralise
from schemas.znode_codecs import MalformedZnodeError

SKIP_UNSAFE: Final = "skip_unsafe"
"""Parameter of a plan that cancels: unsafe reassignments continue, instead of preventing the cancellation."""


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
    current: ReplicaAssignment | None = None
    """The assignment; None if it does not exist or cannot be decoded."""
    request: list[int] | None = None
    """The target that a request in /admin names; None if there is none, or it was not read."""

    @property
    def key(self) -> Key:
        return self.change.key

    @property
    def is_being_reassigned(self) -> bool:
        return self.current is not None and self.current.is_being_reassigned

    @property
    def refusal(self) -> str:
        """Why its reassignment must not be cancelled."""
        return "" if self.risk is None else f"{self.risk.code}: {self.risk.reason}"

    @property
    def replicas_before(self) -> Brokers | None:
        return self.change.replicas_before if isinstance(self.change, Change) else None


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

    def refuse_unsafe(self, subject: str, *, skip_unsafe: bool) -> None:
        """As `refuse_unsafe`."""
        refuse_unsafe(subject, [(row.change.name, row.refusal) for row in self.unsafe], skip_unsafe=skip_unsafe)

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

    `operations` is None if there are no rows other than reassignments; those that are in progress, such as a deletion,
    cannot be cancelled. `fewer_copies`: leaving a partition with fewer copies than before is not a risk.
    """
    steps = steps_by_partition(plan.changes).values()
    moves = partitions_of(state, steps, current.partitions, fewer_copies=fewer_copies)
    others = dataclasses.replace(plan, changes=[row for row in plan.changes if row.action != Action.REASSIGN])
    running = {ReassignmentStatus.IN_PROGRESS: ReassignmentStatus.IRREVERSIBLE}
    other_statuses = [] if operations is None else verify_plan(others, current, operations)
    rows = [PartitionStatus(row, running.get(status, status), detail) for row, status, detail in other_statuses]
    return CancellationPlan(state, [*moves, *rows])


def partitions_of(
    state: CurrentCluster | CurrentState,
    steps_of_each: Iterable[Sequence[Change]],
    partitions: Mapping[Key, CurrentPartition],
    *,
    fewer_copies: bool = False,
) -> list[PartitionStatus]:
    """Return the status of each partition within its steps.

    Two steps of a plan may lead to the same replicas. So the status of a step is found only within that step.
    """
    return [
        _partition_status(steps, partitions[steps[0].key], state, fewer_copies=fewer_copies) for steps in steps_of_each
    ]


def _partition_status(
    steps: Sequence[Change], partition: CurrentPartition, state: CurrentCluster | CurrentState, *, fewer_copies: bool
) -> PartitionStatus:
    first_step, topic = steps[0], partition.topic
    reason: str | None = None
    try:
        current = partition.assignment
    except MalformedZnodeError as error:
        unknown = reasons.NOT_DECODED.render(path=topic.path, fault=error)
        return PartitionStatus(first_step, ReassignmentStatus.DIVERGED, unknown, is_unknown=True)
    if first_step.topic in state.deleting:
        reason = reasons.DELETION_REQUESTED.render()
    elif current is not None and is_other_topic(first_step, topic):
        reason = other_topic_reason(first_step, topic)
    if current is None or reason is not None:
        detail = reason or reasons.PARTITION_GONE.render()
        return PartitionStatus(first_step, ReassignmentStatus.DIVERGED, detail, current=current)
    status, number = status_of(steps_of(steps), current)
    detail = reasons.REPLICAS.render(replicas=current.replicas)
    if current.is_being_reassigned:
        detail += f", adding [{join_ids(current.adding)}], removing [{join_ids(current.removing)}]"
    isr = None if partition.state is None else partition.state.isr
    if status is not ReassignmentStatus.IN_PROGRESS:
        stranded = not current.is_being_reassigned and is_stranded(current, isr)
        return PartitionStatus(steps[number], status, detail, stranded=stranded, current=current)
    isr_after = None if isr is None else left_in_sync(current, isr)
    risk = cancellation_risk(current, isr, state.live, fewer_copies=fewer_copies)
    return PartitionStatus(steps[number], status, detail, risk, isr_after=isr_after, current=current)


def check_cancellation(change: Change, current: CurrentState) -> RowOutcome | None:
    """Return the outcome of a cancellation that must not, or need no longer, be requested; None if it is due.

    A reassignment that another client has requested since is left alone. `requires_live` is empty if the partition may
    be left with fewer copies than before.
    """
    planned = ReplicaAssignment(change.replicas_before or [], change.adding_before or [], change.removing_before or [])
    step = replace(change, replicas_before=change.replicas_after, replicas_after=planned.target)
    (now,) = partitions_of(current, [[step]], current.partitions, fewer_copies=not change.requires_live)
    if now.risk is not None:
        return RowOutcome(change, Outcome.SKIPPED, f"continues: {now.refusal}")
    if now.status is ReassignmentStatus.IN_PROGRESS:
        return None
    if not turns_back(change) and not now.is_unknown and not now.is_being_reassigned:
        return None
    if now.current is not None and status_towards(change.replicas_after, now.current) is ReassignmentStatus.IN_PROGRESS:
        return RowOutcome(change, Outcome.APPLIED, f"it moves back: {now.detail}", is_running=True)
    return RowOutcome(change, *ended_reason(now))


def refuse_unsafe(subject: str, unsafe: Sequence[tuple[str, str]], *, skip_unsafe: bool) -> None:
    """Raise RefusedError if partitions, given by name and refusal, would lose data or replicas and are not skipped."""
    if skip_unsafe or not unsafe:
        return
    lines = [f"\n  {name}: {refusal}" for name, refusal in unsafe[:LINES_SHOWN]]
    overflow = f"\n  and {len(unsafe) - LINES_SHOWN} more" if len(unsafe) > LINES_SHOWN else ""
    fewer = any(RejectionCode.REPLICA_NOT_ALIVE in refusal for _, refusal in unsafe)
    allowed = ", or leave those with REPLICA_NOT_ALIVE on fewer copies by --allow-fewer-copies" if fewer else ""
    raise RefusedError(
        f"{subject} cancelled: {pluralise(len(unsafe), 'partition')} would lose data or replicas; start these brokers, "
        f"or let those partitions continue with --skip-unsafe{allowed}:{''.join(lines)}{overflow}"
    )


def refuse_unsafe_rows(plan: Plan, outcomes: Iterable[RowOutcome]) -> None:
    """Raise RefusedError if cancellations were found unsafe and the plan does not skip them."""
    unsafe = [(row.change.name, row.message) for row in outcomes if row.outcome is Outcome.SKIPPED]
    refuse_unsafe("the rest is not", unsafe, skip_unsafe=bool(plan.row.options.get(SKIP_UNSAFE)))


def ended_reason(now: PartitionStatus) -> tuple[Outcome, str]:
    """Return the outcome of a cancelled step by its status now, which is no longer in progress.

    If no replica can lead the partition, neither a cancelled step nor a complete one has succeeded. A foreign client
    may add and remove one broker at once, and then a cancelled step leaves the same replicas as a complete one.
    """
    if now.is_unknown:
        return Outcome.UNKNOWN, f"not understood: {now.detail}"
    is_either = isinstance(now.change, Change) and not now.change.moves_replicas
    is_complete = now.status is ReassignmentStatus.COMPLETE
    returned = now.status in {ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER}
    if not returned and not is_complete:
        return Outcome.STALE, f"another client changed it: {now.detail}; to move it back: surveyor plan reassign"
    if now.stranded:
        return Outcome.FAILED, (
            f"its in-sync replicas were removed while it was cancelled, so no replica can lead it: {now.detail}; "
            "start its brokers, or recover it"
        )
    if returned or is_either:
        return Outcome.APPLIED, now.detail
    back = "to move it back: surveyor rollback or plan reassign"
    return Outcome.STALE, f"it was complete before it could be cancelled: {now.detail}; {back}"
