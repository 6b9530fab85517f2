"""The embedded engine: Sail, a Spark Connect server inside this process.

Sail has no authentication, so a process that reaches its port can run code as this user. The port serves this process
only: once its connection is open, the kernel drops every packet that arrives at the listening socket, and any other
connection ends the command. Restrictions of the engine are in docs/architecture.md.
"""

import atexit
import os
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import Any, Final

from jobs.adapters.spark.closed_port import TcpSocket, tcp_sockets
from jobs.core.addresses import LOOPBACK

_FOLDER: Final = "surveyor-engine-"
_LOCK: Final = "lock"

_CHECKPOINTS: Final = "SAIL_EXECUTION__CHECKPOINT__PATH"

_SETTINGS: Final = {"SAIL_SPARK__SESSION_TIMEOUT_SECS": str(10**9)}
"""Sail's own settings: a session lasts as long as its command, which may wait for hours between two plans."""


@cache
def started() -> tuple[int, frozenset[TcpSocket]]:
    """Start the engine once in this process; return its port, and the connections that were there before."""
    os.environ.update(_SETTINGS | {_CHECKPOINTS: _checkpoint_folder().as_uri()})
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - it reads its settings when it is imported

    before = frozenset(tcp_sockets())
    server = SparkConnectServer(LOOPBACK, 0)
    server.start(background=True)
    _running.append(server)
    _, port = server.listening_address
    return int(port), before


def _checkpoint_folder() -> Path:
    """Make a temporary folder that is locked while this process lives; remove those that killed processes left."""
    for left in Path(gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError), (left / _LOCK).open() as lock:  # another user's, in use, or just removed
            flock(lock, LOCK_EX | LOCK_NB)
            rmtree(left, ignore_errors=True)
    new = Path(mkdtemp(prefix=f"new-{_FOLDER}"))
    flock(os.open(new / _LOCK, os.O_CREAT | os.O_RDWR), LOCK_EX)  # until the process ends
    folder = new.rename(new.with_name(new.name.removeprefix("new-")))  # others look at it from now on
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


_running: Final[list[Any]] = []
"""The server. It is not stopped: sessions are released when the process exits, which a stopped server would delay."""
