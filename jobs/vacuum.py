"""`surveyor vacuum`: what is older than the retention goes from the tables and from the disk. No JVM."""

from typing import Annotated

import typer

from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def vacuum(
    settings: Settings,
    *,
    keep: Annotated[
        str | None, typer.Option(help="Hours, days or weeks: 12h, 30d, 8w [default: the conf's retention].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """Drop snapshots older than --keep, and the files that only they needed."""
    from jobs.snapshots.vacuum import drop_old

    drop_old(settings, keep, dry_run=dry_run)


if __name__ == "__main__":
    run_alone(vacuum)
