"""`surveyor migration`: check a cluster before a migration from ZooKeeper to KRaft, and compare it afterwards."""

from typing import Annotated, Final

import typer

from jobs.runtime.command_pages import CommandLine
from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import command
from jobs.runtime.settings import Settings

EXAMPLES: Final = """\
Examples:
  surveyor migration check
  surveyor snapshot                      # before, from ZooKeeper
  surveyor snapshot                      # after, from the KRaft cluster
  surveyor migration prove 41 57

Both exit with 10 if they find something.
"""

app = CommandLine(
    no_args_is_help=True,
    help="Check what a migration to KRaft needs, and prove that it has lost nothing.",
    epilog=EXAMPLES,
    cls=HelpPage,
)


@app.command()
@command
def check(settings: Settings) -> CommandResult:
    """Find what prevents a migration to KRaft, or would be lost in it; changes nothing."""
    from jobs.adapters.zookeeper.connection import connected
    from jobs.checks.migration_check import migration_checks, read_facts
    from jobs.console_output.check_findings import report_check

    settings.refuse_without_zookeeper(
        "migration check", "`surveyor migration prove` compares snapshots of before and after a migration"
    )
    with connected(settings.zookeeper_endpoint) as client:
        facts = read_facts(settings, client)
    return report_check(settings, [*migration_checks(settings, facts)])


@app.command(name="prove")
@command
def prove_migration(
    settings: Settings,
    *,
    before: Annotated[int, typer.Argument(metavar="BEFORE", help="Snapshot from ZooKeeper.")],
    after: Annotated[int, typer.Argument(metavar="AFTER", help="Snapshot from KRaft.")],
    rolled_back: Annotated[
        bool, typer.Option("--rolled-back", help="AFTER is from ZooKeeper, as the migration was rolled back.")
    ] = False,
) -> CommandResult:
    """Compare a snapshot before a migration with one after it: is everything still there?"""
    from jobs.console_output.check_findings import report_proof

    return report_proof(settings, before, after, is_rolled_back=rolled_back)


if __name__ == "__main__":
    app()
