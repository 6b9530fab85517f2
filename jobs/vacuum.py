"""`surveyor vacuum`: delete what is older than the retention from the tables and the disk."""

from typing import Annotated

import typer

from jobs.runtime.console import CommandResult
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def vacuum(
    settings: Settings,
    *,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Retention in hours, days or weeks, as 12h, 30d, 8w [default: retention of the --conf file]."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
) -> CommandResult:
    """Delete snapshots older than --keep and the files that only they use."""
    from jobs.snapshots.vacuum import drop_old

    return drop_old(settings, keep, dry_run=dry_run)


if __name__ == "__main__":
    run_as_script(vacuum)
