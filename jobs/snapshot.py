"""`surveyor snapshot`: one cluster, or every cluster of the --conf file, surveyed into the Delta tables."""

from typing import Annotated

import typer

from jobs.basics.errors import ExitCode
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def snapshot(
    settings: Settings,
    *,
    fleet: Annotated[
        bool, typer.Option("--all", help="Every cluster of the --conf file, one after the other.")
    ] = False,
) -> ExitCode:
    """Read the cluster from ZooKeeper into the Delta tables."""
    from jobs.survey.snapshot import snapshot_fleet, snapshot_one

    return snapshot_fleet(settings) if fleet else snapshot_one(settings)


if __name__ == "__main__":
    run_alone(snapshot)
