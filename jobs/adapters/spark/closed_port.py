"""The embedded engine's port, which the kernel closes to every process but this one."""

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

from jobs.core.errors import SurveyorError

_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER, which Python's socket module lacks."""

_DROP: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A classic BPF program of one instruction: accept no byte (BPF_RET | BPF_K, 0)."""

_LISTEN: Final = 0x0A
"""State of a socket in /proc/net/tcp."""


class StrangerError(SurveyorError):
    """Another process reached the port before it was closed."""


class TcpSocket(NamedTuple):
    """A row of /proc/net/tcp."""

    port: int
    peer: int
    state: int
    inode: str


def close_port(port: int, before: AbstractSet[TcpSocket]) -> None:
    """Let no further connection in; raise StrangerError if another process has had one since `before`."""
    own = _own_sockets()
    listening = [row for row in tcp_sockets() if row.port == port and row.state == _LISTEN and row.inode in own]
    if not listening:
        raise OSError(f"this process does not listen on port {port}")
    for row in listening:
        _drop_all(own[row.inode])
    if strangers := strangers_at(port, before):
        raise StrangerError(
            f"another process connected to the embedded engine, from port {strangers.pop()} of this machine, and could "
            "run code as this user; nothing was computed: find that process, or use --engine spark"
        )


def strangers_at(port: int, before: AbstractSet[TcpSocket]) -> set[int]:
    """Return the other ports of connections that this process did not open, also of those just closed."""
    own = _own_sockets()
    rows = [row for row in tcp_sockets() if row not in before and row.state != _LISTEN]
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


def tcp_sockets() -> Iterator[TcpSocket]:
    """Yield the TCP sockets of this network namespace."""
    for name in ("tcp", "tcp6"):
        table = Path("/proc/self/net", name)
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, peer, state, *rest = line.split()
            yield TcpSocket(_port(local), _port(peer), int(state, 16), rest[5])


def _port(address: str) -> int:
    """Return the port of an address such as 0100007F:1F90.

    >>> _port("0100007F:1F90")
    8080
    """
    return int(address.rpartition(":")[2], 16)
