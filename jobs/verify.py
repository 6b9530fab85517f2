"""`surveyor verify`: show how far a committed plan has come, change by change, in the current cluster."""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import TextFormat
from jobs.runtime.options import All, DetailedExitcode, PlanId, command, run_as_script
from jobs.runtime.settings import Settings


@command
def verify(
    settings: Settings,
    *,
    plan: PlanId,
    measure_for: Annotated[
        str,
        typer.Option(
            "--measure",
            help="Interval between two measurements of running copies; 0s: measure once, without an estimate.",
        ),
    ] = "3s",
    format: Annotated[  # noqa: A002 - the flag's name
        TextFormat, typer.Option(help="kafka: print the output of kafka-reassign-partitions --verify, for scripts.")
    ] = TextFormat.SURVEYOR,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Show the progress of a committed plan and of its replica copies."""
    from jobs.console_output.verification import show_verification
    from jobs.core.units import parse_seconds
    from jobs.execution.verification import verify_stored

    interval = parse_seconds("--measure", measure_for)
    verification = verify_stored(settings, plan, interval, in_full=format is not TextFormat.KAFKA)
    show_verification(settings, verification, format, everything=everything)
    return ExitCode.CHANGES if detailed_exitcode and not verification.is_complete else ExitCode.DONE


if __name__ == "__main__":
    run_as_script(verify)
