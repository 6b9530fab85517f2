"""The dashboard's server: Streamlit, once what the pages work with is imported.

Streamlit imports an app when the first visitor comes, who would wait some seconds for Arrow, DuckDB and Altair. In:
`--address` and `--port`, and after them the arguments of `app.py`.
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

from streamlit.web.cli import main

from jobs.core.signals import INTERRUPTED_MESSAGE, SIGNALS, end_line
from jobs.web.dashboard import sections

APP: Final = Path(sections.__file__).parent / "app.py"

OPTIONS: Final = {
    "server.headless": "true",  # opens no browser, and asks for no e-mail address
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "none",
    "global.developmentMode": "false",
    "runner.magicEnabled": "false",  # which shows whatever text stands alone in the app, as docstrings of names do
    "logger.level": "error",
}
"""What Streamlit is told whatever its own files say: it reports to nobody, and shows no stack trace."""


def serve(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal comes, with the exit code of other commands then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in every thread, so that the one that waits for them gets them
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", required=True)
    Thread(target=_end_at_once, daemon=True).start()
    sys.addaudithook(_send_at_once)
    where, own = parser.parse_known_args(arguments)
    options = {**OPTIONS, "server.address": where.address, "server.port": where.port}
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    main(["run", str(APP), *flags, "--", *own], prog_name="surveyor dashboard")


def _send_at_once(event: str, arguments: tuple[object, ...]) -> None:
    """Have the socket that Streamlit listens on, and with it every connection, send the end of an answer at once.

    Streamlit makes it in a way in which asyncio does not know it for TCP. The kernel then keeps each last packet until
    the one before is acknowledged, 40 ms: for the 150 files of its pages that was a second for every visitor.
    """
    if event == "socket.bind" and isinstance(bound := arguments[0], socket.socket) and bound.family != socket.AF_UNIX:
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _end_at_once() -> NoReturn:
    """Wait for a signal and end: Streamlit would wait for every visitor to close the page, and nothing is written."""
    number = signal.sigwait(SIGNALS)
    end_line(number)
    os.write(2, f"surveyor: {INTERRUPTED_MESSAGE}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    serve()
