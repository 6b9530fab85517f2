"""`surveyor verify`: how far a committed plan has come, change by change, as the cluster shows it now. No JVM."""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import TextFormat
from jobs.runtime.options import All, DetailedExitcode, PlanId, command, run_alone
from jobs.runtime.settings import Settings


@command
def verify(
    settings: Settings,
    *,
    plan: PlanId,
    measure_for: Annotated[
        str,
        typer.Option("--measure", help="Time between two looks at what is being copied; 0s: one look, no estimate."),
    ] = "3s",
    format: Annotated[  # noqa: A002 - the flag's name
        TextFormat, typer.Option(help="kafka: in the words of kafka-reassign-partitions --verify, for scripts.")
    ] = TextFormat.SURVEYOR,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Show how far a committed plan has come, and how far its replicas have been copied."""
    from jobs.core.units import parse_seconds
    from jobs.execution.verification import report_verification

    apart = parse_seconds("--measure", measure_for)
    return report_verification(settings, plan, apart, format, everything=everything, detailed=detailed_exitcode)


if __name__ == "__main__":
    run_alone(verify)
