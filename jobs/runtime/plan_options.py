"""The options that all subcommands of `surveyor plan` have in common."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Annotated, Any

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.options import Command, DetailedExitcode, Name, ReplaceName, SnapshotId, on_spark
from jobs.runtime.settings import Settings
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


def question(ask: Callable[..., CommandResult]) -> Command:
    """Make a command of `ask(settings, ..., options=PlanOptions(...))` by adding the common options.

    A parameter that is a dataclass becomes an option for each of its fields.
    """
    declared = [each for each in inspect.signature(ask).parameters.values() if each.name != "options"]
    groups: dict[str, type[Any]] = {
        each.name: each.annotation
        for each in declared[1:]
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    def run(
        settings: Settings,
        *,
        snapshot: SnapshotId = None,
        refresh: Refresh = False,
        name: Name = None,
        replace_name: ReplaceName = False,
        detailed_exitcode: DetailedExitcode = False,
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
            command=stated_command(settings, "plan", ask.__name__),
        )
        grouped = {
            name: group(**{field.name: own.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return ask(settings, options=options, **own, **grouped)

    _, *shared, _ = inspect.signature(run).parameters.values()  # before a wrapper takes over the annotations of `ask`
    stated = chain.from_iterable(_options_of(groups[each.name]) if each.name in groups else [each] for each in declared)
    functools.update_wrapper(run, ask)
    run.__signature__ = inspect.Signature([*stated, *shared])  # type: ignore[attr-defined]
    return on_spark(run)


def _options_of(group: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field of a dataclass."""
    for field in fields(group):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
