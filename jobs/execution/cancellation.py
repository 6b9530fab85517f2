"""Cancellation of a plan: close the plan, request cancellations from the controller, and read back what happened.

Once a plan is closed, no commit continues with it. Therefore a later reading of the cluster contains all moves to be
cancelled. Kafka's controller leaves the replicas in the order of the target. If the former order was different, it
is requested, which moves no data. A crash at any point leaves a closed plan, and the cluster shows how far each
partition is. The same command, run again, cancels the rest.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.plans import after_cancellation, remove_throttle
from jobs.console_output.cancellation import cancellation_json, cancellation_lines, counts_in_words
from jobs.core.errors import ExitCode, RefusedError
from jobs.core.migration_signs import refuse_migration
from jobs.execution.admin.admin_commit import end_throttle
from jobs.execution.admin.cancellation_requests import (
    STATUS_BEFORE,
    Cancellation,
    Reason,
    below_min_isr_warnings,
    dry_run,
    ended_reason,
    refuse_unapproved,
    refuse_unsafe,
)
from jobs.execution.admin.connections import LEASE_HANDOVER_SECONDS, LeaseGuardedAdmin, admin_of, lease_for
from jobs.execution.admin.resident_controller_client import ZkReassignmentOverride
from jobs.execution.admin.throttles import not_removed_text, throttle_rows
from jobs.execution.commit_report import unapplied_lines
from jobs.preconditions.cancellation_plan import (
    CancellationPlan,
    partitions_of,
    plan_cancellation,
    refuse_cancellation,
)
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.plans.commit_log import CommitLog, requested_changes
from jobs.repositories.plans.plans_table import apply_transition
from jobs.repositories.plans.repository import read_plan, refuse_edited
from jobs.runtime.console import CommandResult
from jobs.runtime.review import Approve
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_step
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentCluster, CurrentPartition
from schemas.enums import Action, Outcome, PlanStatus, Step
from schemas.rows import Change, CommitRecord, Key, changes_among
from schemas.stored_plan import Plan, RowOutcome, Transition
from schemas.text import LINES_SHOWN


def read_cancellation(
    cluster: Cluster, settings: Settings, plan: Plan, *, fewer_copies: bool = False
) -> CancellationPlan:
    """Read the cluster, and return the status of everything in a plan.

    Raise RefusedError if plan or cluster do not allow a cancellation. An order of replicas that no request of this plan
    has left is another client's.
    """
    refuse_cancellation(plan)
    refuse_edited(plan)
    state = cluster.read_cluster()
    refuse_migration(state.migration)
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    current = cluster.read_current(plan.changes)
    has_others = plan.tasks or any(change.action != Action.REASSIGN for change in plan.changes)
    operations = cluster.read_operations(plan.operations) if has_others else None
    cancellation = plan_cancellation(plan, state, current, operations, fewer_copies=fewer_copies)
    return _without_foreign_orders(settings.warehouse, plan, cancellation)


def _without_foreign_orders(warehouse: Warehouse, plan: Plan, cancellation: CancellationPlan) -> CancellationPlan:
    """Mark partitions out of order as diverged, unless a commit of the plan requested them, or may have."""
    if not cancellation.of(ReassignmentStatus.OUT_OF_ORDER):
        return cancellation
    requested = {(topic, partition) for _, topic, partition in requested_changes(warehouse, plan.plan_id)}
    partitions = [
        dataclasses.replace(row, status=ReassignmentStatus.DIVERGED)
        if row.status is ReassignmentStatus.OUT_OF_ORDER and row.key not in requested
        else row
        for row in cancellation.partitions
    ]
    return dataclasses.replace(cancellation, partitions=partitions)


def cancel_running(
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    *,
    skip_unsafe: bool,
    fewer_copies: bool = False,
) -> list[RowOutcome]:
    """Close the plan and cancel what runs of it; return the outcome of each requested partition."""
    commit_log = CommitLog.open(settings.warehouse, plan)
    if plan.row.status != PlanStatus.CANCELLED:
        apply_transition(settings.warehouse, plan.plan_id, Transition.CANCEL)
        commit_log.step(Step.CANCEL, Outcome.APPLIED, f"closed; it was {plan.row.status}")
    run = _PlanCancellation(
        cluster=cluster,
        fewer_copies=fewer_copies,
        skip_unsafe=skip_unsafe,
        subject=f"plan {plan.title} is not",
        settings=settings,
        plan=plan,
        commit_log=commit_log,
    )
    cancellation = read_cancellation(cluster, settings, plan)
    if (
        _was_requested(settings.warehouse, plan)
        or _is_being_committed(cluster, plan)
        or cancellation.of(ReassignmentStatus.IN_PROGRESS)
        or cancellation.of(ReassignmentStatus.OUT_OF_ORDER)
    ):
        with lease_for(settings, cluster, plan.plan_id, "cancel", LEASE_HANDOVER_SECONDS) as lease:
            run.carry_out(lease)
    return run.outcomes


def _is_being_committed(cluster: Cluster, plan: Plan) -> bool:
    """Return whether a commit of this plan is running; it may be about to send requests."""
    holder = cluster.read_lease_holder()
    return holder is not None and holder.plan == plan.plan_id


def _was_requested(warehouse: Warehouse, plan: Plan) -> bool:
    """Return whether a commit has ever requested a reassignment of the plan, or may have."""
    rows = warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id))
    return any(row.action == Action.REASSIGN and row.outcome != Outcome.STALE for row in rows)


@dataclass(slots=True, kw_only=True)
class _PlanCancellation(Cancellation):
    settings: Settings
    plan: Plan
    commit_log: CommitLog
    undo_command: ClassVar = "surveyor rollback"
    _steps: dict[Key, Change] = field(default_factory=dict, init=False)
    outcomes: list[RowOutcome] = field(default_factory=list, init=False)

    def step_of(self, key: Key, partition: CurrentPartition) -> Change:
        """Return the step of the plan that its partition had reached before the cancellation."""
        del partition
        return self._steps[key]

    def record(self, step: Step, outcomes: Mapping[Key, Reason]) -> None:
        rows = [RowOutcome(replace(self._steps[key], action=step.value), *reason) for key, reason in outcomes.items()]
        self.commit_log.append_now(rows)
        self.outcomes.extend(row for row in rows if row.outcome is not Outcome.PENDING)

    def refuse_cluster(self, state: CurrentCluster) -> None:
        Cancellation.refuse_cluster(self, state)
        refuse_other_cluster(self.plan, state, self.settings.address, self.settings.address_option)

    def carry_out(self, lease: Lease) -> None:
        """Cancel under the lease, when no commit of the plan can still send requests.

        A commit that has released the lease has sent all its requests. In-sync replicas are checked once the Admin API
        answers, and again once the intents are stored, just before the cancellation is requested.
        """
        settings, cluster, plan = self.settings, self.cluster, self.plan
        with ExitStack() as stack:
            is_resident = cluster.read_resident_controller() is not None
            throttled = bool(throttle_rows(settings.warehouse, plan.plan_id))
            needs_admin = throttled or not is_resident
            admin = stack.enter_context(admin_of(settings, cluster.read_cluster())) if needs_admin else None
            cancellation = read_cancellation(cluster, settings, plan, fewer_copies=self.fewer_copies)
            refuse_unsafe(self.subject, cancellation.partitions, skip_unsafe=self.skip_unsafe)
            controller = (
                ZkReassignmentOverride(stack.enter_context(cluster.required_fence.connected()))
                if is_resident or admin is None
                else admin
            )
            steps = [*cancellation.safe, *cancellation.of(ReassignmentStatus.OUT_OF_ORDER)]
            self._steps.update({step.key: step for step in changes_among([row.change for row in steps])})
            self.request(Step.CANCEL, cancellation.safe, controller, lease)
            out_of_order = self.read(self._steps).of(ReassignmentStatus.OUT_OF_ORDER)
            self.request(Step.RESTORE_ORDER, out_of_order, controller, lease)
            self._record_interrupted()
            if admin is not None and throttled:
                throttler = LeaseGuardedAdmin(admin, lease)
                end_throttle(settings, cluster, plan, throttler, self.commit_log.attempt)

    def _record_interrupted(self) -> None:
        """Record the outcomes of partitions whose cancellation was intended by a command that was then killed."""
        rows = self.settings.warehouse.typed_rows(CommitRecord, ("plan_id", "=", self.plan.plan_id))
        steps = [
            ((*row.change, row.action), row.outcome)
            for row in rows
            if row.action in STATUS_BEFORE and row.change is not None
        ]
        ended = {step for step, outcome in steps if outcome != Outcome.PENDING}
        interrupted = sorted({step for step, _ in steps} - ended)
        moves = {(change.wave, change.key): change for change in self.plan.changes if change.action == Action.REASSIGN}
        changes = [moves[wave, (topic, partition)] for wave, topic, partition, _ in interrupted]
        self.cluster.sync()
        partitions = self.cluster.read_partitions({change.key for change in changes})
        statuses = partitions_of(self.cluster.read_cluster(), [[change] for change in changes], partitions)
        outcomes = []
        for (*_, action), row in zip(interrupted, statuses, strict=True):
            reason = ended_reason(row, self.undo_command)
            if row.status is STATUS_BEFORE[Step(action)]:
                reason = Outcome.UNKNOWN, f"the cancellation that requested it was killed; {row.detail}"
            outcomes.append(RowOutcome(replace(row.change, action=action), *reason))
        self.commit_log.append_now(outcomes)


def cancel_plan(
    settings: Settings,
    plan: str,
    approve: Approve | None,
    *,
    apply: bool,
    skip_unsafe: bool,
    fewer_copies: bool,
) -> CommandResult:
    """Cancel a plan, or show what that would do."""
    stored_plan = read_plan(settings.warehouse, plan)
    with settings.connect() as cluster:
        cancellation = read_cancellation(cluster, settings, stored_plan, fewer_copies=fewer_copies)
        warned = below_min_isr_warnings(settings, cluster, cancellation.safe)
        lines, steps = [*cancellation_lines(stored_plan, cancellation)], _steps(settings, stored_plan, cancellation)
        shown = cancellation_json(stored_plan, cancellation)
        try:
            refuse_unsafe(f"plan {stored_plan.title} is not", cancellation.partitions, skip_unsafe=skip_unsafe)
        except RefusedError as error:
            error.result = shown
            raise
        if not _has_work(stored_plan, cancellation):
            title = f"plan {stored_plan.title}: nothing is left to cancel"
            return CommandResult(shown, title, *lines, steps=steps, warnings=[])
        title = f"plan {stored_plan.title}: {counts_in_words(cancellation)}"
        if not apply:
            again = same_step(settings, "apply", "cancel", stored_plan.called, "--apply")
            return dry_run(shown, title, lines, [again, *steps], warned)
        refuse_unapproved("cancel it?", [title], warned, approve)
        outcomes = cancel_running(settings, cluster, stored_plan, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)
        was_planned = stored_plan.row.status == PlanStatus.PLANNED
        stored_plan = read_plan(settings.warehouse, stored_plan.plan_id)
        cancellation = read_cancellation(cluster, settings, stored_plan, fewer_copies=fewer_copies)
        return _report(settings, stored_plan, cancellation, outcomes, is_discarded=was_planned and not outcomes)


def _has_work(plan: Plan, cancellation: CancellationPlan) -> bool:
    """Return whether there is anything to cancel: a plan that was committed completely stays committed."""
    cancellable = (ReassignmentStatus.IN_PROGRESS, ReassignmentStatus.NOT_STARTED, ReassignmentStatus.OUT_OF_ORDER)
    return plan.row.status != PlanStatus.COMMITTED or any(cancellation.of(status) for status in cancellable)


def _report(
    settings: Settings,
    plan: Plan,
    cancellation: CancellationPlan,
    outcomes: Sequence[RowOutcome],
    *,
    is_discarded: bool,
) -> CommandResult:
    result = cancellation_json(plan, cancellation, outcomes)
    failed = [outcome for outcome in outcomes if outcome.outcome in {Outcome.FAILED, Outcome.UNKNOWN}]
    failures = unapplied_lines(outcomes)
    counts = "discarded, no commit applied anything of it" if is_discarded else counts_in_words(cancellation, outcomes)
    title = f"plan {plan.title}: {plan.row.status}; {counts}"
    is_unfinished = bool(failed or cancellation.safe or cancellation.of(ReassignmentStatus.OUT_OF_ORDER))
    steps = [] if is_discarded else _steps(settings, plan, cancellation, again=is_unfinished)
    # moves that continue keep the throttle
    left = [] if cancellation.of(ReassignmentStatus.IN_PROGRESS) else throttle_rows(settings.warehouse, plan.plan_id)
    if left and not is_unfinished:
        steps = [remove_throttle(settings, plan), *steps]
    return CommandResult(
        result | {"throttled": bool(left)},
        title,
        *([f"  {not_removed_text(left)}"] if left else ()),
        *failures[:LINES_SHOWN],
        *(() if is_discarded else cancellation_lines(plan, cancellation)),
        steps=steps,
        warnings=[],
        exit_code=ExitCode.ERROR if is_unfinished or left else ExitCode.DONE,
    )


def _steps(settings: Settings, plan: Plan, cancellation: CancellationPlan, *, again: bool = False) -> list[Suggestion]:
    complete = plan.row.status != PlanStatus.PLANNED and bool(cancellation.of(ReassignmentStatus.COMPLETE))
    return after_cancellation(settings, plan, again=again, complete=complete)
