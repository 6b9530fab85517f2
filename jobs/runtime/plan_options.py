"""The options that all subcommands of `surveyor plan` have in common."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
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
    """Make a command of `ask(settings, ..., options=PlanOptions(...))` by adding the common options."""

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
        return ask(settings, options=options, **own)

    _, *shared, _ = inspect.signature(run).parameters.values()  # before a wrapper takes over the annotations of `ask`
    own = [each for each in inspect.signature(ask).parameters.values() if each.name != "options"]
    functools.update_wrapper(run, ask)
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return on_spark(run)
