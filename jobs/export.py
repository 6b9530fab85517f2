"""`surveyor export`: write a plan's target assignment in the format of Kafka's tools."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import Format
from jobs.runtime.options import PlanId, command, run_as_script
from jobs.runtime.settings import Settings


@command
def export(
    settings: Settings,
    *,
    plan: PlanId,
    format: Annotated[  # noqa: A002 - the flag's name
        Format,
        typer.Option(
            help="kafka: the JSON of kafka-reassign-partitions; kafka-generate: the output of its --generate."
        ),
    ] = Format.KAFKA,
    wave: Annotated[
        int | None, typer.Option(help="Export only this wave, by its number in `show plan` [default: all].")
    ] = None,
    inverse: Annotated[
        bool,
        typer.Option("--inverse", help="Export the reversal; reverse the last of several waves first."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write to [default: stdout].")] = None,
) -> ExitCode:
    """Write a plan's target assignment in the format of Kafka's tools."""
    from jobs.console_output.export import export_plan

    return export_plan(settings, plan, format, wave, out, inverse=inverse)


if __name__ == "__main__":
    run_as_script(export)
