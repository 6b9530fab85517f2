"""`surveyor dashboard`: the tables in a browser, to look around in. No JVM."""

from typing import Annotated

import typer

from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def dashboard(
    settings: Settings,
    *,
    address: Annotated[
        str,
        typer.Option(help="Where to listen; whoever reaches it reads everything and is not asked for a name."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
) -> None:
    """Serve a page to look around in: snapshots, brokers, partitions, plans, commits."""
    from jobs.web.dashboard_server import serve

    serve(settings, address, port)


if __name__ == "__main__":
    run_alone(dashboard)
