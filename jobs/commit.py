"""`surveyor commit`: apply an approved plan, or show what that would do. No Spark and no JVM: it starts in a second.

Dry unless --apply.
"""

from typing import Annotated

import typer

from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.assessment.limits import CLOSED, CommitLimits, hold_seconds, refuse_other_cluster, seconds
from jobs.assessment.moving import moving_of
from jobs.basics.errors import ExitCode, RefusedError, SurveyorError
from jobs.execution.admin.commit import end_throttle, look_after
from jobs.execution.admin.lease import UnderLease, lease_for
from jobs.execution.admin.running import Running, Via, bytes_per_second
from jobs.execution.admin.throttles import throttle_lines, throttle_rows
from jobs.execution.commit import apply_plan, assess
from jobs.execution.modes import Mode, admin_of
from jobs.execution.report import Beside, counts, refuse_unless_agreed, report_applied, report_dry
from jobs.records.drained import refuse_resident_drain
from jobs.records.plans import Plan, read_plan
from jobs.runtime.console import Result, finish, say
from jobs.runtime.options import (
    All,
    AllowMajorityDead,
    AllowSilent,
    Apply,
    DetailedExitcode,
    MaxChanges,
    MaxHold,
    Yes,
    command,
    run_alone,
)
from jobs.runtime.settings import Settings
from schemas.names import Outcome, PlanStatus


@command
def commit(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan.")],
    mode: Annotated[Mode, typer.Option(help="auto asks Kafka's controller where it can execute the plan.")] = Mode.AUTO,
    apply: Apply = False,
    yes: Yes = False,
    max_plan_age: Annotated[str | None, typer.Option(help="Refuse older plans [default: 24h].")] = None,
    max_changes: MaxChanges = None,
    max_hold: MaxHold = None,
    allow_majority_dead: AllowMajorityDead = False,
    allow_silent: AllowSilent = None,
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
    limits = CommitLimits.of(
        settings, max_plan_age, max_changes, allow_majority_dead=allow_majority_dead, allow_silent=allow_silent
    )
    hold = hold_seconds(settings, max_hold)
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
        return report_dry(settings, whole, found, running, Beside(), detailed=detailed_exitcode, everything=everything)
    if not yes:
        refuse_unless_agreed(whole, found)
    ledger = apply_plan(settings, whole, found, hold, running=running)
    return report_applied(settings, whole, found, ledger, Beside(), detailed=detailed_exitcode)


def _throttle_alone(settings: Settings, plan: Plan, rate: int | None) -> ExitCode:
    moving = look_after(settings, plan, rate)
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, "moving": moving}
    title = f"plan {plan.title} is {plan.row['status']}: nothing is asked for, only its throttle was looked after"
    finish(settings, result | counts([]), title, f"  {moving} partitions still move")
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
    outcomes = dict.fromkeys(counts([]), 0) | {Outcome.APPLIED.value: plan.size}
    with connected(settings.zookeeper) as client:
        refuse_other_cluster(settings, plan, read_cluster(client, settings.zookeeper))
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, **outcomes}
    left = throttle_lines(settings.lake, plan, [], None)
    finish(settings, result, f"plan {plan.title} is committed already: nothing is due", *left)
    return ExitCode.DONE


if __name__ == "__main__":
    run_alone(commit)
