"""`surveyor report`: one page to look at in a browser, of the cluster or of a plan. No JVM."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.runtime.completion import plans, snapshots
from jobs.runtime.options import Throttle, check_throttle, command, run_alone
from jobs.runtime.settings import Settings


@command
def report(
    settings: Settings,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Where the page goes [default: report.html, of a plan plan-ID.html].")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="Id or alias of a plan: the page to approve it from.", autocompletion=plans)
    ] = None,
    snapshot: Annotated[
        int | None,
        typer.Option(help="The cluster as of this snapshot [default: the newest].", autocompletion=snapshots),
    ] = None,
    throttle: Throttle = None,
) -> None:
    """Write one self-contained HTML page: the cluster through time, or a plan to approve."""
    from jobs.web.report import write_report

    check_throttle(throttle, settings.conf.throttle)
    write_report(settings, out, plan, snapshot)


if __name__ == "__main__":
    run_alone(report)
