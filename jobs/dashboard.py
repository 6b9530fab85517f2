"""`surveyor dashboard`: serve the tables as a web page. It needs no JVM."""

from typing import Annotated

import typer

from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def dashboard(
    settings: Settings,
    *,
    address: Annotated[
        str,
        typer.Option(help="Address to listen on; every client that can connect can read everything, without a login."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
) -> None:
    """Serve a web dashboard of snapshots, brokers, partitions, plans and commits."""
    from jobs.web.dashboard_server import serve

    serve(settings, address, port)


if __name__ == "__main__":
    run_as_script(dashboard)
