"""The embedded engine: Sail, a Spark Connect server inside this process.

Sail has no authentication, so a process that reaches its port can run code as this user. The port serves this process
only: once its connection is open, the kernel drops every packet that arrives at the listening socket, and any other
connection ends the command. Restrictions of the engine are in docs/architecture.md.
"""

import atexit
import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import Any, Final, NamedTuple

from jobs.core.errors import SurveyorError

LOOPBACK: Final = "127.0.0.1"

_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER, which Python's socket module lacks."""

_DROP: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A classic BPF program of one instruction: accept no byte (BPF_RET | BPF_K, 0)."""

_LISTEN: Final = 0x0A
"""State of a socket in /proc/net/tcp."""

_FOLDER: Final = "surveyor-engine-"
_LOCK: Final = "lock"

_CHECKPOINTS: Final = "SAIL_EXECUTION__CHECKPOINT__PATH"

_SETTINGS: Final = {"SAIL_SPARK__SESSION_TIMEOUT_SECS": str(10**9)}
"""Sail's own settings: a session lasts as long as its command, which may wait for hours between two plans."""


class StrangerError(SurveyorError):
    """Another process reached the port before it was closed."""


class _Socket(NamedTuple):
    """A row of /proc/net/tcp."""

    port: int
    peer: int
    state: int
    inode: str


@cache
def started() -> tuple[int, frozenset[_Socket]]:
    """Start the engine once in this process; return its port, and the connections that were there before."""
    os.environ.update(_SETTINGS | {_CHECKPOINTS: _checkpoint_folder().as_uri()})
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - it reads its settings when it is imported

    before = frozenset(_sockets())
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


def close_port() -> None:
    """Let no further connection in; raise StrangerError if another process has had one already."""
    port, before = started()
    own = _own_sockets()
    listening = [row for row in _sockets() if row.port == port and row.state == _LISTEN and row.inode in own]
    if not listening:
        raise OSError(f"this process does not listen on port {port}")
    for row in listening:
        _drop_all(own[row.inode])
    if strangers := strangers_at(port, before):
        raise StrangerError(
            f"another process connected to the embedded engine, from port {strangers.pop()} of this machine, and could "
            "run code as this user; nothing was computed: find that process, or use --engine spark"
        )


def strangers_at(port: int, before: AbstractSet[_Socket] = frozenset()) -> set[int]:
    """Return the other ports of connections that this process did not open, also of those just closed."""
    own = _own_sockets()
    rows = [row for row in _sockets() if row not in before and row.state != _LISTEN]
    ours = {row.port for row in rows if row.peer == port and row.inode in own}
    ends = {row.peer for row in rows if row.port == port} | {row.port for row in rows if row.peer == port}
    return ends - ours


def _drop_all(descriptor: int) -> None:
    """Attach the filter to a listening socket; connections that exist keep working."""
    program = ctypes.create_string_buffer(_DROP)
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def _own_sockets() -> dict[str, int]:
    """Return the file descriptors of this process's sockets, by inode."""
    found = dict[str, int]()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # closed since it was listed
            continue
        if target.startswith("socket:["):
            found[target[8:-1]] = int(descriptor.name)
    return found


def _sockets() -> Iterator[_Socket]:
    """Yield the TCP sockets of this network namespace."""
    for name in ("tcp", "tcp6"):
        table = Path("/proc/self/net", name)
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, peer, state, *rest = line.split()
            yield _Socket(_port(local), _port(peer), int(state, 16), rest[5])


def _port(address: str) -> int:
    """Return the port of an address such as 0100007F:1F90.

    >>> _port("0100007F:1F90")
    8080
    """
    return int(address.rpartition(":")[2], 16)
