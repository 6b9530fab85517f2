"""`surveyor migration`: what a migration from ZooKeeper to KRaft needs and would lose. No JVM."""

from typing import Final

import typer

from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.lazy_commands import HELP
from jobs.runtime.options import command
from jobs.runtime.settings import Settings

EXAMPLES: Final = """\
Examples:
  surveyor migration check
  surveyor migration check --json

Exits with 10 if something prevents the migration or would be lost in it.
"""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Check what a migration from ZooKeeper to KRaft needs and would lose.",
    epilog=EXAMPLES,
    context_settings=HELP,
    cls=HelpPage,
)


@app.callback()
def _group() -> None: ...


@app.command()
@command
def check(settings: Settings) -> CommandResult:
    """Find what prevents a migration to KRaft, or would be lost in it; changes nothing."""
    from jobs.console_output.migration import report_check

    return report_check(settings)


if __name__ == "__main__":
    app()
