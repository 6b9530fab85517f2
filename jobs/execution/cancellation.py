"""`surveyor cancel PLAN`: close the plan, then store and commit another plan, which turns its reassignments back.

Once a plan is closed, no commit continues with it. Therefore a later reading of the cluster contains all moves to be
cancelled. Kafka's controller leaves the replicas in the order of the target. If the former order was different, it
is requested, which moves no data. A crash at any point leaves a closed plan, and the plan that cancels it as far as
committed. The same command, run again, finishes that plan and cancels the rest.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.plans import after_cancellation, remove_throttle
from jobs.console_output.cancellation import cancellation_json, cancellation_lines, counts_in_words
from jobs.core.errors import ExitCode, RefusedError
from jobs.core.migration_refusal import refuse_migration
from jobs.execution.admin.admin_commit import end_throttle
from jobs.execution.admin.commit_lease import lease_for
from jobs.execution.admin.connections import controller_of
from jobs.execution.admin.reassignment_options import DEFAULT
from jobs.execution.admin.throttle_texts import not_removed_text
from jobs.execution.admin.throttles import throttle_rows
from jobs.execution.cancellation_commit import (
    cancellation_of,
    cancellations,
    carry_out,
    parameters_of,
    store_cancellation,
)
from jobs.execution.cancellation_review import below_min_isr_warnings, dry_run, refuse_unapproved
from jobs.execution.commit_report import unapplied_lines
from jobs.preconditions.cancellation_plan import CancellationPlan, plan_cancellation, refuse_cancellation
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.plans.commit_log import CommitLog, requested_changes
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from jobs.repositories.plans.plans_writer import apply_transition
from jobs.runtime.approval import Approve
from jobs.runtime.console import CommandResult
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_step
from planner.reassignment.reassignment_status import ReassignmentStatus, ReassignmentStep, cancelled_replicas
from schemas.enums import Action, Outcome, PlanStatus, Step
from schemas.rows import Change, CommitRecord
from schemas.stored_plan import BEGUN, Plan, RowOutcome, Transition
from schemas.text import LINES_SHOWN, abbreviate


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
    plans = [plan.plan_id, *(row.plan_id for row in cancellations(warehouse, plan.plan_id))]
    requested = {
        (topic, partition) for plan_id in plans for _, topic, partition in requested_changes(warehouse, plan_id)
    }
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
    """Close the plan, plan the cancellation of what runs of it under the lease, and commit that plan at once.

    A commit that has released the lease has sent all its requests, so the new plan has all moves of the closed one.
    """
    if plan.row.status != PlanStatus.CANCELLED:
        apply_transition(settings.warehouse, plan.plan_id, Transition.CANCEL)
        commit_log = CommitLog.open(settings.warehouse, plan)
        commit_log.step(Step.CANCEL, Outcome.APPLIED, f"closed; it was {plan.row.status}")
    if not (_was_requested(settings.warehouse, plan) or _is_being_committed(cluster, plan)):
        cancellation = read_cancellation(cluster, settings, plan)
        if not (cancellation.of(ReassignmentStatus.IN_PROGRESS) or cancellation.of(ReassignmentStatus.OUT_OF_ORDER)):
            return []
    with lease_for(settings, cluster, plan.plan_id, "cancel", settings.pace.lease_handover) as lease:
        is_resident = cluster.read_resident_controller() is not None
        with controller_of(
            settings, cluster, cluster.read_cluster(), is_resident=is_resident, running=DEFAULT, lease=lease
        ) as (controller, throttler):
            goal, outcomes = parameters_of(skip_unsafe, fewer_copies, cancel_of=plan.plan_id), list[RowOutcome]()
            for row in cancellations(settings.warehouse, plan.plan_id):
                if row.status in BEGUN and row.options == goal:
                    begun = read_plan(settings.warehouse, row.plan_id)
                    outcomes += carry_out(settings, cluster, begun, controller, lease)
                elif row.status in BEGUN:  # the new plan has the rest of it, with other options
                    apply_transition(settings.warehouse, row.plan_id, Transition.CANCEL)
            now = read_cancellation(cluster, settings, plan, fewer_copies=fewer_copies)
            now.refuse_unsafe(f"plan {plan.title} is not", skip_unsafe=skip_unsafe)
            changes = [*_rows(now, fewer_copies=fewer_copies)]
            if changes:
                stored = store_cancellation(settings.warehouse, now, goal, changes)
                outcomes += carry_out(settings, cluster, stored, controller, lease)
            if throttle_rows(settings.warehouse, plan.plan_id):
                end_throttle(settings, cluster, plan, throttler)
    return outcomes


def _rows(cancellation: CancellationPlan, *, fewer_copies: bool) -> Iterator[Change]:
    """Yield the cancellations, and in a second wave the changes that restore orders of replicas, which Kafka does not.

    These move no data.
    """
    for row in [*cancellation.safe, *cancellation.of(ReassignmentStatus.OUT_OF_ORDER)]:
        step = row.change
        if isinstance(step, Change):
            back = cancellation_of(row, step, fewer_copies=fewer_copies)
            if row.is_being_reassigned:
                yield back
            left = cancelled_replicas(ReassignmentStep(back.replicas_after, step.replicas_after))
            if left != back.replicas_after:
                columns = {"replicas_before": left, "adding_before": [], "removing_before": [], "requires_live": []}
                reason = "restores the order of the replicas"
                yield replace(back, wave=1, action=Action.REASSIGN.value, reason=reason, **columns)


def _is_being_committed(cluster: Cluster, plan: Plan) -> bool:
    """Return whether a commit of this plan is running; it may be about to send requests."""
    holder = cluster.read_lease_holder()
    return holder is not None and holder.plan == plan.plan_id


def _was_requested(warehouse: Warehouse, plan: Plan) -> bool:
    """Return whether a commit has ever requested a reassignment of the plan, or may have."""
    rows = warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id))
    return any(row.action == Action.REASSIGN and row.outcome != Outcome.STALE for row in rows)


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
            cancellation.refuse_unsafe(f"plan {stored_plan.title} is not", skip_unsafe=skip_unsafe)
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
    by = [row.plan_id for row in cancellations(settings.warehouse, plan.plan_id)]
    if left and not is_unfinished:
        steps = [remove_throttle(settings, plan), *steps]
    return CommandResult(
        result | {"throttled": bool(left), "cancelled_by": by},
        title,
        *([f"  {not_removed_text(left)}"] if left else ()),
        *failures[:LINES_SHOWN],
        *(() if is_discarded else cancellation_lines(plan, cancellation)),
        *([f"  by {'plans' if len(by) > 1 else 'plan'} {abbreviate(by)}"] if by else ()),
        steps=steps,
        warnings=[],
        exit_code=ExitCode.ERROR if is_unfinished or left else ExitCode.DONE,
    )


def _steps(settings: Settings, plan: Plan, cancellation: CancellationPlan, *, again: bool = False) -> list[Suggestion]:
    complete = plan.row.status != PlanStatus.PLANNED and bool(cancellation.of(ReassignmentStatus.COMPLETE))
    return after_cancellation(settings, plan, again=again, complete=complete)
