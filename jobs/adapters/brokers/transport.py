"""Bytes to and from one broker's listener: the one place that knows what a connection is made of.

Plain TCP today. What TLS or SASL need, a context or a handshake, belongs into `to`: nobody else sees the socket, and
nothing here counts on what only a plain one can do, as looking at bytes without taking them.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

_CHUNK: Final = 1 << 18


@dataclass(slots=True)
class Transport:
    """A connection; whoever reads or writes waits as long as `within` said, then there is a TimeoutError."""

    _socket: socket.socket
    _received: bytearray = field(default_factory=bytearray)
    """What came and was not read yet."""

    @classmethod
    def to(cls, address: tuple[str, int], seconds: float) -> "Transport":
        connection = socket.create_connection(address, timeout=seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    def within(self, seconds: float) -> None:
        """Let each of the next reads and writes take so long."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> Iterator[int]:
        """Send, and yield after every piece: a large request takes longer than anybody should be silent."""
        whole = memoryview(data)
        for start in range(0, len(whole), _CHUNK):
            self._socket.sendall(whole[start : start + _CHUNK])
            yield start

    def wait(self) -> None:
        """Wait for something to read."""
        if not self._received:
            self._receive()

    def receive(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _receive(self) -> None:
        part = self._socket.recv(_CHUNK)
        if not part:
            raise ConnectionError("the broker closed the connection")
        self._received += part

    def abort(self) -> None:
        """Wake up whoever reads or writes, in whatever thread: there will be nothing more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
