"""`surveyor vacuum`: what is older than the retention goes from the tables and from the disk. No JVM."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from jobs.records.snapshots import find_snapshot
from jobs.runtime.console import Result, finish, table
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings
from jobs.survey.retention import GRACE_HOURS, period, vacuum_lake


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
    kept = settings.conf.retention if keep is None else keep
    wanted = period(kept)
    find_snapshot(settings.lake)
    settings.lake.ensure_tables()
    result = vacuum_lake(settings.lake, datetime.now(UTC), wanted, dry_run=dry_run)
    finish(settings, {"keep": kept, "dry_run": dry_run, **result}, *_for_people(settings, result, dry_run=dry_run))


def _for_people(settings: Settings, result: Result, *, dry_run: bool) -> list[Any]:
    rows = [row for row in result["tables"] if row["files_before"]]
    would = "would be " if dry_run else ""
    summary = (
        f"{result['snapshots_dropped']} snapshots {would}dropped, the oldest is then {result['oldest_snapshot']}; "
        f"{result['bytes_before']:,} bytes before, {result['bytes_after']:,} after"
    )
    waiting = f"files replaced less than {GRACE_HOURS} h ago stay until a later vacuum"
    return [table(f"vacuum of {settings.cluster}", list(rows[0]), rows), summary, waiting]


if __name__ == "__main__":
    run_alone(vacuum)
