"""`surveyor metrics`: export metrics of the tables for Prometheus."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def metrics(
    settings: Settings,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file atomically, for node_exporter's textfile collector."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve at /metrics until Ctrl-C; PORT without HOST listens on the loopback address.",
        ),
    ] = None,
    fleet: Annotated[bool, typer.Option("--all-clusters", help="Export every cluster of the --conf file.")] = False,
) -> ExitCode:
    """Export metrics for Prometheus to stdout, to a file or over HTTP."""
    from jobs.console_output.metrics import write_metrics

    del fleet  # in the settings
    return write_metrics(settings, out, listen)


if __name__ == "__main__":
    run_as_script(metrics)
