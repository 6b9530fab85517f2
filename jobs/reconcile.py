"""`surveyor reconcile`: one cycle of a controller in one process: snapshot, plan of what is due, question, commit.

Dry unless --apply: then the snapshot is taken and the plan is stored, and what a commit would write is shown. Killed at
any moment, the same command goes on: a new snapshot shows what is still due, and only that is planned.
"""

from typing import Annotated

import typer

from jobs.assessment.limits import CommitLimits, hold_seconds
from jobs.basics.errors import ExitCode, SurveyorError
from jobs.execution.admin.running import Running
from jobs.execution.commit import apply_plan, assess
from jobs.execution.modes import Mode
from jobs.execution.report import Beside, counts, refuse_unless_agreed, report_applied, report_dry
from jobs.planning.plan import Planning, make_plan
from jobs.planning.reconcile import AllowUnclean, whats_due
from jobs.records.plans import Plan, read_plan
from jobs.runtime.console import finish, say
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
from jobs.views.plans import rejection_lines


@command
def reconcile(
    settings: Settings,
    *,
    mode: Annotated[Mode, typer.Option(help="As commit takes it.")] = Mode.AUTO,
    apply: Apply = False,
    yes: Yes = False,
    allow_unclean: AllowUnclean = False,
    max_changes: MaxChanges = None,
    max_hold: MaxHold = None,
    allow_majority_dead: AllowMajorityDead = False,
    allow_silent: AllowSilent = None,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Take a snapshot, plan what is due after failures, and commit it, or show what that would do."""
    limits = CommitLimits.of(
        settings, None, max_changes, allow_majority_dead=allow_majority_dead, allow_silent=allow_silent
    )
    hold, running = hold_seconds(settings, max_hold), Running()
    plan = _plan(settings, allow_unclean=allow_unclean)
    known = {"snapshot_id": plan.row["snapshot_id"], "plan_id": plan.plan_id, "rejected": len(plan.rejections)}
    beside = Beside(known, rejection_lines(plan))
    if not plan.size:
        return _nothing_due(settings, plan, beside, apply=apply)
    try:
        assessed = assess(settings, plan, mode, limits, running)
        if not apply:
            return report_dry(
                settings, plan, assessed, running, beside, detailed=detailed_exitcode, everything=everything
            )
        if not yes:
            refuse_unless_agreed(plan, assessed)
        ledger = apply_plan(settings, plan, assessed, hold, running=running)
    except SurveyorError as error:
        error.result = known | {"status": _status(settings, plan)} | error.result
        raise
    return report_applied(settings, plan, assessed, ledger, beside, detailed=detailed_exitcode)


def _plan(settings: Settings, *, allow_unclean: bool) -> Plan:
    """Take a snapshot and plan on it."""
    made = make_plan(settings, Planning(refresh=True), lambda at: whats_due(at, allow_unclean=allow_unclean))
    say(f"surveyor: plan {made['plan_id']} on snapshot {made['snapshot_id']}: {made['changes']} changes")
    return read_plan(settings.lake, made["plan_id"])


def _nothing_due(settings: Settings, plan: Plan, beside: Beside, *, apply: bool) -> ExitCode:
    """Say so; no broker is asked for anything then, and a dry run says no more."""
    result = beside.result | {"status": plan.row["status"], "dry_run": not apply, "due": 0, "applied_now": 0}
    title = f"nothing is due on snapshot {plan.row['snapshot_id']}: nothing was written"
    finish(settings, result | counts([]), title, *beside.lines)
    return ExitCode.DONE


def _status(settings: Settings, plan: Plan) -> str:
    return str(read_plan(settings.lake, plan.plan_id).row["status"])


if __name__ == "__main__":
    run_alone(reconcile)
