"""`surveyor load`: sample the load of partitions, import it, and compute what plans and pages use."""

from typing import Annotated, Final

import typer

from jobs.runtime.command_pages import CommandLine
from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import on_spark
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
@on_spark
def rollup(
    settings: Settings,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Compute the hours from then on again: 3d, 12h, or 2026-11-01T10:00."),
    ] = None,
) -> CommandResult:
    """Compute the load of partitions, groups and brokers by hour from samples, as far as samples are new."""
    from jobs.measurement.rollup import report_rollup

    return report_rollup(settings, since)


if __name__ == "__main__":
    app()
