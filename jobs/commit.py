"""`surveyor commit`: apply an approved plan, or show what that would do. No Spark and no JVM: it starts in a second.

Dry unless --apply.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.assessment.limits import CLOSED, CommitLimits, broker_ids, refuse_other_cluster, seconds
from jobs.assessment.moving import moving_of
from jobs.basics.errors import ExitCode, RefusedError, SurveyorError
from jobs.basics.interrupts import exit_code, interrupted
from jobs.execution.admin.commit import end_throttle, look_after
from jobs.execution.admin.lease import UnderLease, lease_for
from jobs.execution.admin.running import Running, Via, bytes_per_second
from jobs.execution.admin.throttles import throttle_lines, throttle_rows
from jobs.execution.commit import Assessment, apply_plan, assess
from jobs.execution.modes import Mode, admin_of
from jobs.records.drained import refuse_resident_drain
from jobs.records.ledger import Ledger, Verdict
from jobs.records.plans import Plan, read_plan
from jobs.runtime.console import Result, cut, finish, say
from jobs.runtime.options import All, DetailedExitcode, command, run_alone
from jobs.runtime.settings import Settings
from jobs.views.plans import change_line, how_much_is_due, warnings
from schemas.names import Outcome, PlanStatus
from schemas.rows import changes_among


@command
def commit(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan.")],
    mode: Annotated[Mode, typer.Option(help="auto asks Kafka's controller where it can execute the plan.")] = Mode.AUTO,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    max_plan_age: Annotated[str | None, typer.Option(help="Refuse older plans [default: 24h].")] = None,
    max_changes: Annotated[int | None, typer.Option(min=0, help="Refuse more changes [default: 100000].")] = None,
    max_hold: Annotated[str | None, typer.Option(help="Hold the controllership no longer [default: 30s].")] = None,
    allow_majority_dead: Annotated[
        bool,
        typer.Option("--allow-majority-dead", help="Believe it when most brokers seem dead."),
    ] = False,
    allow_silent: Annotated[
        str | None,
        typer.Option(metavar="BROKERS", help="Brokers, as 2,5, that need not answer before batch mode writes."),
    ] = None,
    via: Annotated[Via, typer.Option(help="How Kafka's controller is asked; zookeeper: before 2.4.")] = Via.ADMIN,
    throttle: Annotated[
        str | None, typer.Option(help="Bytes a second to copy replicas with, as 50MB/s; none takes it away.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Also wait for the last wave of a reassignment.")] = False,
    max_wait: Annotated[str | None, typer.Option(help="Wait no longer, exit with 25 [default: no bound].")] = None,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Apply a plan under the fence, or show what that would do."""
    defaults = settings.conf.limits
    limits = CommitLimits(
        max_plan_age=defaults.max_plan_age_hours * 3600 if max_plan_age is None else seconds(max_plan_age),
        max_changes=defaults.max_changes if max_changes is None else max_changes,
        allow_majority_dead=allow_majority_dead,
        allow_silent=frozenset() if allow_silent is None else broker_ids(allow_silent),
    )
    hold = defaults.max_hold_seconds if max_hold is None else seconds(max_hold)
    rate = None if throttle is None else bytes_per_second(throttle)
    running = Running(via, rate, wait, None if max_wait is None else seconds(max_wait))
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
        return _dry(settings, whole, found, running, detailed=detailed_exitcode, everything=everything)
    if not yes and not _agreed(whole, found):
        raise SurveyorError("not applied: the question was not answered with yes")
    ledger = apply_plan(settings, whole, found, hold, running=running)
    return _report(settings, whole, found, ledger, detailed=detailed_exitcode)


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


if __name__ == "__main__":
    run_alone(commit)
