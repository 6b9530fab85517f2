"""The options that all subcommands of `surveyor plan` have in common, and the plans of several clusters with --all."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Annotated, Any, Final

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult, LogLine, log
from jobs.runtime.fleet import Fleet, FleetSummary, Parallel, run_on_fleet
from jobs.runtime.options import Command, DetailedExitcode, Name, ReplaceName, SnapshotId, on_spark
from jobs.runtime.settings import FLEET_OPTIONS, Settings
from jobs.runtime.suggestions import stated_command

Refresh = Annotated[bool, typer.Option("--refresh", help="Take a snapshot first, and plan on it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Values of the common options: snapshot, alias, exit code."""

    snapshot_id: int | None = None
    """None for the newest."""
    refresh: bool = False
    """Take a snapshot first and plan on it."""
    name: str | None = None
    replace_name: bool = False
    """Take the alias from another plan that has it."""
    detailed: bool = False
    command: str | None = None
    """The typed command, as formatted by `stated_command`."""
    log: LogLine
    """Gets what the user should know of the snapshot and the plan, besides the result."""


_FIGURES: Final = ("snapshot_id", "plan_id", "name", "status", "changes", "operations", "moves", "rejected")

PLAN_SUMMARY: Final = FleetSummary(
    title="plan",
    figures=lambda result: {name: result[name] for name in _FIGURES},
    shown=("snapshot_id", "plan_id", "changes", "operations", "moves", "rejected"),
    worst_by=("rejected", "changes", "operations"),
)


def question(ask: Callable[..., CommandResult]) -> Command:
    """Make a command of `ask(settings, ..., options=PlanOptions(...))` by adding the common options and --all.

    A parameter that is a dataclass becomes an option for each of its fields.
    """
    return _command(ask, fleet_options=("fleet", "parallel"))


def question_of_one_cluster(ask: Callable[..., CommandResult]) -> Command:
    """Do the same as `question` without --all, for questions about what only one cluster has."""
    return _command(ask, fleet_options=())


def _command(ask: Callable[..., CommandResult], fleet_options: Collection[str]) -> Command:
    declared = [parameter for parameter in inspect.signature(ask).parameters.values() if parameter.name != "options"]
    groups: dict[str, type[Any]] = {
        parameter.name: parameter.annotation
        for parameter in declared[1:]
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }

    def run(
        settings: Settings,
        *,
        snapshot: SnapshotId = None,
        refresh: Refresh = False,
        name: Name = None,
        replace_name: ReplaceName = False,
        detailed_exitcode: DetailedExitcode = False,
        fleet: Fleet = False,
        parallel: Parallel = None,
        **own: Any,  # noqa: ANN401 - the options of this subcommand
    ) -> CommandResult:
        if refresh and snapshot is not None:
            raise UsageError(
                f"--refresh plans on a new snapshot, --snapshot {snapshot} on an existing one: give one of the two"
            )
        options = PlanOptions(
            snapshot_id=snapshot,
            refresh=refresh,
            name=name,
            replace_name=replace_name,
            detailed=detailed_exitcode,
            log=log,
        )
        grouped = {
            name: group(**{field.name: own.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }

        def plan(of_cluster: Settings) -> CommandResult:
            command = stated_command(of_cluster, "plan", ask.__name__)
            return ask(of_cluster, options=replace(options, command=command), **own, **grouped)

        return run_on_fleet(settings, parallel, plan, PLAN_SUMMARY) if fleet else plan(settings)

    _, *shared, _ = inspect.signature(run).parameters.values()  # before a wrapper takes over the annotations of `ask`
    stated = chain.from_iterable(
        _options_of(groups[parameter.name]) if parameter.name in groups else [parameter] for parameter in declared
    )
    functools.update_wrapper(run, ask)
    taken = [
        parameter for parameter in shared if parameter.name in fleet_options or parameter.name not in FLEET_OPTIONS
    ]
    run.__signature__ = inspect.Signature([*stated, *taken])  # type: ignore[attr-defined]
    return on_spark(run)


def _options_of(group: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field of a dataclass."""
    for field in fields(group):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
