"""The dashboard's server: Streamlit, started after the libraries of the pages are imported.

Otherwise Streamlit would import the app at the first request, which would take some seconds for Arrow and DuckDB.
The arguments are `--address` and `--port`, followed by the arguments of `app.py`.
"""

import argparse
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Final, NoReturn

from streamlit import logger
from streamlit.web.cli import main

from jobs.core import logs
from jobs.core.signals import INTERRUPTED_MESSAGE, SIGNALS, end_line
from jobs.runtime.lazy_commands import requests_json
from jobs.web.dashboard import pages

APP: Final = Path(pages.__file__).parent / "app.py"

OPTIONS: Final = {
    "server.headless": "true",  # opens no browser, and asks for no e-mail address
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "none",
    "global.developmentMode": "false",
    "runner.magicEnabled": "false",  # it would display string literals in the app, such as docstrings of constants
    "logger.level": "error",
}
"""Options that override Streamlit's configuration files: no usage statistics, and no stack traces."""


def serve(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal arrives, and exit with the same code as other commands."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in every thread, so that the waiting thread receives them
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", required=True)
    Thread(target=_end_at_once, daemon=True).start()
    sys.addaudithook(_send_at_once)
    where, own = parser.parse_known_args(arguments)
    if requests_json(()):
        logs.configure(log_format=logs.LogFormat.JSON)
        logger.setup_formatter = logs.attach_handler
        logger.update_formatter()
    options = {**OPTIONS, "server.address": where.address, "server.port": where.port}
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    main(["run", str(APP), *flags, "--", *own], prog_name="surveyor dashboard")


def _send_at_once(event: str, arguments: tuple[object, ...]) -> None:
    """Set TCP_NODELAY on the listening socket, which all its connections inherit.

    Streamlit creates the socket in a way that asyncio does not recognise as TCP, so asyncio does not set the option.
    The kernel then holds back the last packet of each response for 40 ms, until the previous one is acknowledged. For
    the 150 files of a page this added one second.
    """
    if event == "socket.bind" and isinstance(bound := arguments[0], socket.socket) and bound.family != socket.AF_UNIX:
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _end_at_once() -> NoReturn:
    """Wait for a signal and exit at once.

    Streamlit would wait until all browsers close the page, and the dashboard has nothing to write.
    """
    number = signal.sigwait(SIGNALS)
    end_line(number)
    os.write(2, f"{logs.log_record(f'surveyor: {INTERRUPTED_MESSAGE}')}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    serve()
