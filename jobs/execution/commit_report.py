"""Output and exit code of a commit: what it would write, its approval, and the result.

Shared by all commands that commit. `extras` are fields and lines that such a command adds to its result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain

from jobs.adapters.brokers.admin_client import UNKNOWN_OUTCOME, AdminUnavailableError
from jobs.adapters.clusters.interface import Cluster
from jobs.advice.plans import after_commit, after_dry_run, after_stale, list_all_command
from jobs.console_output.plan_review import commit_warnings
from jobs.console_output.plan_text import deletion_lines, deletion_warnings, due_lines, pending_summary
from jobs.core.errors import ExitCode, SurveyorError
from jobs.core.signals import exit_code, is_interrupted
from jobs.execution.admin.connections import admin_of
from jobs.execution.admin.throttle_texts import rate_lines, slow_copies, throttle_lines
from jobs.execution.commit_options import CommitOptions
from jobs.execution.mode_selection import why_controller_unreachable
from jobs.execution.preflight import Preflight
from jobs.repositories.actor import this_process
from jobs.repositories.copy_volume import Volume, volume_rows
from jobs.repositories.deletion_impact import DeletionImpact, deletion_impact
from jobs.repositories.log_sizes import stored_volume
from jobs.repositories.plans.commit_log import CommitLog, closed_line, count_outcomes
from jobs.repositories.plans.plans_reader import read_plan
from jobs.runtime.approval import Review, warning_lines
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult, Result, keep_warnings, log, truncate
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line, with_full_commands
from schemas.enums import OperationKind, Outcome
from schemas.lease_holder import LeaseHolder, held_now_text
from schemas.rows import changes_among, operations_among
from schemas.stored_plan import CLOSED, Plan, RowOutcome
from schemas.submitted_plan import PlanResult


@dataclass(frozen=True, slots=True)
class ReportExtras:
    """Fields that a command adds to the report of a commit."""

    result: Result = field(default_factory=dict)
    lines: Sequence[str] = ()


def report_dry(
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    preflight: Preflight,
    options: CommitOptions,
    *,
    extras: ReportExtras,
) -> CommandResult:
    """Return what would be written; the exit code is CHANGES only if the detailed exit code was requested."""
    result: Result = {
        **extras.result,
        "plan_id": plan.plan_id,
        "status": plan.row.status,
        "dry_run": True,
        "mode": preflight.mode.value,
        "due": len(preflight.pending),
        "applied_now": 0,
        **count_outcomes(preflight.already_decided),
    }
    if isinstance(preflight.rates, Mapping):
        result["throttle_rates"] = {
            str(broker): {"receive": rate.receive, "send": rate.send} for broker, rate in preflight.rates.items()
        }
    obstacle = _apply_obstacle(settings, cluster, plan, preflight)
    if obstacle:
        result["in_the_way"] = obstacle
    deletions = _deletions_due(settings, plan, preflight)
    if deletions:
        result["deleted"] = [asdict(deletion) for deletion in deletions]
    copies, warned = _Copies(settings, preflight), list[str]()
    if preflight.pending:
        warned = [*commit_warnings(settings.warehouse, plan.row, everything=options.everything), *copies.warnings]
    apply_warnings = [f"--apply would fail: {obstacle}"] if obstacle else []
    review = [
        *_review(settings, plan, copies, warned, options),
        *deletion_lines(deletions, everything=options.everything),
        *warning_lines(apply_warnings),
    ]
    holder = _lease_holder(settings, preflight)
    steps = after_dry_run(settings, plan.called, due=bool(preflight.pending), holder=holder)
    if not steps and result[Outcome.STALE.value]:
        steps = after_stale(settings, plan.row, plan.called, preflight.already_decided)
    note = "dry run: nothing was written; --apply writes"
    all_warnings = [*warned, *deletion_warnings(deletions), *apply_warnings]
    return CommandResult(
        result,
        *review,
        *extras.lines,
        note,
        steps=steps,
        warnings=all_warnings,
        exit_code=ExitCode.CHANGES if options.detailed and preflight.pending else ExitCode.DONE,
    )


def _apply_obstacle(settings: Settings, cluster: Cluster, plan: Plan, preflight: Preflight) -> str | None:
    """Return why --apply could write nothing now although rows are pending; None if nothing is known to prevent it."""
    if preflight.mode is not Mode.ADMIN or not preflight.pending:
        return None
    is_resident = preflight.resident_controller is not None
    unreachable = None if is_resident else why_controller_unreachable(settings, preflight.state)
    holder = _lease_holder(settings, preflight)
    held = None if holder is None else held_now_text(this_process("commit", plan.plan_id), holder)
    return unreachable or held or (cluster.lease_refusal() if settings.conf.commit_lease else None)


def _lease_holder(settings: Settings, preflight: Preflight) -> LeaseHolder | None:
    """Return the process whose lease refuses --apply now; batch mode needs no lease."""
    needs_lease = preflight.mode is Mode.ADMIN and settings.conf.commit_lease and preflight.pending
    return preflight.lease_holder if needs_lease else None


def _review(
    settings: Settings, plan: Plan, copies: "_Copies", warned: Sequence[str], options: CommitOptions
) -> Iterator[str]:
    """Lines on what would be written, what would not, and the warnings."""
    preflight = copies.preflight
    list_all = list_all_command(settings, plan.called)
    yield f"plan {plan.title}: mode {preflight.mode} ({preflight.reason}); {pending_summary(plan, preflight.pending)}"
    if not options.reviewed:
        yield from due_lines(preflight.pending, list_all, everything=options.everything)
    yield from truncate(unapplied_lines(preflight.already_decided), list_all, everything=options.everything)
    pending = changes_among(preflight.pending)
    yield from throttle_lines(settings.warehouse, pending, preflight.rates, preflight.being_committed)
    if not options.reviewed or isinstance(preflight.rates, Mapping):
        yield from copies.lines
    yield from warning_lines(warned)


@dataclass(frozen=True)
class _Copies:
    """The replicas that the pending rows copy; their sizes are read once, if they are shown."""

    settings: Settings
    preflight: Preflight

    @cached_property
    def volume(self) -> Volume:
        return stored_volume(self.settings.warehouse, volume_rows(changes_among(self.preflight.pending)))

    @property
    def lines(self) -> Iterator[str]:
        return (f"  {with_full_commands(self.settings, line)}" for line in self.volume.lines(self.preflight.rates))

    @property
    def warnings(self) -> list[str]:
        """The warnings of rates by load that are the least ones."""
        rates = self.preflight.rates
        if not isinstance(rates, Mapping):
            return []
        return [*slow_copies(changes_among(self.preflight.pending), rates, self.volume)]

    @property
    def notes(self) -> list[str]:
        """The rates by load and how long copies take, which a commit shows without a question, too."""
        rates = self.preflight.rates
        if not isinstance(rates, Mapping):
            return []
        return [*rate_lines(changes_among(self.preflight.pending), rates), *self.lines]


def refuse_unapproved(
    settings: Settings, plan: Plan, preflight: Preflight, options: CommitOptions, extras: ReportExtras
) -> None:
    """Show the pending rows as a dry run does, and ask for approval; raise SurveyorError if it is not given.

    Deleting topics needs more than a yes, and is refused if no question can be asked.
    """
    if not preflight.pending:
        return
    warned = commit_warnings(settings.warehouse, plan.row, everything=options.everything)
    copies = _Copies(settings, preflight)
    slow, notes = copies.warnings, copies.notes
    keep_warnings([*warned, *slow])
    shown_warnings = slow if options.reviewed else [*warned, *slow]
    if options.approve is None:
        for line in [*notes, *warning_lines(shown_warnings)]:
            log(line)
        return
    deletions = _deletions_due(settings, plan, preflight)
    lines = chain(
        _review(settings, plan, copies, shown_warnings, options),
        deletion_lines(deletions, everything=options.everything),
        extras.lines,
    )
    review = _deletion_review(plan, deletions) if deletions else Review("write them to the cluster?")
    if not options.approve(replace(review, lines=lines, notes=notes, warnings=shown_warnings)):
        expected = "as it asks" if deletions else "with yes"
        raise SurveyorError(f"not applied: the question was not answered {expected}; plan {plan.title} is stored")


def _deletion_review(plan: Plan, deleted: Sequence[DeletionImpact]) -> Review:
    """Ask for the topic's name, or for the number of topics: a plain yes is given too quickly for a deletion."""
    if len(deleted) == 1:
        expected, prompt = deleted[0].topic, "the topic's name"
    else:
        expected, prompt = str(len(deleted)), "the number of topics to be deleted"
    impact = "; ".join(line.strip() for line in deletion_lines(deleted))
    return Review(
        f"this cannot be undone; type {prompt} to delete",
        expected_word=expected,
        unattended_refusal=f"plan {plan.title} deletes topics, and confirmation requires a terminal: nothing "
        f"was written; give --yes to delete them: {impact}",
    )


def plan_result(settings: Settings, plan: Plan, commit_log: CommitLog, *, detailed: bool) -> PlanResult:
    """Return the result of a commit; its exit code shows whether all was written as planned."""
    row = read_plan(settings.warehouse, plan.plan_id).row
    status = row.status
    applied_now = len(commit_log.of(Outcome.APPLIED)) - commit_log.already_decided
    applied: Result = {"plan_id": plan.plan_id, "status": status, "applied_now": applied_now, **commit_log.counts()}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in commit_log.counts().items() if count)
    summary += f" ({applied_now} of them now)" if applied_now < len(commit_log.of(Outcome.APPLIED)) else ""
    stale = truncate(
        unapplied_lines(commit_log.outcomes), command_line(settings, "show", "commits", plan.called, "--all")
    )
    if status in CLOSED:
        summary = _cancellation_summary(commit_log)
        title = f"plan {plan.title} {closed_line(settings.warehouse, row)}, while it was committed; {summary}"
        return PlanResult(ExitCode.ERROR, applied, [title, *stale])
    title = f"plan {plan.title}: {status}; {summary or 'no changes'}"
    left = f"  its throttle could not be removed: `surveyor commit {plan.plan_id} --apply` removes it later"
    blocked = [f"  {commit_log.blocked}"] if commit_log.blocked else []
    lines = [title, *blocked, *([left] if commit_log.throttle_left else ()), *stale]
    return PlanResult(_exit_code(commit_log, detailed=detailed), applied, lines)


def _cancellation_summary(commit_log: CommitLog) -> str:
    """Return how much of a plan that was cancelled during its commit is applied, and how much was turned back."""
    applied, size = len(commit_log.of(Outcome.APPLIED)), commit_log.plan.size
    turned_back = len(commit_log.of(Outcome.STALE))
    text = f"{turned_back} of {size} were turned back" if turned_back else f"none of {size} was turned back"
    return f"{text}, {applied} are as planned"


def report_applied(
    settings: Settings, plan: Plan, commit_log: CommitLog, extras: ReportExtras, *, detailed: bool
) -> CommandResult:
    """Return what a commit shows at its end."""
    committed = plan_result(settings, plan, commit_log, detailed=detailed)
    steps = after_commit(settings, plan.called, committed.result["status"], committed.result)
    if committed.exit_code == ExitCode.STALE and not commit_log.of(Outcome.APPLIED):
        more = after_stale(settings, plan.row, plan.called, commit_log.outcomes)
        steps = [*steps, *(step for step in more if step not in steps)]
    code = ExitCode(committed.exit_code)
    if is_interrupted():
        written, left = committed.result["applied_now"], len(commit_log.of(Outcome.SKIPPED))
        log(f"surveyor: interrupted: {written} written, {left} left; commit again to continue")
        code = exit_code()
    return CommandResult(
        extras.result | committed.result, *committed.lines, *extras.lines, steps=steps, warnings=[], exit_code=code
    )


def _exit_code(commit_log: CommitLog, *, detailed: bool) -> ExitCode:
    """ERROR for undecided rows or a throttle that is left, STALE for stale rows, else DONE."""
    if (
        commit_log.unanswered
        or commit_log.throttle_left
        or any(commit_log.of(outcome) for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED))
    ):
        return ExitCode.ERROR
    nothing_applied = not commit_log.of(Outcome.APPLIED)
    return ExitCode.STALE if (detailed or nothing_applied) and commit_log.of(Outcome.STALE) else ExitCode.DONE


def unapplied_lines(outcomes: Sequence[RowOutcome]) -> list[str]:
    """Return a line for each row that was not applied, with the reason."""
    return [
        f"  {outcome.outcome}: {outcome.change.name}: {outcome.message}"
        for outcome in outcomes
        if outcome.outcome is not Outcome.APPLIED
    ]


def _deletions_due(settings: Settings, plan: Plan, preflight: Preflight) -> list[DeletionImpact]:
    """Return what the commit deletes with its topics; in admin mode their leaders report the numbers of records."""
    topics = [row.topic for row in operations_among(preflight.pending) if row.kind == OperationKind.DELETE_TOPIC]
    if not topics:
        return []
    records = _records(settings, preflight, topics) if preflight.mode is Mode.ADMIN else {}
    return deletion_impact(settings.warehouse, plan.row, topics, records)


def _records(settings: Settings, preflight: Preflight, topics: Sequence[str]) -> Mapping[str, int]:
    """Return the number of records of each topic, by its leaders; a topic is left out if its leaders do not respond.

    A missing number does not prevent the deletion.
    """
    try:
        with progress("asking brokers for their offsets"), admin_of(settings, preflight.state) as admin:
            return {topic: records for topic in topics if (records := admin.record_count(topic)) is not None}
    except (AdminUnavailableError, *UNKNOWN_OUTCOME):
        return {}
