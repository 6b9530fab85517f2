"""`surveyor commit`: apply an approved plan, or show what that would do. No Spark and no JVM: it starts in a second.

Dry unless --apply. The modes share everything up to the writing: the plan is found and checked against the limits,
the cluster is read, and what is due is told from what is applied already and what is stale.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from jobs.adapters.cluster import ClusterState, read_cluster
from jobs.adapters.controllership import Controllership, refuse_take_over
from jobs.adapters.lake import Row
from jobs.adapters.zookeeper import connected
from jobs.commit_admin import commit_admin
from jobs.commit_batch import commit_batch, refuse_unreachable
from jobs.console import Result, finish, say
from jobs.errors import ExitCode, SurveyorError
from jobs.ledger import Ledger, Verdict
from jobs.limits import CommitLimits, refuse_beyond, refuse_other_cluster, seconds
from jobs.modes import Mode, admin_of, choose_mode
from jobs.operations import judge_tasks
from jobs.options import DetailedExitcode, command, run_alone
from jobs.plans import LINES_SHOWN, Plan, change_line, read_plan, row_name
from jobs.premises import Premises
from jobs.settings import Settings
from jobs.waves import judge_waves
from schemas.names import Outcome, PlanStatus


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a commit finds before it writes anything."""

    state: ClusterState
    mode: Mode
    why: str
    due: list[Row]
    settled: list[Verdict]


def assess(settings: Settings, plan: Plan, mode: Mode, limits: CommitLimits) -> Assessment:
    """Read the cluster, refuse what must be refused, and tell what is due; the same for a dry run and a real one."""
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
        refuse_beyond(limits, settings, plan, state, datetime.now(UTC))
        chosen, why = choose_mode(mode, settings, plan, state)
        if chosen is Mode.BATCH:
            refuse_take_over(state, settings.conf.controller_id)
            refuse_unreachable(state)
            due, verdicts = Premises.of(plan, state).judge(client, plan.changes)
        else:
            due, verdicts = judge_waves(client, plan.changes)
        tasks, settled = judge_tasks(client, plan.tasks)
    return Assessment(state, chosen, why, [*due, *tasks], [*verdicts, *settled])


def apply_plan(
    settings: Settings,
    plan: Plan,
    found: Assessment,
    max_hold: float,
    held: Controllership | None = None,
) -> Ledger:
    """Write what is due and record it; `held` is a controllership that the caller has and keeps."""
    say(f"  mode {found.mode} ({found.why}); {len(found.due)} of {plan.size} changes are due")
    ledger = Ledger.open(settings.lake, plan)
    ledger.judge(verdict for verdict in found.settled)
    try:
        if not found.due:
            say("  nothing is due")
        elif found.mode is Mode.ADMIN:
            with admin_of(settings, found.state) as admin:
                commit_admin(settings, ledger, admin, found.due)
        else:
            commit_batch(settings, ledger, found.due, max_hold, held)
    except SurveyorError as error:
        error.result = {"plan_id": plan.plan_id, **ledger.counts()}
        raise
    finally:
        ledger.close()
    return ledger


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
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Apply a plan under the fence, or show what that would do."""
    defaults = settings.conf.limits
    limits = CommitLimits(
        max_plan_age=defaults.max_plan_age_hours * 3600 if max_plan_age is None else seconds(max_plan_age),
        max_changes=defaults.max_changes if max_changes is None else max_changes,
        allow_majority_dead=allow_majority_dead,
    )
    hold = defaults.max_hold_seconds if max_hold is None else seconds(max_hold)
    whole = read_plan(settings.lake, plan)
    if whole.row["status"] == PlanStatus.COMMITTED:
        return _already_committed(settings, whole)
    found = assess(settings, whole, mode, limits)
    if not apply:
        return _dry(settings, whole, found, detailed=detailed_exitcode)
    if not yes and not _agreed(whole, found):
        raise SurveyorError("not applied: the question was not answered with yes")
    ledger = apply_plan(settings, whole, found, hold)
    return _report(settings, whole, found, ledger, detailed=detailed_exitcode)


def _already_committed(settings: Settings, plan: Plan) -> ExitCode:
    counts = dict.fromkeys(_counts([]), 0) | {Outcome.APPLIED.value: plan.size}
    with connected(settings.zookeeper) as client:
        refuse_other_cluster(settings, plan, read_cluster(client, settings.zookeeper))
    result: Result = {"plan_id": plan.plan_id, "status": plan.row["status"], "applied_now": 0, **counts}
    finish(settings, result, f"plan {plan.title} is committed already: nothing is due")
    return ExitCode.DONE


def _dry(settings: Settings, plan: Plan, found: Assessment, *, detailed: bool) -> ExitCode:
    result: Result = {
        "plan_id": plan.plan_id,
        "status": plan.row["status"],
        "dry_run": True,
        "mode": found.mode.value,
        "due": len(found.due),
        "applied_now": 0,
        **_counts(found.settled),
    }
    lines = [f"  would be written: {change_line(change)}" for change in found.due[:LINES_SHOWN]]
    if len(found.due) > LINES_SHOWN:
        lines.append(f"  ... and {len(found.due) - LINES_SHOWN} more")
    finish(
        settings,
        result,
        f"plan {plan.title}: mode {found.mode} ({found.why}); {len(found.due)} of {plan.size} changes are due",
        *lines,
        *_stale_lines(found.settled),
        "dry run: nothing was written; --apply writes",
    )
    return ExitCode.CHANGES if detailed and found.due else ExitCode.DONE


def _agreed(plan: Plan, found: Assessment) -> bool:
    """Ask on a terminal; a program that says --apply means it."""
    if not sys.stdin.isatty() or not found.due:
        return True
    say(f"plan {plan.title}: {len(found.due)} changes, mode {found.mode} ({found.why})")
    return typer.confirm("write them to the cluster?", err=True)


def _report(settings: Settings, plan: Plan, found: Assessment, ledger: Ledger, *, detailed: bool) -> ExitCode:
    status = read_plan(settings.lake, plan.plan_id).row["status"]
    now = len(ledger.of(Outcome.APPLIED)) - sum(verdict.outcome is Outcome.APPLIED for verdict in found.settled)
    result: Result = {"plan_id": plan.plan_id, "status": status, "applied_now": now, **ledger.counts()}
    told = ", ".join(f"{count} {outcome}" for outcome, count in ledger.counts().items() if count)
    told += f" ({now} of them now)" if now < len(ledger.of(Outcome.APPLIED)) else ""
    finish(settings, result, f"plan {plan.title}: {status}; {told or 'no changes'}", *_stale_lines(ledger.verdicts))
    if any(ledger.of(outcome) for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED)):
        return ExitCode.ERROR
    return ExitCode.STALE if detailed and ledger.of(Outcome.STALE) else ExitCode.DONE


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    found = [verdict.outcome for verdict in verdicts]
    return {outcome.value: found.count(outcome) for outcome in Outcome if outcome is not Outcome.PENDING}


def _stale_lines(verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"  {verdict.outcome}: {row_name(verdict.change)}: {verdict.message}"
        for verdict in verdicts
        if verdict.outcome is not Outcome.APPLIED
    ][:LINES_SHOWN]


if __name__ == "__main__":
    run_alone(commit)
