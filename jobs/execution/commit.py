"""A commit, whatever its mode: what is due is told from what is applied already or stale, then written and recorded.

The modes share everything up to the writing: the plan is checked against the limits, the cluster is read, and each row
is judged. No Spark and no JVM.
"""

from contextlib import nullcontext
from dataclasses import replace

from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import MAX_TAKEOVER_ATTEMPTS, Controllership, OvertakenError
from jobs.adapters.zookeeper.lease import Lease
from jobs.advice.plans import after_commit
from jobs.console_output.plan_text import pending_summary
from jobs.core.errors import ExitCode, RefusedError, SurveyorError
from jobs.core.signals import defer_signals
from jobs.execution.admin.commit import commit_admin, end_throttle, maintain_throttle
from jobs.execution.admin.connections import admin_of, controller_of
from jobs.execution.admin.lease import LeaseGuardedAdmin, lease_for
from jobs.execution.admin.reassignment_options import DEFAULT, ReassignmentOptions
from jobs.execution.admin.throttles import leftover_lines, throttle_lines, throttle_rows
from jobs.execution.batch.commit import NotifyBrokers, commit_batch
from jobs.execution.mode_selection import refuse_resident_drain
from jobs.execution.preflight import Preflight, check_before_commit, recheck
from jobs.execution.report import ReportExtras, counts, refuse_unless_agreed, report_applied, report_dry
from jobs.execution.submit import submit_and_wait
from jobs.preconditions.limits import UNCOMMITTABLE, CommitLimits, refuse_other_cluster
from jobs.preconditions.reassignments import moving_of, reassignments_of
from jobs.repositories.actor import Actor
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.repository import Plan, moves_replicas, read_plan
from jobs.runtime.cli_enums import Mode, Via
from jobs.runtime.console import Result, emit_result, log
from jobs.runtime.settings import Settings
from planner.text import pluralise
from schemas.enums import Outcome, PlanStatus


def apply_plan(
    settings: Settings,
    plan: Plan,
    preflight: Preflight,
    max_hold: float,
    held: Controllership | None = None,
    *,
    running: ReassignmentOptions = DEFAULT,
    notify_brokers: NotifyBrokers | None = None,
    author: Actor | None = None,
) -> CommitLog:
    """Write what is due and record it, in the name of an author where that is not this process.

    `held` is a controllership that the caller has and keeps. `tell_all` is how that caller tells brokers; without it
    they are told over connections of the commit's own.
    """
    if preflight.resident_controller is not None:
        running = replace(running, via=Via.ZOOKEEPER)  # it serves no Admin API
    watched = preflight.mode is Mode.ADMIN and (running.watches or bool(throttle_rows(settings.lake, plan.plan_id)))
    if preflight.mode is Mode.ADMIN and (preflight.pending or watched):
        with lease_for(settings, plan.plan_id, "commit") as lease:
            return _apply(settings, plan, preflight, running=running, lease=lease)
    # who has the controllership defers signals, perhaps in another thread
    with defer_signals() if held is None else nullcontext():
        return _apply(
            settings, plan, preflight, max_hold=max_hold, held=held, notify_brokers=notify_brokers, author=author
        )


def _apply(
    settings: Settings,
    plan: Plan,
    preflight: Preflight,
    *,
    max_hold: float = 0.0,
    held: Controllership | None = None,
    notify_brokers: NotifyBrokers | None = None,
    running: ReassignmentOptions = DEFAULT,
    lease: Lease | None = None,
    author: Actor | None = None,
) -> CommitLog:
    """`lease` is that of the cluster, which is ours where Kafka's controller is to be asked."""
    log(f"  mode {preflight.mode} ({preflight.why}); {pending_summary(plan, preflight.pending)}")
    for line in leftover_lines(settings.lake, plan):
        log(line)
    ledger = CommitLog.open(settings.lake, plan, author)
    ledger.controller_epoch = ledger.written_under = None if held is None else held.epoch
    ledger.broker_epochs = preflight.state.live
    ledger.set_preflight_outcomes(preflight.already_decided)
    try:
        if lease is not None:
            with controller_of(settings, preflight.state, ledger, running, lease) as (controller, throttler):
                commit_admin(
                    settings, ledger, controller, preflight.pending, lease, running=running, throttler=throttler
                )
        else:
            _write_pending(settings, ledger, preflight, max_hold, held=held, notify_brokers=notify_brokers)
    except SurveyorError as error:
        error.result = {"plan_id": plan.plan_id, **ledger.counts()}
        raise
    finally:
        ledger.close()
    return ledger


def _write_pending(
    settings: Settings,
    ledger: CommitLog,
    preflight: Preflight,
    max_hold: float,
    *,
    held: Controllership | None,
    notify_brokers: NotifyBrokers | None,
) -> None:
    """Write it as the controller; where another one took over before us, perhaps for the same plan, judge it anew."""
    for _ in range(MAX_TAKEOVER_ATTEMPTS):
        if not preflight.pending:
            log("  nothing is due")
            return
        silent, since, above = preflight.limits.allow_silent, preflight.state.epoch, preflight.latest_epoch
        try:
            commit_batch(
                settings,
                ledger,
                preflight.pending,
                max_hold,
                held,
                silent=silent,
                notify_brokers=notify_brokers,
                since=since,
                above=above,
            )
        except OvertakenError as overtaken:
            log(f"  {overtaken}: what is due is judged anew")
        else:
            return
        preflight = recheck(settings, ledger.plan, preflight)
        ledger.begin_again(preflight.already_decided)
    raise SurveyorError(
        f"another controller took over {MAX_TAKEOVER_ATTEMPTS} times while what is due was judged: nothing was "
        "written; find out who fights over /controller (broker logs: 'Controller'), then commit again"
    )


def commit_plan(
    settings: Settings,
    plan: str,
    mode: Mode,
    limits: CommitLimits,
    running: ReassignmentOptions,
    *,
    hold: float,
    apply: bool,
    yes: bool,
    everything: bool,
    detailed: bool,
) -> ExitCode:
    """Apply a plan, or show what that would do; of one that is closed or committed, look after its throttle."""
    rate = running.throttle
    whole = read_plan(settings.lake, plan)
    if (
        apply
        and whole.row["status"] in UNCOMMITTABLE
        and (rate is not None or throttle_rows(settings.lake, whole.plan_id))
    ):
        return _maintain_throttle_only(settings, whole, rate)
    if whole.row["status"] == PlanStatus.COMMITTED and not (apply and _needs_watching(settings, whole, running)):
        return _already_committed(settings, whole, apply=apply)
    running = with_default_throttle(settings, whole, running)
    try:
        assessment = check_before_commit(settings, whole, mode, limits, running)
    except RefusedError:
        if apply:
            _clear_stale_throttle(settings, whole)
        raise
    if assessment.resident_controller is None:
        refuse_resident_drain(whole)
    if not apply:
        return report_dry(
            settings, whole, assessment, running, ReportExtras(), detailed=detailed, everything=everything
        )
    refuse_unless_agreed(settings, whole, assessment, running, ReportExtras(), yes=yes, everything=everything)
    if assessment.resident_controller is not None and assessment.mode is Mode.BATCH:
        return submit_and_wait(settings, whole, assessment, limits, detailed=detailed)
    ledger = apply_plan(settings, whole, assessment, hold, running=running)
    return report_applied(settings, whole, ledger, ReportExtras(), detailed=detailed)


def with_default_throttle(settings: Settings, plan: Plan, running: ReassignmentOptions) -> ReassignmentOptions:
    """Give a commit of a plan that copies replicas the throttle of the conf, unless one is given or set already."""
    copies = any(moves_replicas(change) for change in reassignments_of(plan))
    if running.throttle is not None or not copies or throttle_rows(settings.lake, plan.plan_id):
        return running
    return replace(running, throttle=settings.throttle)


def _maintain_throttle_only(settings: Settings, plan: Plan, rate: int | None) -> ExitCode:
    moving = maintain_throttle(settings, plan, rate)
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, "moving": moving}
    title = f"plan {plan.title} is {plan.row['status']}: nothing is asked for, only its throttle was looked after"
    steps = after_commit(settings, plan.called, PlanStatus.COMMITTED, {}) if moving else []
    emit_result(
        settings,
        result | counts([]),
        title,
        f"  {pluralise(moving, 'partition', 'still moves', 'still move')}",
        steps=steps,
    )
    return ExitCode.DONE


def _needs_watching(settings: Settings, plan: Plan, running: ReassignmentOptions) -> bool:
    """Tell whether a plan that is committed has replicas that still move, and that somebody should look after."""
    watched = running.watches or throttle_rows(settings.lake, plan.plan_id)
    return bool(watched and moving_of(settings, plan))


def _clear_stale_throttle(settings: Settings, plan: Plan) -> None:
    """Take away a throttle that a crash has left behind, whatever else is refused."""
    if not throttle_rows(settings.lake, plan.plan_id):
        return
    try:
        with connected(settings.zookeeper) as client:
            state = read_cluster(client, settings.zookeeper)
            refuse_other_cluster(settings, plan, state)
        with lease_for(settings, plan.plan_id, "commit") as lease, admin_of(settings, state) as admin:
            end_throttle(settings, plan, LeaseGuardedAdmin(admin, lease))
    except SurveyorError as error:
        log(f"surveyor: the throttle of plan {plan.plan_id} is still set: {error}")


def _already_committed(settings: Settings, plan: Plan, *, apply: bool) -> ExitCode:
    if apply:
        _clear_stale_throttle(settings, plan)
    outcomes = dict.fromkeys(counts([]), 0) | {Outcome.APPLIED.value: plan.size}
    with connected(settings.zookeeper) as client:
        refuse_other_cluster(settings, plan, read_cluster(client, settings.zookeeper))
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, **outcomes}
    left = throttle_lines(settings.lake, plan, [], None)
    steps = after_commit(settings, plan.called, plan.row["status"], outcomes)
    emit_result(settings, result, f"plan {plan.title} is committed already: nothing is due", *left, steps=steps)
    return ExitCode.DONE
