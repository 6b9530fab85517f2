"""`surveyor status`: what an operator looks at first, from ZooKeeper or as a snapshot left it. No JVM."""

from typing import Annotated

import typer

from jobs.runtime.completion import snapshots
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def status(
    settings: Settings,
    *,
    watch: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="Look again after each such time, as 5s, until Ctrl-C.")
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option(
            "--as-of",
            help="As this snapshot left it, from the tables [default: now, from ZooKeeper].",
            autocompletion=snapshots,
        ),
    ] = None,
) -> None:
    """How the cluster is now, what is due, and the command for it."""
    from jobs.console_output.status import show_status, watch_status
    from jobs.core.errors import UsageError
    from jobs.core.units import parse_seconds

    if watch is None:
        show_status(settings, as_of)
        return
    if as_of is not None:
        raise UsageError(f"--as-of {as_of} never changes, --watch looks again: give one of the two")
    watch_status(settings, parse_seconds("--watch", watch))


if __name__ == "__main__":
    run_alone(status)
