"""What a commit shows and how it exits: what it would write, the question on a terminal, and what came of it.

For every command that commits. `beside` is what such a command says besides: fields of its JSON result, and lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from jobs.advice.plans import after_commit, after_dry_run, list_all_command
from jobs.console_output.plan_text import change_line, deletion_lines, pending_summary, warnings
from jobs.core.errors import ExitCode, RefusedError, SurveyorError
from jobs.core.signals import exit_code, interrupted
from jobs.execution.admin.reassignment_options import ReassignmentOptions
from jobs.execution.admin.throttles import throttle_lines
from jobs.execution.confirm_deletion import agrees_to_delete, deletions_due
from jobs.execution.mode_selection import why_controller_unreachable
from jobs.execution.preflight import Preflight
from jobs.preconditions.copy_volume import space_warnings, volume_of
from jobs.preconditions.deletion_impact import DeletionImpact
from jobs.preconditions.min_isr import below_min_isr, short_lists
from jobs.repositories.plans.commit_log import CLOSED, CommitLog, RowOutcome, closed_line
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.runtime.cli_enums import Mode, Via
from jobs.runtime.console import Result, confirm, emit_result, is_terminal, log, truncate
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.enums import Outcome
from schemas.rows import changes_among
from schemas.submitted_plan import PlanResult


@dataclass(frozen=True, slots=True)
class ReportExtras:
    """What a command adds to the report of a commit."""

    result: Result = field(default_factory=dict)
    lines: Sequence[str] = ()


def report_dry(
    settings: Settings,
    plan: Plan,
    preflight: Preflight,
    running: ReassignmentOptions,
    extras: ReportExtras,
    *,
    detailed: bool,
    everything: bool,
) -> ExitCode:
    """Show what would be written; CHANGES only where the detailed exit code was asked for."""
    result: Result = {
        **extras.result,
        "plan_id": plan.plan_id,
        "status": plan.row["status"],
        "dry_run": True,
        "mode": preflight.mode.value,
        "due": len(preflight.pending),
        "applied_now": 0,
        **counts(preflight.already_decided),
    }
    in_the_way = _apply_obstacle(settings, preflight, running)
    if in_the_way:
        result["in_the_way"] = in_the_way
    deleted = deletions_due(settings, plan, preflight)
    if deleted:
        result["deleted"] = [asdict(each) for each in deleted]
    review = [
        *_review(settings, plan, preflight, running, everything=everything),
        *deletion_lines(deleted, everything=everything),
        *([f"  warning: --apply would not get far: {in_the_way}"] if in_the_way else ()),
    ]
    steps = after_dry_run(settings, plan.called, due=bool(preflight.pending))
    emit_result(settings, result, *review, *extras.lines, "dry run: nothing was written; --apply writes", steps=steps)
    return ExitCode.CHANGES if detailed and preflight.pending else ExitCode.DONE


def _apply_obstacle(settings: Settings, preflight: Preflight, running: ReassignmentOptions) -> str | None:
    """Why --apply could write nothing now, although it is due."""
    asks = preflight.mode is Mode.ADMIN and running.via is Via.ADMIN and preflight.resident_controller is None
    return why_controller_unreachable(settings, preflight.state) if asks and preflight.pending else None


def _review(
    settings: Settings, plan: Plan, preflight: Preflight, running: ReassignmentOptions, *, everything: bool
) -> Iterator[str]:
    """What would be written, what would not, and what to be warned of."""
    again = list_all_command(settings, plan.called)
    yield f"plan {plan.title}: mode {preflight.mode} ({preflight.why}); {pending_summary(plan, preflight.pending)}"
    lines = [f"  would be written: {change_line(change)}" for change in preflight.pending]
    yield from truncate(lines, again, everything=everything)
    yield from truncate(_stale_lines(preflight.already_decided), again, everything=everything)
    due = changes_among(preflight.pending)
    yield from throttle_lines(settings.lake, plan, due, running.throttle)
    yield from (f"  {line}" for line in volume_of(settings.lake, due).lines(running.throttle))
    if preflight.pending:
        yield from _warnings(settings, plan, everything=everything)


def _warnings(settings: Settings, plan: Plan, *, everything: bool) -> Iterator[str]:
    planned_on = settings.lake, plan.row["snapshot_id"], plan.changes
    below = below_min_isr(*planned_on), short_lists(*planned_on)
    texts = warnings(plan.row["kind"], plan.changes, plan.operations, plan.rejections, *below, everything=everything)
    yield from (f"  warning: {warning}" for warning in texts)
    yield from (
        f"  warning: {warning}" for warning in space_warnings(settings.lake, volume_of(settings.lake, plan.changes))
    )


def refuse_unless_agreed(
    settings: Settings,
    plan: Plan,
    preflight: Preflight,
    running: ReassignmentOptions,
    extras: ReportExtras,
    *,
    yes: bool,
    everything: bool = False,
) -> None:
    """Show on a terminal what a dry run shows, ask, and raise SurveyorError unless the answer is yes.

    Who deletes topics types more than yes. A program that says --apply means it, but for deletions: raise RefusedError.
    Whoever is not asked is warned all the same.
    """
    if not preflight.pending:
        return
    if yes or not is_terminal():
        for line in _warnings(settings, plan, everything=everything):
            log(line)
    if yes:
        return
    deleted = deletions_due(settings, plan, preflight)
    if not is_terminal():
        _refuse_to_delete(plan, deleted)
        return
    review = _review(settings, plan, preflight, running, everything=everything)
    for line in (*review, *deletion_lines(deleted, everything=everything), *extras.lines):
        log(line)
    if not (agrees_to_delete(deleted) if deleted else confirm("write them to the cluster?")):
        missed = "as it asks" if deleted else "with yes"
        raise SurveyorError(f"not applied: the question was not answered {missed}; plan {plan.title} is stored")


def _refuse_to_delete(plan: Plan, deleted: Sequence[DeletionImpact]) -> None:
    """Raise RefusedError where topics would go and nobody is there to be asked: what is lost is lost for good."""
    if deleted:
        goes = "; ".join(line.strip() for line in deletion_lines(deleted))
        raise RefusedError(
            f"plan {plan.title} deletes topics, and there is no terminal to ask on: nothing was written; say --yes if "
            f"you mean it: {goes}"
        )


def plan_result(settings: Settings, plan: Plan, ledger: CommitLog, *, detailed: bool) -> PlanResult:
    """What came of a plan; whatever was not written as planned is told by the exit code."""
    row = read_plan(settings.lake, plan.plan_id).row
    status = row["status"]
    now = len(ledger.of(Outcome.APPLIED)) - ledger.already_decided
    applied: Result = {"plan_id": plan.plan_id, "status": status, "applied_now": now, **ledger.counts()}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in ledger.counts().items() if count)
    summary += f" ({now} of them now)" if now < len(ledger.of(Outcome.APPLIED)) else ""
    stale = truncate(_stale_lines(ledger.outcomes), command_line(settings, "show", "commits", plan.called, "--all"))
    if status in CLOSED:
        summary = _cancellation_summary(ledger)
        title = f"plan {plan.title} {closed_line(settings.lake, row)}, while it was committed; {summary}"
        return PlanResult(ExitCode.ERROR, applied, [title, *stale])
    title = f"plan {plan.title}: {status}; {summary or 'no changes'}"
    return PlanResult(_exit_code(ledger, detailed=detailed), applied, [title, *stale])


def _cancellation_summary(ledger: CommitLog) -> str:
    """Say how much of a plan that was cancelled under way stands, and how much does not."""
    stands, size = len(ledger.of(Outcome.APPLIED)), ledger.plan.size
    back = len(ledger.of(Outcome.STALE))
    asked = f"{back} of {size} were turned back" if back else f"none of {size} was turned back"
    return f"{asked}, {stands} stand as planned"


def report_applied(
    settings: Settings, plan: Plan, ledger: CommitLog, extras: ReportExtras, *, detailed: bool
) -> ExitCode:
    """Show what came of it."""
    answer = plan_result(settings, plan, ledger, detailed=detailed)
    steps = after_commit(settings, plan.called, answer.result["status"], answer.result)
    emit_result(settings, extras.result | answer.result, *answer.lines, *extras.lines, steps=steps)
    if interrupted():
        now = answer.result["applied_now"]
        log(f"surveyor: interrupted: {now} written, {len(ledger.of(Outcome.SKIPPED))} left; commit again to go on")
        return exit_code()
    return ExitCode(answer.exit_code)


def _exit_code(ledger: CommitLog, *, detailed: bool) -> ExitCode:
    if ledger.unanswered or any(ledger.of(outcome) for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED)):
        return ExitCode.ERROR
    nothing_applied = not ledger.of(Outcome.APPLIED)
    return ExitCode.STALE if (detailed or nothing_applied) and ledger.of(Outcome.STALE) else ExitCode.DONE


def counts(verdicts: Sequence[RowOutcome]) -> dict[str, int]:
    """Count the outcomes, those that nothing came to included."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return {outcome.value: outcomes.count(outcome) for outcome in Outcome if outcome is not Outcome.PENDING}


def _stale_lines(verdicts: Sequence[RowOutcome]) -> list[str]:
    return [
        f"  {verdict.outcome}: {verdict.change.name}: {verdict.message}"
        for verdict in verdicts
        if verdict.outcome is not Outcome.APPLIED
    ]
