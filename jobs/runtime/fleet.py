"""A command on every cluster of the configuration file, with --all-clusters: several at once, in one process.

Each cluster has its own connections, warnings and result. A failure becomes the cluster's outcome and does not affect
the others. The result has one row a cluster, the worst first, and the complete result of each. The command ends with
the worst exit code (`WORST_FIRST`).
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from jobs.core.errors import WORST_FIRST, ExitCode, SurveyorError
from jobs.core.logs import fleet_cluster_scope
from jobs.core.option_sources import option_sources_of_cluster
from jobs.core.units import Part
from jobs.runtime.cli_enums import Output
from jobs.runtime.console import CommandResult, Result, log, separate_warnings, table
from jobs.runtime.options import unexpected_error_message
from jobs.runtime.progress import SHOW_AFTER_SECONDS, progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, full_commands_in_errors, suggestion
from schemas.text import pluralise

MAX_PARALLEL: Final = 8
"""Clusters at once, unless --parallel is given."""

Fleet = Annotated[
    bool, typer.Option("--all-clusters", help="Do this for every cluster of the --conf file, several at once.")
]

Parallel = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"With --all-clusters: work on at most this many clusters at once [default: {MAX_PARALLEL}]."
    ),
]

STEPS_SHOWN: Final = 3
"""Clusters whose next command is shown, apart from those that failed."""

REASON_CHARS: Final = 400
"""Characters of an error in the summary; stderr and the cluster's result have all of it."""

OUTCOME_COLUMNS: Final = ("cluster", "outcome", "exit_code")

REASON_COLUMNS: Final = ("seconds", "reason")

Work = Callable[[Settings], CommandResult]
"""A command on one cluster."""


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """Summary of a command over all clusters."""

    title: str
    figures: Callable[[Result], Result]
    """Returns the figures of a cluster's result by column."""
    shown: Sequence[str]
    """The columns of the console; --json and -o wide have all."""
    worst_by: Sequence[str] = ()
    """Columns of counts, the gravest first, by which clusters with the same outcome are ordered: the largest first."""


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """The result or the error of the work on one cluster."""

    settings: Settings
    exit_code: ExitCode
    fields: Result
    """The JSON object of the command on this cluster only."""
    seconds: float
    steps: Sequence[Suggestion] = ()

    @property
    def cluster(self) -> str:
        return self.settings.cluster

    @property
    def reason(self) -> str | None:
        """The error in one line."""
        error = self.fields.get("error")
        return None if error is None else one_line(str(error))

    @property
    def is_failure(self) -> bool:
        return "error" in self.fields


def one_line(error: str) -> str:
    r"""Join the lines of an error, and cut it off after REASON_CHARS.

    >>> one_line("no broker answered:\n  kafka1:9092: timed out\n  kafka2:9092: refused\ncheck that brokers run")
    'no broker answered: kafka1:9092: timed out; kafka2:9092: refused; check that brokers run'
    """
    joined = "; ".join(line.strip() for line in error.splitlines()).replace(":; ", ": ")
    return joined if len(joined) <= REASON_CHARS else f"{joined[:REASON_CHARS]}..."


def run_on_fleet(settings: Settings, parallel: int | None, work: Work, summary: FleetSummary) -> CommandResult:
    """Run `work` on each cluster of `settings.fleet`; return the summary and every result."""
    began = time.monotonic()
    outcomes = dict[str, ClusterOutcome]()
    with progress(summary.title, lambda: Part(len(outcomes), len(settings.fleet), "clusters")):
        for outcome in _outcomes(settings.fleet, min(parallel or MAX_PARALLEL, len(settings.fleet)), work):
            outcomes[outcome.cluster] = outcome
            _log_end(outcome, is_late=time.monotonic() - began > SHOW_AFTER_SECONDS)
    rows = [*summary_rows(outcomes.values(), summary)]
    failed = sum(outcome.is_failure for outcome in outcomes.values())
    worst = worst_code(outcome.exit_code for outcome in outcomes.values())
    result = {
        "clusters": {member.cluster: outcomes[member.cluster].fields for member in settings.fleet},
        "summary": rows,
        "failed": failed,
        "exit_code": int(worst),
    }
    columns = [*OUTCOME_COLUMNS, *summary.shown, *REASON_COLUMNS]
    if settings.output is Output.WIDE:
        columns = list(rows[0])
    title = f"{pluralise(len(rows), 'cluster')}, {summary.title}, the worst first"
    ordered = [outcomes[row["cluster"]] for row in rows]
    return CommandResult(result, table(title, columns, rows), steps=[*_steps(ordered)], exit_code=worst)


def _outcomes(fleet: Sequence[Settings], parallel: int, work: Work) -> Iterator[ClusterOutcome]:
    """Yield the outcome of each cluster as it ends; an interruption drops those that have not started."""
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="cluster")
    try:
        pending = {pool.submit(_outcome_of, member, work) for member in fleet}
        while pending:
            done: set[Future[ClusterOutcome]]
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _outcome_of(settings: Settings, work: Work) -> ClusterOutcome:
    """Do the work on one cluster, in a thread of the pool; return any error as the outcome."""
    began = time.monotonic()

    def outcome(code: ExitCode, fields: Result, steps: Sequence[Suggestion] = ()) -> ClusterOutcome:
        return ClusterOutcome(settings, code, fields, round(time.monotonic() - began, 3), steps)

    with fleet_cluster_scope(settings.cluster), option_sources_of_cluster(settings.places), separate_warnings():
        try:
            settings.refuse_invalid_section()
            with full_commands_in_errors(settings):
                result = work(settings)
            return outcome(result.exit_code, result.json, result.steps or ())
        except SurveyorError as error:
            message, code, so_far = str(error), error.exit_code, error.result
            log(f"surveyor: {message}", logging.WARNING, exit_code=int(code))
        except Exception as error:  # noqa: BLE001 - the other clusters must be processed
            message, code, so_far = unexpected_error_message(error), ExitCode.ERROR, {}
            log(f"surveyor: {message}", logging.WARNING, error, exit_code=int(code))
        return outcome(code, {"error": message, "exit_code": int(code), **so_far})


def _log_end(outcome: ClusterOutcome, *, is_late: bool) -> None:
    """Log the end of the work on a cluster of a command that takes long; failures have been logged."""
    if is_late and not outcome.is_failure:
        log(f"  ... {outcome.cluster}: {outcome.seconds:.1f} s", cluster=outcome.cluster)


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the worst exit code.

    >>> worst_code([ExitCode.DONE, ExitCode.UNREADABLE, ExitCode.CHANGES]).name, worst_code([]).name
    ('UNREADABLE', 'DONE')
    """
    return min(codes, key=_rank, default=ExitCode.DONE)


def _rank(code: ExitCode) -> int:
    return WORST_FIRST.index(code if code in WORST_FIRST else ExitCode.ERROR)


def summary_rows(outcomes: Collection[ClusterOutcome], summary: FleetSummary) -> Iterator[Result]:
    """Yield a row for each cluster, the worst first; a cluster without figures has null in their columns."""
    figures = {outcome.cluster: {} if outcome.is_failure else summary.figures(outcome.fields) for outcome in outcomes}
    names = list(dict.fromkeys([*summary.shown, *(name for row in figures.values() for name in row)]))

    def severity(outcome: ClusterOutcome) -> tuple[Any, ...]:
        counts = (figures[outcome.cluster].get(name) or 0 for name in summary.worst_by)
        return _rank(outcome.exit_code), *(-count for count in counts), outcome.cluster

    for outcome in sorted(outcomes, key=severity):
        yield {
            "cluster": outcome.cluster,
            "outcome": outcome.exit_code.name.lower(),
            "exit_code": int(outcome.exit_code),
            **{name: figures[outcome.cluster].get(name) for name in names},
            "seconds": outcome.seconds,
            "reason": outcome.reason,
        }


def _steps(worst_first: Sequence[ClusterOutcome]) -> Iterator[Suggestion]:
    """Suggest a check of each failed cluster, then the next command of the first few others."""
    for outcome in worst_first:
        if outcome.is_failure:
            yield suggestion(outcome.settings, f"{outcome.cluster}: find the cause", "doctor")
    for outcome in [outcome for outcome in worst_first if outcome.steps][:STEPS_SHOWN]:
        step = outcome.steps[0]
        yield Suggestion(f"{outcome.cluster}: {step.what}", step.command, step.zookeeper_shell)
