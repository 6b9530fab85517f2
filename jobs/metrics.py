"""`surveyor metrics`: figures of the tables for Prometheus. No JVM."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def metrics(
    settings: Settings,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Write them to this file, whole or not at all, as node_exporter's textfile collector reads."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve them there at /metrics until Ctrl-C; PORT alone: on the loopback."
        ),
    ] = None,
    fleet: Annotated[bool, typer.Option("--all", help="Of every cluster of the --conf file.")] = False,
) -> None:
    """Write figures for Prometheus: to stdout, into a file, or to whoever asks."""
    from jobs.console_output.metrics import write_metrics
    from jobs.core.errors import UsageError

    if fleet and not settings.fleet:
        raise UsageError("--all takes the clusters of the --conf file; give one with [clusters.NAME] sections")
    write_metrics(settings, out, listen)


if __name__ == "__main__":
    run_alone(metrics)
