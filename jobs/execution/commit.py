"""A commit, whatever its mode: what is due is told from what is applied already or stale, then written and recorded.

The modes share everything up to the writing: the plan is checked against the limits, the cluster is read, and each row
is judged. No Spark and no JVM.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import typer

from jobs.adapters.brokers.channel import refuse_silent
from jobs.adapters.zookeeper.cluster import ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, refuse_take_over
from jobs.adapters.zookeeper.lease import Lease
from jobs.assessment.limits import CLOSED, CommitLimits, refuse_beyond, refuse_other_cluster
from jobs.assessment.moving import moving_in_zookeeper, moving_of, refuse_others
from jobs.assessment.operations import judge_tasks
from jobs.assessment.premises import Premises
from jobs.assessment.waves import judge_waves
from jobs.basics.errors import ExitCode, RefusedError, SurveyorError
from jobs.basics.interrupts import deferred, exit_code, interrupted
from jobs.execution.admin.commit import commit_admin, end_throttle, look_after
from jobs.execution.admin.controllers import controller_of
from jobs.execution.admin.lease import UnderLease, lease_for
from jobs.execution.admin.running import Running
from jobs.execution.admin.throttles import left_over_lines, throttle_lines, throttle_rows
from jobs.execution.batch.commit import commit_batch, refuse_unreachable
from jobs.execution.batch.topic_znodes import refuse_too_large
from jobs.execution.modes import admin_of, choose_mode
from jobs.records.drained import refuse_resident_drain
from jobs.records.ledger import Ledger, Verdict
from jobs.records.plans import Plan, read_plan
from jobs.runtime.choices import Mode
from jobs.runtime.console import Result, cut, finish, say
from jobs.runtime.settings import Settings
from jobs.views.plans import change_line, how_much_is_due, warnings
from schemas.names import Action, Outcome, PlanStatus
from schemas.rows import PlanRow, changes_among

_AS_EVER: Final = Running()


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a commit finds before it writes anything."""

    state: ClusterState
    mode: Mode
    why: str
    due: list[PlanRow]
    settled: list[Verdict]
    silent: frozenset[int] = frozenset()
    """Brokers that need not answer."""


def assess(settings: Settings, plan: Plan, mode: Mode, limits: CommitLimits, running: Running = _AS_EVER) -> Assessment:
    """Read the cluster, refuse what must be refused, and tell what is due; the same for a dry run and a real one."""
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
        refuse_beyond(limits, settings, plan, state, datetime.now(UTC))
        chosen, why = choose_mode(mode, settings, plan, state, running)
        if chosen is Mode.BATCH:
            refuse_take_over(state, settings.conf.controller_id)
            refuse_unreachable(state)
            due, verdicts = Premises.of(plan, state).judge(client, plan.changes)
            refuse_too_large(client, plan, due)
        else:
            due, verdicts = judge_waves(client, plan.changes)
            if any(change.action == Action.REASSIGN for change in due):
                refuse_others(plan, moving_in_zookeeper(client))
        tasks, settled = judge_tasks(client, plan.tasks)
    if chosen is Mode.BATCH and (due or tasks):
        refuse_silent(state.brokers, settings.conf.controller_id, limits.allow_silent)
    return Assessment(state, chosen, why, [*due, *tasks], [*verdicts, *settled], limits.allow_silent)


def apply_plan(
    settings: Settings,
    plan: Plan,
    found: Assessment,
    max_hold: float,
    held: Controllership | None = None,
    *,
    running: Running = _AS_EVER,
) -> Ledger:
    """Write what is due and record it; `held` is a controllership that the caller has and keeps."""
    watched = found.mode is Mode.ADMIN and (running.watches or bool(throttle_rows(settings.lake, plan.plan_id)))
    if found.mode is Mode.ADMIN and (found.due or watched):
        with lease_for(settings, plan.plan_id, "commit") as lease:
            return _apply(settings, plan, found, running=running, lease=lease)
    with deferred():
        return _apply(settings, plan, found, max_hold=max_hold, held=held)


def _apply(
    settings: Settings,
    plan: Plan,
    found: Assessment,
    *,
    max_hold: float = 0.0,
    held: Controllership | None = None,
    running: Running = _AS_EVER,
    lease: Lease | None = None,
) -> Ledger:
    """`lease` is that of the cluster, which is ours where Kafka's controller is to be asked."""
    say(f"  mode {found.mode} ({found.why}); {how_much_is_due(plan, found.due)}")
    for line in left_over_lines(settings.lake, plan):
        say(line)
    ledger = Ledger.open(settings.lake, plan)
    ledger.controller_epoch = None if held is None else held.epoch
    ledger.judge(verdict for verdict in found.settled)
    try:
        if lease is not None:
            with controller_of(settings, found.state, ledger, running, lease) as (controller, throttler):
                commit_admin(settings, ledger, controller, found.due, lease, running=running, throttler=throttler)
        elif not found.due:
            say("  nothing is due")
        else:
            commit_batch(settings, ledger, found.due, max_hold, held, silent=found.silent)
    except SurveyorError as error:
        error.result = {"plan_id": plan.plan_id, **ledger.counts()}
        raise
    finally:
        ledger.close()
    return ledger


def commit_plan(
    settings: Settings,
    plan: str,
    mode: Mode,
    limits: CommitLimits,
    running: Running,
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
    if whole.row["status"] not in CLOSED:
        refuse_resident_drain(whole)
    if apply and whole.row["status"] in CLOSED and (rate is not None or throttle_rows(settings.lake, whole.plan_id)):
        return _throttle_alone(settings, whole, rate)
    if whole.row["status"] == PlanStatus.COMMITTED and not (apply and _goes_on(settings, whole, running)):
        return _already_committed(settings, whole, apply=apply)
    try:
        found = assess(settings, whole, mode, limits, running)
    except RefusedError:
        if apply:
            _mend(settings, whole)
        raise
    if not apply:
        return _dry(settings, whole, found, running, detailed=detailed, everything=everything)
    if not yes and not _agreed(whole, found):
        raise SurveyorError("not applied: the question was not answered with yes")
    ledger = apply_plan(settings, whole, found, hold, running=running)
    return _report(settings, whole, found, ledger, detailed=detailed)


def _throttle_alone(settings: Settings, plan: Plan, rate: int | None) -> ExitCode:
    moving = look_after(settings, plan, rate)
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, "moving": moving}
    title = f"plan {plan.title} is {plan.row['status']}: nothing is asked for, only its throttle was looked after"
    finish(settings, result | _counts([]), title, f"  {moving} partitions still move")
    return ExitCode.DONE


def _goes_on(settings: Settings, plan: Plan, running: Running) -> bool:
    """Tell whether a plan that is committed has replicas that still move, and that somebody should look after."""
    watched = running.watches or throttle_rows(settings.lake, plan.plan_id)
    return bool(watched and moving_of(settings, plan))


def _mend(settings: Settings, plan: Plan) -> None:
    """Take away a throttle that a crash has left behind, whatever else is refused."""
    if not throttle_rows(settings.lake, plan.plan_id):
        return
    try:
        with connected(settings.zookeeper) as client:
            state = read_cluster(client, settings.zookeeper)
            refuse_other_cluster(settings, plan, state)
        with lease_for(settings, plan.plan_id, "commit") as lease, admin_of(settings, state) as admin:
            end_throttle(settings, plan, UnderLease(admin, lease))
    except SurveyorError as error:
        say(f"surveyor: the throttle of plan {plan.plan_id} is still set: {error}")


def _already_committed(settings: Settings, plan: Plan, *, apply: bool) -> ExitCode:
    if apply:
        _mend(settings, plan)
    counts = dict.fromkeys(_counts([]), 0) | {Outcome.APPLIED.value: plan.size}
    with connected(settings.zookeeper) as client:
        refuse_other_cluster(settings, plan, read_cluster(client, settings.zookeeper))
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, **counts}
    left = throttle_lines(settings.lake, plan, [], None)
    finish(settings, result, f"plan {plan.title} is committed already: nothing is due", *left)
    return ExitCode.DONE


def _dry(
    settings: Settings, plan: Plan, found: Assessment, running: Running, *, detailed: bool, everything: bool
) -> ExitCode:
    result: Result = {
        "plan_id": plan.plan_id,
        "status": plan.row["status"],
        "dry_run": True,
        "mode": found.mode.value,
        "due": len(found.due),
        "applied_now": 0,
        **_counts(found.settled),
    }
    again = f"commit {plan.plan_id} --all"
    lines = [f"  would be written: {change_line(change)}" for change in found.due]
    finish(
        settings,
        result,
        f"plan {plan.title}: mode {found.mode} ({found.why}); {how_much_is_due(plan, found.due)}",
        *cut(lines, again, everything=everything),
        *cut(_stale_lines(found.settled), again, everything=everything),
        *throttle_lines(settings.lake, plan, changes_among(found.due), running.throttle),
        *(f"  warning: {warning}" for warning in (_warnings(plan, everything=everything) if found.due else ())),
        "dry run: nothing was written; --apply writes",
    )
    return ExitCode.CHANGES if detailed and found.due else ExitCode.DONE


def _warnings(plan: Plan, *, everything: bool) -> Iterator[str]:
    return warnings(plan.row["kind"], plan.changes, plan.operations, plan.rejections, everything=everything)


def _agreed(plan: Plan, found: Assessment) -> bool:
    """Ask on a terminal; a program that says --apply means it."""
    if not sys.stdin.isatty() or not found.due:
        return True
    say(f"plan {plan.title}: {how_much_is_due(plan, found.due)}, mode {found.mode} ({found.why})")
    return typer.confirm("write them to the cluster?", err=True)


def _report(settings: Settings, plan: Plan, found: Assessment, ledger: Ledger, *, detailed: bool) -> ExitCode:
    status = read_plan(settings.lake, plan.plan_id).row["status"]
    now = len(ledger.of(Outcome.APPLIED)) - sum(verdict.outcome is Outcome.APPLIED for verdict in found.settled)
    result: Result = {"plan_id": plan.plan_id, "status": status, "applied_now": now, **ledger.counts()}
    told = ", ".join(f"{count} {outcome}" for outcome, count in ledger.counts().items() if count)
    told += f" ({now} of them now)" if now < len(ledger.of(Outcome.APPLIED)) else ""
    stale = cut(_stale_lines(ledger.verdicts), f"show commits {plan.plan_id} --all")
    finish(settings, result, f"plan {plan.title}: {status}; {told or 'no changes'}", *stale)
    if interrupted():
        say(f"surveyor: interrupted: {now} written, {len(ledger.of(Outcome.SKIPPED))} left; commit again to go on")
        return exit_code()
    if ledger.unheard or any(ledger.of(outcome) for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED)):
        return ExitCode.ERROR
    nothing_applied = not ledger.of(Outcome.APPLIED)
    return ExitCode.STALE if (detailed or nothing_applied) and ledger.of(Outcome.STALE) else ExitCode.DONE


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    found = [verdict.outcome for verdict in verdicts]
    return {outcome.value: found.count(outcome) for outcome in Outcome if outcome is not Outcome.PENDING}


def _stale_lines(verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"  {verdict.outcome}: {verdict.change.name}: {verdict.message}"
        for verdict in verdicts
        if verdict.outcome is not Outcome.APPLIED
    ]
