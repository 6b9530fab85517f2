"""The options that all subcommands of `surveyor plan` have in common, and the plans of all clusters."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Annotated, Any, Final

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, FleetSummary, Parallel, run_on_fleet
from jobs.runtime.options import Command, DetailedExitcode, MaxWait, Name, ReplaceName, SnapshotId, Yes, on_spark
from jobs.runtime.settings import FLEET_OPTIONS, Settings
from jobs.runtime.suggestions import stated_command

Refresh = Annotated[
    bool | None,
    typer.Option(
        "--refresh/--no-refresh",
        help="Take a snapshot first, or plan on the newest stored one [default: --refresh if the cluster's address is "
        "given and no plan has the --name].",
    ),
]
ApplyPlan = Annotated[
    bool, typer.Option("--apply", help="Commit the plan at once, wait until all of it is done, and verify it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Values of the common options: snapshot, alias, exit code."""

    snapshot_id: int | None = None
    """None for the newest."""
    refresh: bool | None = None
    """Whether to take a snapshot first; None for the default of --refresh."""
    name: str | None = None
    replace_name: bool = False
    """Take the alias from another plan that has it."""
    detailed: bool = False
    apply: bool = False
    """Commit the plan at once."""
    yes: bool = False
    """Commit without asking."""
    max_wait: str | None = None
    """Time to wait for the last wave; None for no limit."""
    command: str | None = None
    """The typed command, as formatted by `stated_command`."""


_FIGURES: Final = ("snapshot_id", "plan_id", "name", "status", "changes", "operations", "moves", "rejected")

PLAN_SUMMARY: Final = FleetSummary(
    title="plan",
    figures=lambda result: {name: result[name] for name in _FIGURES},
    shown=("snapshot_id", "plan_id", "changes", "operations", "moves", "rejected"),
    worst_by=("rejected", "changes", "operations"),
)


def plan_command(make: Callable[..., CommandResult]) -> Command:
    """Make a command of `make(settings, ..., options=PlanOptions(...))`: add the common options and --all-clusters.

    A parameter that is a dataclass becomes an option for each of its fields.
    """
    return _command(make, fleet_options=("fleet", "parallel"))


def plan_command_of_one_cluster(make: Callable[..., CommandResult]) -> Command:
    """Do the same as `plan_command` without --all-clusters, for plans of what only one cluster has."""
    return _command(make, fleet_options=())


def _command(make: Callable[..., CommandResult], fleet_options: Collection[str]) -> Command:
    declared = [parameter for parameter in inspect.signature(make).parameters.values() if parameter.name != "options"]
    groups: dict[str, type[Any]] = {
        parameter.name: parameter.annotation
        for parameter in declared[1:]
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }

    def run(
        settings: Settings,
        *,
        snapshot: SnapshotId = None,
        refresh: Refresh = None,
        name: Name = None,
        replace_name: ReplaceName = False,
        apply: ApplyPlan = False,
        yes: Yes = False,
        max_wait: MaxWait = None,
        detailed_exitcode: DetailedExitcode = False,
        fleet: Fleet = False,
        parallel: Parallel = None,
        **own: Any,  # noqa: ANN401 - the options of this subcommand
    ) -> CommandResult:
        if refresh and snapshot is not None:
            raise UsageError(
                f"--refresh plans on a new snapshot, --snapshot {snapshot} on an existing one: give one of the two"
            )
        if not apply and (yes or max_wait is not None):
            raise UsageError(f"{'--yes' if yes else '--max-wait'} is for a plan that is committed: give --apply, too")
        options = PlanOptions(
            snapshot_id=snapshot,
            refresh=refresh,
            name=name,
            replace_name=replace_name,
            detailed=detailed_exitcode,
            apply=apply,
            yes=yes,
            max_wait=max_wait,
        )
        grouped = {
            name: group(**{field.name: own.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }

        def plan(of_cluster: Settings) -> CommandResult:
            command = stated_command(of_cluster, "plan", make.__name__)
            return make(of_cluster, options=replace(options, command=command), **own, **grouped)

        return run_on_fleet(settings, parallel, plan, PLAN_SUMMARY) if fleet else plan(settings)

    _, *shared, _ = inspect.signature(run).parameters.values()  # before a wrapper takes over the annotations of `make`
    own_parameters = chain.from_iterable(
        _options_of(groups[parameter.name]) if parameter.name in groups else [parameter] for parameter in declared
    )
    functools.update_wrapper(run, make)
    taken = [
        parameter for parameter in shared if parameter.name in fleet_options or parameter.name not in FLEET_OPTIONS
    ]
    run.__signature__ = inspect.Signature([*own_parameters, *taken])  # type: ignore[attr-defined]
    return on_spark(run)


def _options_of(group: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field of a dataclass."""
    for field in fields(group):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
