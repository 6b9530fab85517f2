"""`surveyor load`: sample the load of partitions, import it, and compute what plans and pages use."""

from typing import Final

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
def sample(settings: Settings) -> CommandResult:
    """Record offsets and sizes of partitions as reported by the live brokers."""
    from jobs.measurement.sampling import report_sample

    return report_sample(settings)


if __name__ == "__main__":
    app()
