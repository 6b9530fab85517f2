"""Cancellation of a plan: close the plan, request cancellations from the controller, and read back what happened.

Once a plan is closed, no commit continues with it. Therefore a later reading of the cluster contains all moves to be
cancelled. Kafka's controller leaves the replicas in the order of the target. If the former order was different, it
is requested, which moves no data. A crash at any point leaves a closed plan, and the cluster shows how far each
partition is. The same command, run again, cancels the rest.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from jobs.adapters.brokers.admin_client import Admin
from jobs.adapters.cluster_connections.interface import ClusterConnection, ClusterReader, Lease
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import poll_until
from jobs.advice.plans import after_cancellation, remove_throttle
from jobs.console_output.cancellation import cancellation_json, cancellation_lines, counts_in_words
from jobs.console_output.commit_events import Report, WarningsGiven
from jobs.core.errors import ExitCode, RefusedError, SurveyorError
from jobs.core.migration_signs import refuse_migration
from jobs.execution.admin.admin_commit import end_throttle
from jobs.execution.admin.cancellation_requests import (
    CancellationRequests,
    Reason,
    Verdict,
    below_min_isr_warnings,
    ended_reason,
    unsafe_refusal,
)
from jobs.execution.admin.connections import LEASE_HANDOVER_SECONDS, LeaseGuardedAdmin, admin_of, lease_for
from jobs.execution.admin.resident_controller_client import ZkReassignmentOverride
from jobs.execution.admin.throttles import not_removed_text, throttle_rows
from jobs.execution.commit_report import unapplied_lines
from jobs.preconditions.cancellation_plan import (
    CancellationPlan,
    PartitionStatus,
    partitions_of,
    plan_cancellation,
    refuse_cancellation,
)
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.plans.commit_log import CommitLog, requested_changes
from jobs.repositories.plans.plans_table import apply_transition
from jobs.repositories.plans.repository import read_plan, refuse_edited
from jobs.runtime.console import CommandResult, keep_warnings
from jobs.runtime.progress import progress
from jobs.runtime.review import Approve, Review, warning_lines
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_step
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.enums import Action, Outcome, PlanStatus, Step
from schemas.plan import Plan, RowOutcome, Transition
from schemas.rows import Brokers, Change, CommitRecord, Key, PlanRow, changes_among
from schemas.text import LINES_SHOWN

_STATUS_BEFORE: Final = {
    Step.CANCEL: ReassignmentStatus.IN_PROGRESS,
    Step.RESTORE_ORDER: ReassignmentStatus.OUT_OF_ORDER,
}
"""The status of a partition before each step; the step is done once the partition no longer has it."""


def _unsafe_refusal(subject: str, cancellation: CancellationPlan) -> RefusedError | None:
    """Return the refusal, with the reason for each partition, if a cancellation would lose data or replicas."""
    risks = ((status.change.name, status.risk) for status in cancellation.partitions)
    return unsafe_refusal(f"{subject} is not", risks)


def read_cancellation(
    reader: ClusterReader,
    settings: Settings,
    plan: Plan,
    steps: Collection[Change] | None = None,
    *,
    fewer_copies: bool = False,
) -> CancellationPlan:
    """Read the cluster, and return the status of everything in a plan, or of these reassignments, each on its own.

    Raise RefusedError if plan or cluster do not allow a cancellation. An order of replicas that no request of this plan
    has left is another client's.
    """
    refuse_cancellation(plan)
    refuse_edited(plan)
    state = reader.read_cluster()
    refuse_migration(state.migration)
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    if steps is not None:
        current = reader.read_current([*steps])
        movable_plan = dataclasses.replace(plan, changes=[*steps])
        cancellation = plan_cancellation(movable_plan, state, current, None, fewer_copies=fewer_copies)
        return _without_foreign_orders(settings.warehouse, plan, cancellation)
    current = reader.read_current(plan.changes)
    has_others = plan.tasks or any(change.action != Action.REASSIGN for change in plan.changes)
    operations = reader.read_operations(plan.operations) if has_others else None
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
    cluster: ClusterConnection,
    plan: Plan,
    *,
    skip_unsafe: bool,
    fewer_copies: bool = False,
    report: Report,
) -> list[RowOutcome]:
    """Close the plan and cancel what runs of it; return the outcome of each requested partition."""
    commit_log = CommitLog.open(settings.warehouse, plan)
    if plan.row.status != PlanStatus.CANCELLED:
        apply_transition(settings.warehouse, plan.plan_id, Transition.CANCEL)
        commit_log.step(Step.CANCEL, Outcome.APPLIED, f"closed; it was {plan.row.status}")
    with cluster.reading() as reader:
        cancellation = read_cancellation(reader, settings, plan)
        was_requested = _was_requested(settings.warehouse, plan) or _is_being_committed(reader, plan)
        if not (
            was_requested
            or cancellation.of(ReassignmentStatus.IN_PROGRESS)
            or cancellation.of(ReassignmentStatus.OUT_OF_ORDER)
        ):
            return []
        with lease_for(settings, cluster, plan.plan_id, "cancel", LEASE_HANDOVER_SECONDS) as lease:
            return _cancel_leased(
                settings,
                reader,
                plan,
                commit_log,
                lease,
                skip_unsafe=skip_unsafe,
                fewer_copies=fewer_copies,
                report=report,
            )


def _cancel_leased(
    settings: Settings,
    reader: ClusterReader,
    plan: Plan,
    commit_log: CommitLog,
    lease: Lease,
    *,
    skip_unsafe: bool,
    fewer_copies: bool,
    report: Report,
) -> list[RowOutcome]:
    """Cancel under the lease, when no commit of the plan can still send requests.

    A commit that has released the lease has sent all its requests. In-sync replicas are checked once the Admin API
    answers, and again once the intents are stored, just before the cancellation is requested.
    """
    with ExitStack() as stack:
        is_resident = reader.read_resident_controller() is not None
        throttled = bool(throttle_rows(settings.warehouse, plan.plan_id))
        needs_admin = throttled or not is_resident
        admin = stack.enter_context(admin_of(settings, reader.read_cluster())) if needs_admin else None
        cancellation = read_cancellation(reader, settings, plan, fewer_copies=fewer_copies)
        refused = None if skip_unsafe else _unsafe_refusal(f"plan {plan.title}", cancellation)
        if refused is not None:
            raise refused
        controller = ZkReassignmentOverride(reader.zookeeper_client) if is_resident or admin is None else admin
        run = _CancellationRun(
            settings, plan, commit_log, reader, controller, cancellation, lease, skip_unsafe, fewer_copies
        )
        outcomes = run.cancel(cancellation.safe)
        outcomes += run.restore(run.read([*cancellation.safe, *cancellation.of(ReassignmentStatus.OUT_OF_ORDER)]))
        run.record_interrupted()
        if admin is not None and throttled:
            end_throttle(settings, reader, plan, LeaseGuardedAdmin(admin, lease), commit_log.attempt, report=report)
    return outcomes


def _is_being_committed(reader: ClusterReader, plan: Plan) -> bool:
    """Return whether a commit of this plan is running; it may be about to send requests."""
    holder = reader.read_lease_holder()
    return holder is not None and holder.plan == plan.plan_id


def _was_requested(warehouse: Warehouse, plan: Plan) -> bool:
    """Return whether a commit has ever requested a reassignment of the plan, or may have."""
    rows = warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id))
    return any(row.action == Action.REASSIGN and row.outcome != Outcome.STALE for row in rows)


@dataclass(frozen=True, slots=True)
class _CancellationRun:
    settings: Settings
    plan: Plan
    commit_log: CommitLog
    reader: ClusterReader
    controller: Admin | ZkReassignmentOverride
    cancellation: CancellationPlan
    lease: Lease
    skip_unsafe: bool
    fewer_copies: bool

    def read(self, partitions: Iterable[PartitionStatus]) -> dict[Key, PartitionStatus]:
        """Read how far the step of each partition is now."""
        statuses = self.read_steps(changes_among([partition.change for partition in partitions]))
        return {status.key: status for status in statuses}

    def read_steps(self, steps: Sequence[Change]) -> list[PartitionStatus]:
        """Read how far each of these steps is now, on its own."""
        self.reader.sync()
        partitions = self.reader.read_partitions({step.key for step in steps})
        return partitions_of(self.cancellation.state, [[step] for step in steps], partitions)

    def cancel(self, in_progress: Sequence[PartitionStatus]) -> list[RowOutcome]:
        requests = self._new_requests()
        return self._carry_out(Step.CANCEL, in_progress, requests, partial(self._check_cancellation, requests))

    def restore(self, statuses: Mapping[Key, PartitionStatus]) -> list[RowOutcome]:
        """Request the order before for partitions in which only the order differs."""
        out_of_order = [status for status in statuses.values() if status.status is ReassignmentStatus.OUT_OF_ORDER]
        return self._carry_out(Step.RESTORE_ORDER, out_of_order, self._new_requests(), self._check_order)

    def _new_requests(self) -> CancellationRequests:
        return CancellationRequests(self.reader, self.controller, self.lease)

    def _check_cancellation(self, requests: CancellationRequests, in_progress: Sequence[PartitionStatus]) -> Verdict:
        """Set partitions aside that are no longer safe to cancel or no longer in progress.

        A reassignment that another client has requested since is left alone, and is not checked.
        """
        steps = changes_among([status.change for status in in_progress])
        cancellation = read_cancellation(self.reader, self.settings, self.plan, steps, fewer_copies=self.fewer_copies)
        now = {status.key: status for status in cancellation.partitions}
        targets: dict[Key, list[int] | None] = {}
        set_aside: dict[Key, Reason] = {}
        for status in in_progress:
            current = now[status.key]
            if current.risk is not None:
                set_aside[status.key] = Outcome.SKIPPED, reasons.CONTINUES.render(risk=current.risk.reason)
            elif current.status is ReassignmentStatus.IN_PROGRESS:
                # a request in /admin names the target replicas; the Admin API takes None to cancel
                targets[status.key] = _replicas_before(status) if requests.is_resident else None
            else:
                set_aside[status.key] = _changed_reason(current)
        whole = "" if len(in_progress) == len(self.cancellation.safe) else "the rest of "
        refusal = None if self.skip_unsafe else _unsafe_refusal(f"{whole}plan {self.plan.title}", cancellation)
        return Verdict(targets, set_aside, refusal)

    def _check_order(self, out_of_order: Sequence[PartitionStatus]) -> Verdict:
        """Set aside partitions that another client has moved."""
        now = self.read(out_of_order)
        due = [status for status in out_of_order if now[status.key].status is ReassignmentStatus.OUT_OF_ORDER]
        targets = {status.key: _replicas_before(status) for status in due}
        outcomes = {
            key: (Outcome.STALE, f"left alone: {current.detail}") for key, current in now.items() if key not in targets
        }
        return Verdict(targets, outcomes)

    def record_interrupted(self) -> None:
        """Record the outcomes of partitions whose cancellation was intended by a command that was then killed."""
        rows = self.settings.warehouse.typed_rows(CommitRecord, ("plan_id", "=", self.plan.plan_id))
        steps = [
            ((*row.change, row.action), row.outcome)
            for row in rows
            if row.action in _STATUS_BEFORE and row.change is not None
        ]
        ended = {step for step, outcome in steps if outcome != Outcome.PENDING}
        unfinished = {step for step, _ in steps} - ended
        moves = {(change.wave, change.key): change for change in self.plan.changes if change.action == Action.REASSIGN}
        interrupted = sorted(unfinished)
        statuses = self.read_steps([moves[wave, (topic, partition)] for wave, topic, partition, _ in interrupted])
        outcomes = []
        for (*_, action), current in zip(interrupted, statuses, strict=True):
            killed = Outcome.UNKNOWN, f"the cancellation that requested it was killed; {current.detail}"
            outcomes.append(_outcome(current, Step(action), killed))
        self.commit_log.append_now(outcomes)

    def _carry_out(
        self,
        step: Step,
        partitions: Sequence[PartitionStatus],
        requests: CancellationRequests,
        check: Callable[[Sequence[PartitionStatus]], Verdict],
    ) -> list[RowOutcome]:
        """Record the intents, request all in as many requests as needed, and record the outcomes.

        After an error the partitions requested before it, and the others, get their outcomes as well.
        """
        if not partitions:
            return []
        self.commit_log.append_now(RowOutcome(_row(partition, step), Outcome.PENDING, "") for partition in partitions)
        before = {partition.key: partition for partition in partitions}
        try:
            with progress(f"asking Kafka's controller: {step}"):
                requests.send([*before], lambda keys: check([before[key] for key in keys]))
        except SurveyorError as error:
            self._record(step, before, requests, error)
            raise
        return self._record(step, before, requests, None)

    def _record(
        self,
        step: Step,
        before: Mapping[Key, PartitionStatus],
        requests: CancellationRequests,
        error: SurveyorError | None,
    ) -> list[RowOutcome]:
        """Record all outcomes; wait until the cluster shows the outcomes of requests, because an answer may be lost."""
        unrequested = dict.fromkeys(before.keys() - {*requests.requested}, requests.unrequested_reason(error))
        untried = unrequested | requests.set_aside
        skipped = [RowOutcome(_row(before[key], step), *untried[key]) for key in before if key in untried]
        self.commit_log.append_now(skipped)
        requested = [before[key] for key in requests.requested]
        statuses = self._wait(step, requested, requests) if requested else {}
        outcomes = [
            RowOutcome(_row(before[key], step), Outcome.UNKNOWN, f"requested, and moving back: {current.detail}")
            if requests.is_resident and current.status is ReassignmentStatus.DIVERGED and key not in requests.refused
            else _outcome(current, step, requests.unchanged_reason(key, current.detail))
            for key, current in statuses.items()
        ]
        self.commit_log.append_now(outcomes)
        return [*skipped, *outcomes]

    def _wait(
        self, step: Step, requested: Sequence[PartitionStatus], requests: CancellationRequests
    ) -> dict[Key, PartitionStatus]:
        unfinished = {_STATUS_BEFORE[step]} | ({ReassignmentStatus.DIVERGED} if requests.is_resident else set())

        def are_finished(statuses: Mapping[Key, PartitionStatus]) -> bool:
            waiting = {key for key, status in statuses.items() if status.is_unknown or status.status in unfinished}
            return not waiting - requests.unsafe_partitions

        return poll_until(lambda: self.read(requested), are_finished, requests.timeout_seconds)


def _replicas_before(partition: PartitionStatus) -> Brokers | None:
    return partition.change.replicas_before if isinstance(partition.change, Change) else None


def _row(partition: PartitionStatus, step: Step) -> PlanRow:
    """The row of the commit log for a step of this partition."""
    return replace(partition.change, action=step.value)


def _outcome(now: PartitionStatus, step: Step, unchanged: Reason) -> RowOutcome:
    """Check a step by the status now; `unchanged` is the outcome if it is as before."""
    reason = unchanged if now.status is _STATUS_BEFORE[step] else _changed_reason(now)
    return RowOutcome(_row(now, step), *reason)


def _changed_reason(now: PartitionStatus) -> Reason:
    if now.is_unknown:
        return Outcome.UNKNOWN, reasons.UNREAD_NOW.render(fault=now.detail)
    return ended_reason(now.status, now.detail, is_stranded=now.stranded, undo_command="surveyor rollback")


def cancel_plan(
    settings: Settings,
    plan: str,
    approve: Approve | None,
    *,
    apply: bool,
    skip_unsafe: bool,
    fewer_copies: bool,
    report: Report,
) -> CommandResult:
    """Cancel a plan, or show what that would do."""
    stored_plan = read_plan(settings.warehouse, plan)
    with settings.connection as cluster:
        return _cancel_stored(
            settings,
            cluster,
            stored_plan,
            approve,
            apply=apply,
            skip_unsafe=skip_unsafe,
            fewer_copies=fewer_copies,
            report=report,
        )


def _cancel_stored(
    settings: Settings,
    cluster: ClusterConnection,
    stored_plan: Plan,
    approve: Approve | None,
    *,
    apply: bool,
    skip_unsafe: bool,
    fewer_copies: bool,
    report: Report,
) -> CommandResult:
    with cluster.reading() as reader:
        cancellation = read_cancellation(reader, settings, stored_plan, fewer_copies=fewer_copies)
    if not skip_unsafe:
        _refuse(stored_plan, cancellation)
    if not _has_work(stored_plan, cancellation):
        return CommandResult(
            cancellation_json(stored_plan, cancellation),
            f"plan {stored_plan.title}: nothing is left to cancel",
            *cancellation_lines(stored_plan, cancellation),
            steps=_steps(settings, stored_plan, cancellation),
            warnings=[],
        )
    title = f"plan {stored_plan.title}: {counts_in_words(cancellation)}"
    with cluster.reading() as reader:
        isr_after = {status.key: status.isr_after for status in cancellation.safe}
        warned = below_min_isr_warnings(settings, reader, isr_after)
    if not apply:
        dry = cancellation_json(stored_plan, cancellation) | {"dry_run": True}
        note = "dry run: nothing was written; --apply writes"
        steps = [
            same_step(settings, "apply", "cancel", stored_plan.called, "--apply"),
            *_steps(settings, stored_plan, cancellation),
        ]
        lines = [*cancellation_lines(stored_plan, cancellation), *warning_lines(warned), note]
        return CommandResult(dry, title, *lines, steps=steps, warnings=warned)
    keep_warnings(warned)
    if approve is None:
        report(WarningsGiven(warned))
    elif not approve(Review("cancel it?", [title, *warning_lines(warned)], warnings=warned)):
        raise SurveyorError("not cancelled: the question was not answered with yes")
    outcomes = cancel_running(
        settings, cluster, stored_plan, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies, report=report
    )
    was_planned = stored_plan.row.status == PlanStatus.PLANNED
    stored_plan = read_plan(settings.warehouse, stored_plan.plan_id)
    with cluster.reading() as reader:
        cancellation = read_cancellation(reader, settings, stored_plan, fewer_copies=fewer_copies)
    return _report(settings, stored_plan, cancellation, outcomes, is_discarded=was_planned and not outcomes)


def _refuse(plan: Plan, cancellation: CancellationPlan) -> None:
    if refusal := _unsafe_refusal(f"plan {plan.title}", cancellation):
        refusal.result = cancellation_json(plan, cancellation)
        raise refusal


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
