"""`surveyor dashboard`: replaces this process by a Streamlit server, which shows the tables and writes nothing.

Streamlit is an optional dependency. The page has no login, so by default it is served on the loopback address only.
"""

import os
import signal
import socket
import sys
from contextlib import closing
from importlib.util import find_spec
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from jobs.core import logs
from jobs.core.errors import MissingError, UsageError
from jobs.core.logs import LogFormat
from jobs.core.signals import SIGNALS
from jobs.runtime.console import CommandResult, log
from jobs.runtime.lazy_commands import LOG_FORMAT_VARIABLE
from jobs.runtime.options import command, run_as_script
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings

EXTRA: Final = "kafka-surveyor[dashboard]"

_STDOUT = 1


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
    _serve(settings, address, port)


def _serve(settings: Settings, address: str, port: int) -> NoReturn:
    """Become the server; raise MissingError without Streamlit, UsageError if it cannot listen.

    The function does not return on success.
    """
    from jobs.repositories.snapshots import find_snapshot

    find_snapshot(settings.warehouse)
    if find_spec("streamlit") is None:
        raise MissingError(
            f"the dashboard needs Streamlit, which is not installed: pip install '{EXTRA}'; "
            "`surveyor report` writes a page without it"
        )
    _refuse_taken(address, port)
    url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
    emit(settings, CommandResult({"url": url, "cluster": settings.cluster}))
    log(f"dashboard of {settings.warehouse_uri}: {url} (press Ctrl-C to stop)")
    if logs.is_json():
        os.environ[LOG_FORMAT_VARIABLE] = LogFormat.JSON
    sys.stdout.flush()
    _become(command_line(settings, address, port))


def _become(arguments: list[str]) -> NoReturn:
    """Replace this process by the server."""
    # blocked until the server waits for them, so that no import is interrupted
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # Streamlit's banner; its errors go to stderr
    os.execv(sys.executable, arguments)  # noqa: S606 - this Python, these arguments


def command_line(settings: Settings, address: str, port: int) -> list[str]:
    """Return the command line that replaces this process."""
    where = ["--address", address, "--port", str(port)]
    own = ["--warehouse", settings.warehouse_uri, "--cluster", settings.cluster]
    hours = str(settings.conf.limits.max_plan_age_hours)
    capacity = msgspec.json.encode(settings.conf.capacity).decode()
    limits = ["--max-plan-age-hours", hours, "--capacity", capacity]
    return [sys.executable, "-m", "jobs.web.dashboard", *where, *own, *limits]


def _refuse_taken(address: str, port: int) -> None:
    """Raise UsageError if the address cannot be used, with a shorter message than Streamlit's."""
    try:
        ((family, kind, protocol, _, place), *_) = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        with closing(socket.socket(family, kind, protocol)) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
    except OSError as error:
        raise UsageError(
            f"--address {address} --port {port}: cannot listen there ({error.strerror}); "
            "give another --port, or an --address of this machine"
        ) from None


if __name__ == "__main__":
    run_as_script(dashboard)
