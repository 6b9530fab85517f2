"""`surveyor cancel`: call a plan back. What runs of it turns back, what was not asked for yet never will be.

No JVM. Dry unless --apply. Works for pure additions too. What is complete stays: `surveyor rollback` leads it back.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from jobs.assessment.cancellation import Finding, Found, look, rejections
from jobs.basics.errors import ExitCode, SurveyorError
from jobs.execution.cancellation import refuse_unsafe, turn_back
from jobs.records.ledger import Verdict
from jobs.records.plans import Plan, read_plan
from jobs.runtime.console import LINES_SHOWN, Result, finish, say, shown
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import Standing
from schemas.names import Outcome, PlanKind, PlanStatus, Step
from schemas.rows import Change

_LEFT: Final = {
    Standing.COMPLETE: "complete, not undone",
    Standing.DIVERGED: "left alone, somebody else changed it",
}


@command
def cancel(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Let go on what would lose data or replicas by it; else all is refused."),
    ] = False,
) -> ExitCode:
    """Cancel what runs of a plan, and let nothing more of it be asked for."""
    whole = read_plan(settings.lake, plan)
    found = look(settings, whole)
    if not skip_unsafe:
        _refuse(whole, found)
    if not _closes(whole, found):
        finish(settings, _result(whole, found), f"plan {whole.title}: nothing is left to cancel", *_lines(whole, found))
        return ExitCode.DONE
    if not apply:
        dry = _result(whole, found) | {"dry_run": True}
        said = "dry run: nothing was written; --apply writes"
        finish(settings, dry, f"plan {whole.title}: {_told(found)}", *_lines(whole, found), said)
        return ExitCode.DONE
    if not yes and not _agreed(whole, found):
        raise SurveyorError("not cancelled: the question was not answered with yes")
    verdicts = turn_back(settings, whole, skip_unsafe=skip_unsafe)
    return _report(settings, whole, verdicts)


def _refuse(plan: Plan, found: Found) -> None:
    try:
        refuse_unsafe(plan, found)
    except SurveyorError as error:
        error.result = _result(plan, found)
        raise


def _closes(plan: Plan, found: Found) -> bool:
    """Tell whether there is anything to cancel: a plan that was committed and is done stays committed."""
    ahead = (Standing.IN_PROGRESS, Standing.NOT_STARTED, Standing.OUT_OF_ORDER)
    return plan.row["status"] != PlanStatus.COMMITTED or any(found.of(standing) for standing in ahead)


def _agreed(plan: Plan, found: Found) -> bool:
    if not sys.stdin.isatty():
        return True
    say(f"plan {plan.title}: {_told(found)}")
    return typer.confirm("cancel it?", err=True)


def _report(settings: Settings, plan: Plan, verdicts: Sequence[Verdict]) -> ExitCode:
    now = read_plan(settings.lake, plan.plan_id)
    found = look(settings, now)
    result = _result(now, found, verdicts)
    failed = [v for v in verdicts if v.outcome in {Outcome.FAILED, Outcome.UNKNOWN}]
    wrong = [f"  {v.outcome}: {v.change.name}: {v.message}" for v in verdicts if v.outcome is not Outcome.APPLIED]
    title = f"plan {now.title}: {now.row['status']}; {result['cancelled_now']} cancelled now, {_told(found)}"
    again = ["run it again"] if failed or found.safe else []
    finish(settings, result, title, *wrong[:LINES_SHOWN], *_lines(now, found), *again)
    return ExitCode.ERROR if again else ExitCode.DONE


def _result(plan: Plan, found: Found, verdicts: Sequence[Verdict] = ()) -> Result:
    done = [(verdict.change.action, verdict.outcome) for verdict in verdicts]
    outcomes = [outcome for _, outcome in done]
    return {
        "plan_id": plan.plan_id,
        "status": plan.row["status"],
        "cancelled_now": done.count((Step.CANCEL, Outcome.APPLIED)),
        "reordered_now": done.count((Step.RESTORE_ORDER, Outcome.APPLIED)),
        "failed": outcomes.count(Outcome.FAILED),
        "unknown": outcomes.count(Outcome.UNKNOWN),
        **found.counts,
        "rejections": rejections(found),
    }


def _told(found: Found) -> str:
    counts = {name.replace("_", " "): count for name, count in found.counts.items() if count}
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no changes"


def _lines(plan: Plan, found: Found) -> Iterator[str]:
    lines = [line for finding in found.findings if (line := _line(finding))]
    yield from lines[:LINES_SHOWN]
    if len(lines) > LINES_SHOWN:
        yield f"  ... and {len(lines) - LINES_SHOWN} more"
    if found.of(Standing.COMPLETE) and plan.row["kind"] == PlanKind.REASSIGN:
        yield f"  what is complete goes back by `surveyor rollback {plan.plan_id}`"
    if plan.row["kind"] in {PlanKind.DRAIN, PlanKind.UNDRAIN} and plan.row["status"] != PlanStatus.PLANNED:
        brokers = shown(json.loads(plan.row["parameters"])["brokers"])
        yield f"  brokers {brokers} may still count as drained: see `surveyor show drained`, end it by a plan undrain"


def _line(finding: Finding) -> str | None:
    name = finding.change.name
    before = finding.change.replicas_before if isinstance(finding.change, Change) else None
    if finding.danger is not None:
        return f"  {name}  goes on: {finding.danger.code}: {finding.danger.reason}"
    if finding.standing is Standing.IN_PROGRESS:
        return f"  {name}  to be cancelled: {finding.told} → {shown(before)}"
    if finding.standing is Standing.OUT_OF_ORDER:
        return f"  {name}  cancelled, order to be restored: {finding.told} → {shown(before)}"
    if finding.standing in _LEFT:
        return f"  {name}  {_LEFT[finding.standing]}: {finding.told}"
    return None


if __name__ == "__main__":
    run_alone(cancel)
