"""`surveyor load`: sample the load of partitions, import it, and compute what plans and pages use."""

from typing import Annotated, Final

import typer

from jobs.runtime.command_pages import CommandLine
from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import command
from jobs.runtime.settings import Settings

EXAMPLES: Final = """\
Examples:
  surveyor load sample --every 5m    # offsets and sizes, until stopped
  surveyor load rollup               # samples to hours
  surveyor load profile              # hours to the windows that plans use
  surveyor show load --by topic
"""

app = CommandLine(
    no_args_is_help=True,
    help="Measure what partitions and brokers carry.",
    epilog=EXAMPLES,
    cls=HelpPage,
)


@app.command()
@command
def sample(
    settings: Settings,
    *,
    every: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="Take a sample at these intervals, such as 5m, until stopped."),
    ] = None,
) -> CommandResult | None:
    """Record offsets and sizes of partitions, offsets of groups, and disks, as the live brokers report them."""
    import sys

    from jobs.core.units import parse_seconds
    from jobs.measurement.sampling import report_sample, sample_repeatedly
    from jobs.runtime.output import emit

    if every is None:
        return report_sample(settings)

    def show(result: CommandResult) -> None:
        emit(settings, result)
        sys.stdout.flush()

    sample_repeatedly(settings, parse_seconds("--every", every), show)
    return None


if __name__ == "__main__":
    app()
