"""A commit in any mode: check the rows, write those that are pending, and record the outcomes.

A row is pending, already applied, or stale. The modes share everything up to the writing: the plan is checked against
the limits, the cluster is read, and each row is checked.

If `surveyor control` is the controller, the plan is submitted to it, and it returns the result. An interrupted commit
withdraws its plan; if the controller has begun with it, the controller still carries it out.
"""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession, with_retries
from jobs.adapters.zookeeper.controllership import MAX_TAKEOVER_ATTEMPTS, OvertakenError, session_of
from jobs.adapters.zookeeper.plan_submission import path_of, read_resident_controller, submit, withdraw
from jobs.adapters.zookeeper.znode_reads import read_latest
from jobs.advice.plans import after_commit, remove_throttle
from jobs.console_output.plan_text import pending_summary
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UnreadableError
from jobs.core.signals import defer_signals, raise_on_signal, uninterruptible
from jobs.execution.admin.admin_commit import commit_admin, end_throttle, maintain_throttle
from jobs.execution.admin.commit_lease import lease_for
from jobs.execution.admin.connections import LeaseGuardedAdmin, admin_of, controller_of
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.throttle_configs import Throttle, parse_throttle
from jobs.execution.admin.throttle_texts import not_removed_text, other_throttle_line
from jobs.execution.admin.throttles import other_throttled_plans, throttle_rows
from jobs.execution.admin.wave_progress import moving_partitions, read_blocked
from jobs.execution.batch.batch_commit import CommitContext, HeldControllership, commit_batch
from jobs.execution.batch.notification import HoldBudget
from jobs.execution.commit_options import CommitOptions
from jobs.execution.commit_report import ReportExtras, refuse_unapproved, report_applied, report_dry
from jobs.execution.mode_selection import refuse_resident_drain
from jobs.execution.partial_plan_closing import close_ended_plans
from jobs.execution.preflight import Preflight, check_before_commit, recheck
from jobs.preconditions.limits import UNCOMMITTABLE, refuse_other_cluster
from jobs.preconditions.reassignment_progress import reassignments_of
from jobs.repositories.actor import Actor, this_actor, this_process
from jobs.repositories.plans.commit_log import CommitLog, count_outcomes
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.plans.plans_writer import record_submission
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult, Result, log
from jobs.runtime.progress import progress
from jobs.runtime.settings import NO_THROTTLE, Settings
from schemas.enums import Outcome, PlanStatus
from schemas.stored_plan import Plan
from schemas.submitted_plan import PlanResult, SubmittedPlan, decode_submitted, encode_submitted, submission_of
from schemas.text import pluralise
from schemas.znode_codecs import MalformedZnodeError

_POLL_SECONDS: Final = 0.2


def apply_plan(
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    preflight: Preflight,
    max_hold: float,
    *,
    held: HeldControllership | None = None,
    running: ReassignmentOptions = DEFAULT,
    author: Actor | None = None,
) -> CommitLog:
    """Write the pending rows and record the outcomes; `author` is recorded if it is not this process.

    Admin mode needs the cluster's lease. A caller that holds the controllership defers signals itself, perhaps in
    another thread.
    """
    is_requested = preflight.mode is Mode.ADMIN and (
        preflight.pending or running.watches or bool(throttle_rows(settings.warehouse, plan.plan_id))
    )
    with ExitStack() as stack:
        lease = stack.enter_context(lease_for(settings, cluster, plan.plan_id, "commit")) if is_requested else None
        if lease is None and held is None:
            stack.enter_context(defer_signals())
        due = pending_summary(plan, preflight.pending)
        log(f"  mode {preflight.mode} ({preflight.reason}); {due}")
        in_use = preflight.being_committed if lease is None else set()
        for other in other_throttled_plans(settings.warehouse, {plan.plan_id, *in_use}):
            log(other_throttle_line(other))
        commit_log = CommitLog.open(settings.warehouse, plan, author)
        commit_log.controller_epoch = commit_log.written_under = None if held is None else held.control.epoch
        commit_log.broker_epochs = preflight.state.live
        commit_log.set_preflight_outcomes(preflight.already_decided)
        try:
            if lease is not None:
                is_resident = preflight.resident_controller is not None
                with controller_of(
                    settings, cluster, preflight.state, is_resident=is_resident, running=running, lease=lease
                ) as (controller, throttler):
                    commit_admin(
                        settings,
                        cluster,
                        commit_log,
                        controller,
                        preflight.pending,
                        lease=lease,
                        running=running,
                        throttler=throttler,
                    )
            else:
                _write_pending(settings, cluster, commit_log, preflight, max_hold, held=held)
        except SurveyorError as error:
            error.result = {"plan_id": plan.plan_id, **commit_log.counts()}
            raise
        finally:
            commit_log.close()
        commit_log.blocked = _blocked(cluster, plan)
    return commit_log


def _blocked(cluster: Cluster, plan: Plan) -> str:
    """Return what the requested moves wait for; an error here must not hide that they were requested."""
    if not reassignments_of(plan):
        return ""
    try:
        return read_blocked(cluster, plan)
    except SurveyorError as error:
        return f"whether moves wait for a broker is unknown: {error}"


def _write_pending(
    settings: Settings,
    cluster: Cluster,
    commit_log: CommitLog,
    preflight: Preflight,
    max_hold: float,
    *,
    held: HeldControllership | None,
) -> None:
    """Write the pending rows as the controller; if another controller has taken over in between, check them again.

    That controller may be a commit of the same plan.
    """
    for _ in range(MAX_TAKEOVER_ATTEMPTS):
        if not preflight.pending:
            log("  nothing is due")
            return
        hold, since = HoldBudget(max_hold, preflight.limits.allow_silent), preflight.state.controller_epoch
        context = CommitContext(settings, cluster.required_fence, commit_log, hold, since, preflight.latest_epoch, held)
        try:
            commit_batch(context, preflight.pending)
        except OvertakenError as overtaken:
            log(f"  {overtaken}: the pending rows are judged again")
        else:
            return
        preflight = recheck(settings, cluster, commit_log.plan, preflight)
        commit_log.begin_again(preflight.already_decided)
    raise SurveyorError(
        f"another controller took over {MAX_TAKEOVER_ATTEMPTS} times while the pending rows were judged: nothing was "
        "written; find out which processes compete for /controller (broker logs: 'Controller'), then commit again"
    )


def commit_plan(settings: Settings, plan: str, options: CommitOptions) -> CommandResult:
    """Apply a plan, or show what that would do; for a closed or committed plan, maintain its throttle."""
    stored_plan = read_plan(settings.warehouse, plan)
    apply, running, status = options.apply, options.running, stored_plan.row.status
    with settings.connect() as cluster:
        if (
            apply
            and status in UNCOMMITTABLE
            and (running.throttle is not None or throttle_rows(settings.warehouse, stored_plan.plan_id))
        ):
            return _maintain_throttle_only(settings, cluster, stored_plan, running.throttle)
        if status == PlanStatus.COMMITTED and not (apply and _needs_watching(settings, cluster, stored_plan, running)):
            return _already_committed(settings, cluster, stored_plan, apply=apply)
        running = _with_default_throttle(settings, stored_plan, running)
        try:
            preflight = check_before_commit(
                settings, cluster, stored_plan, options.mode, options.limits, running=running
            )
        except RefusedError:
            if apply:
                _clear_stale_throttle(settings, cluster, stored_plan)
            raise
        if preflight.resident_controller is None:
            refuse_resident_drain(stored_plan)
        if not apply:
            return report_dry(settings, cluster, stored_plan, preflight, options, extras=ReportExtras())
        refuse_unapproved(settings, stored_plan, preflight, options, ReportExtras())
        if preflight.resident_controller is not None and preflight.mode is Mode.BATCH:
            return submit_and_wait(settings, cluster.required_fence, stored_plan, preflight, options)
        commit_log = apply_plan(settings, cluster, stored_plan, preflight, options.hold, running=running)
        close_ended_plans(settings, cluster)
        return report_applied(settings, stored_plan, commit_log, ReportExtras(), detailed=options.detailed)


def _with_default_throttle(settings: Settings, plan: Plan, running: ReassignmentOptions) -> ReassignmentOptions:
    """Add the throttle of the conf for a plan that copies replicas, unless a throttle is given or set already."""
    configured, copies = settings.conf.throttle, any(change.moves_replicas for change in reassignments_of(plan))
    if running.throttle is not None or not copies or throttle_rows(settings.warehouse, plan.plan_id):
        return running
    return running if configured in {None, NO_THROTTLE} else replace(running, throttle=parse_throttle(str(configured)))


def _maintain_throttle_only(
    settings: Settings, cluster: Cluster, plan: Plan, throttle: Throttle | None
) -> CommandResult:
    """Maintain the throttle of a closed plan, and report how many of its partitions still move."""
    moving = maintain_throttle(settings, cluster, plan, throttle)
    result: Result = {"plan_id": plan.plan_id, "status": plan.row.status, "applied_now": 0, "moving": moving}
    title = f"plan {plan.title} is {plan.row.status}: no change was requested, only its throttle was maintained"
    steps = after_commit(settings, plan.called, PlanStatus.COMMITTED, {}) if moving else []
    left = [] if moving else throttle_rows(settings.warehouse, plan.plan_id)
    return CommandResult(
        result | count_outcomes([]),
        title,
        f"  {pluralise(moving, 'partition', 'still moves', 'still move')}",
        *([f"  {not_removed_text(left)}"] if left else ()),
        steps=[remove_throttle(settings, plan)] if left else steps,
        warnings=[],
        exit_code=ExitCode.ERROR if left else ExitCode.DONE,
    )


def _needs_watching(settings: Settings, cluster: Cluster, plan: Plan, running: ReassignmentOptions) -> bool:
    """Return whether replicas of a committed plan still move and this command waits for them or their throttle."""
    watched = running.watches or throttle_rows(settings.warehouse, plan.plan_id)
    if not watched:
        return False
    return bool(moving_partitions(cluster, plan))


def _clear_stale_throttle(settings: Settings, cluster: Cluster, plan: Plan) -> bool:
    """Remove a throttle that a crashed commit has left behind, even though the commit itself is refused.

    Return False if it should have been removed and was not.
    """
    if not throttle_rows(settings.warehouse, plan.plan_id):
        return True
    try:
        state = cluster.read_cluster()
        refuse_other_cluster(plan, state, settings.address, settings.address_option)
        with lease_for(settings, cluster, plan.plan_id, "commit") as lease, admin_of(settings, state) as admin:
            return end_throttle(settings, cluster, plan, LeaseGuardedAdmin(admin, lease))
    except SurveyorError as error:
        log(f"surveyor: the throttle of plan {plan.plan_id} is still set: {error}", logging.WARNING)
        return False


def _already_committed(settings: Settings, cluster: Cluster, plan: Plan, *, apply: bool) -> CommandResult:
    """Report that a plan is committed, after removing a leftover throttle."""
    is_cleared = not apply or _clear_stale_throttle(settings, cluster, plan)
    outcomes = dict.fromkeys(count_outcomes([]), 0) | {Outcome.APPLIED.value: plan.size}
    refuse_other_cluster(plan, cluster.read_cluster(), settings.address, settings.address_option)
    holder = cluster.read_lease_holder()
    result: Result = {"plan_id": plan.plan_id, "status": plan.row.status, "applied_now": 0, **outcomes}
    blocked = _blocked(cluster, plan)
    throttles = map(other_throttle_line, other_throttled_plans(settings.warehouse, {holder.plan} if holder else ()))
    steps = after_commit(settings, plan.called, plan.row.status, outcomes)
    title = f"plan {plan.title} is already committed: nothing is due"
    code = ExitCode.DONE if is_cleared else ExitCode.ERROR
    lines = [*([f"  {blocked}"] if blocked else ()), *throttles]
    return CommandResult(result, title, *lines, steps=steps, warnings=[], exit_code=code)


def submit_and_wait(
    settings: Settings, session: ZooKeeperSession, plan: Plan, preflight: Preflight, options: CommitOptions
) -> CommandResult:
    """Let the resident controller carry out a plan, and show its result."""
    due = pluralise(len(preflight.pending), "row", "is", "are")
    log(f"  mode {preflight.mode} ({preflight.reason}); {due} due")
    submission = SubmittedPlan(
        holder=this_process("commit", plan.plan_id),
        max_plan_age=options.limits.max_plan_age,
        max_changes=options.limits.max_changes,
        allow_majority_dead=options.limits.allow_majority_dead,
        detailed=options.detailed,
        run=this_actor().run,
    )
    is_connected = False
    try:
        with session.connected() as client, progress(f"{preflight.resident_controller} carries it out"):
            is_connected = True
            plan_result = _submit(settings, client, plan, submission)
    except UnreadableError as lost_connection:
        if not is_connected:
            raise
        raise SurveyorError(
            f"{lost_connection}. Plan {plan.title} may have been submitted, and the controller may have begun with "
            f"it: `surveyor show commits {plan.plan_id}` shows the result; commit the plan again, which finds what is "
            "already written",
        ) from lost_connection
    if plan_result.error is not None:
        error = SurveyorError(plan_result.error, plan_result.result)
        error.exit_code = ExitCode(plan_result.exit_code)
        raise error
    steps = after_commit(settings, plan.called, plan_result.result["status"], plan_result.result)
    return CommandResult(
        plan_result.result, *plan_result.lines, steps=steps, warnings=[], exit_code=ExitCode(plan_result.exit_code)
    )


def _submit(settings: Settings, client: KazooClient, plan: Plan, submission: SubmittedPlan) -> PlanResult:
    """Record the submission, submit the plan, and wait for its result."""
    data = encode_submitted(submission)
    record_submission(settings.warehouse, plan.plan_id, submission_of(session_of(client), data))
    is_submitted = False
    try:
        with raise_on_signal():
            with uninterruptible():
                submit(client, plan.plan_id, data)
                is_submitted = True
            return _await_result(client, plan)
    except KeyboardInterrupt:
        if not is_submitted or withdraw(client, plan.plan_id, 0):
            raise
        raise SurveyorError(
            f"interrupted, but the controller has begun with plan {plan.title} and carries it out: "
            f"`surveyor show commits {plan.plan_id}` shows the result",
        ) from None


def _await_result(client: KazooClient, plan: Plan) -> PlanResult:
    """Wait for the result; raise SurveyorError once no process is left that could return it."""
    while True:
        znode = with_retries(lambda: read_latest(client, path_of(plan.plan_id)))
        if znode.data is None:
            raise SurveyorError(
                f"lost the ZooKeeper session while waiting for the result of plan {plan.title}: "
                f"{path_of(plan.plan_id)} is gone; commit the plan again, which finds what is already written",
            )
        try:
            submission = decode_submitted(znode.data)
        except MalformedZnodeError as error:
            raise SurveyorError(
                f"{znode.path} was overwritten by another client of ZooKeeper ({error}): "
                f"`surveyor show commits {plan.plan_id}` shows the result of the plan"
            ) from None
        if submission.answer is not None:
            return submission.answer
        if with_retries(lambda: read_resident_controller(client)) is None:
            progress_text = "finished" if submission.is_begun else "started"
            raise SurveyorError(
                f"`surveyor control` stopped before it {progress_text} plan {plan.title}: commit the plan again, which "
                "finds what is already written",
            )
        time.sleep(_POLL_SECONDS)
