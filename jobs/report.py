"""`surveyor report`: write an HTML report of the cluster or of a plan."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, Parallel
from jobs.runtime.options import Throttle, check_throttle, command, run_as_script
from jobs.runtime.settings import Settings


@command
def report(
    settings: Settings,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file [default: report.html, plan-ID.html for a plan, or migration.html]; a folder with "
            "--all-clusters."
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(help="Id or alias of a plan to review [default: report on the cluster]."),
    ] = None,
    snapshot: Annotated[
        int | None,
        typer.Option(help="Report the cluster as of this snapshot [default: the newest]."),
    ] = None,
    migration: Annotated[
        str | None,
        typer.Option(
            metavar="BEFORE,AFTER",
            help="Two snapshots, as in `migration prove`: report what a migration to KRaft has lost or changed.",
        ),
    ] = None,
    rolled_back: Annotated[
        bool, typer.Option("--rolled-back", help="As in `migration prove`: AFTER is from ZooKeeper, too.")
    ] = False,
    throttle: Throttle = None,
    fleet: Fleet = False,
    parallel: Parallel = None,
) -> CommandResult:
    """Write an HTML report of the cluster's history, of a plan or of a migration."""
    from jobs.web.report import write_fleet_report, write_migration_report, write_report

    if migration is not None:
        if plan is not None or snapshot is not None:
            raise UsageError("--migration has two snapshots of its own; omit --plan and --snapshot")
        return write_migration_report(settings, out, migration, is_rolled_back=rolled_back)
    if rolled_back:
        raise UsageError("--rolled-back is about a migration; add --migration BEFORE,AFTER")
    if fleet:
        return write_fleet_report(settings, out, parallel)
    check_throttle(throttle, settings.conf.throttle)
    return write_report(settings, out, plan, snapshot)


if __name__ == "__main__":
    run_as_script(report)
