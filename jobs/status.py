"""`surveyor status`: summarise the live cluster or a snapshot of it."""

from typing import Annotated

import typer

from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, Parallel
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def status(
    settings: Settings,
    *,
    watch: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="Refresh at this interval, such as 5s, until Ctrl-C.")
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option(
            "--snapshot",
            help="Show this snapshot from the tables [default: the live cluster].",
        ),
    ] = None,
    fleet: Fleet = False,
    parallel: Parallel = None,
) -> CommandResult | None:
    """Show the cluster's health, the pending work and the commands for it."""
    from jobs.console_output.status import status_of_fleet, status_result, watch_status
    from jobs.core.errors import UsageError
    from jobs.core.units import parse_seconds

    if fleet:
        return status_of_fleet(settings, parallel)
    if as_of is None:
        from jobs.execution.partial_plan_closing import close_ended_before_status

        close_ended_before_status(settings)
    if watch is None:
        return status_result(settings, as_of)
    if as_of is not None:
        raise UsageError(f"--snapshot {as_of} never changes, but --watch refreshes it; give one of the two")
    watch_status(settings, parse_seconds("--watch", watch))
    return None


if __name__ == "__main__":
    run_as_script(status)
