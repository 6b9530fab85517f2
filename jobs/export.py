"""`surveyor export`: a plan's target assignment in the format of another tool. No JVM."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import Format
from jobs.runtime.options import PlanId, command, run_alone
from jobs.runtime.settings import Settings


@command
def export(
    settings: Settings,
    *,
    plan: PlanId,
    format: Annotated[  # noqa: A002 - the flag's name
        Format, typer.Option(help="The JSON of kafka-reassign-partitions, or what its --generate prints.")
    ] = Format.KAFKA,
    wave: Annotated[
        int | None, typer.Option(help="Only this wave, by its number in `show plan` [default: all].")
    ] = None,
    inverse: Annotated[
        bool,
        typer.Option("--inverse", help="What takes it back; of several waves, take back the last one first."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write to [default: stdout].")] = None,
) -> ExitCode:
    """Write a plan's targets in the format of Kafka's own tools."""
    from jobs.console_output.export import export_plan

    return export_plan(settings, plan, format, wave, out, inverse=inverse)


if __name__ == "__main__":
    run_alone(export)
