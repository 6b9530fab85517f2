"""Bytes to and from one broker's listener: the one place that knows what a connection is made of.

Plain TCP, or TLS on it: nobody else sees the socket, and nothing here counts on what only a plain one can do, as
looking at bytes without taking them.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
_TLS_RECORD_BYTES: Final = 1 << 14
"""Bytes of a record of TLS, which is sent within the time that a piece may take."""


_TLS_HINT: Final = ": is TLS what it speaks there?"


@dataclass(slots=True)
class Transport:
    """A connection; whoever reads or writes waits as long as `within` said, then there is a TimeoutError."""

    _socket: socket.socket
    _received: bytearray = field(default_factory=bytearray)
    """What came and was not read yet."""

    @classmethod
    def to(cls, address: tuple[str, int], seconds: float, tls: ssl.SSLContext | None = None) -> "Transport":
        """Connect, in so many seconds; the handshake of TLS may take as long once more."""
        connection = socket.create_connection(address, timeout=seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(connection if tls is None else _with_tls(connection, address[0], tls))
        except BaseException:
            connection.close()
            raise

    def set_timeout(self, seconds: float) -> None:
        """Let each of the next reads and writes take so long."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> Iterator[int]:
        """Send, and yield after every piece: a large request takes longer than anybody should be silent."""
        whole = memoryview(data)
        size = _TLS_RECORD_BYTES if isinstance(self._socket, ssl.SSLSocket) else _CHUNK_BYTES
        for start in range(0, len(whole), size):
            with _as_connection_error():
                self._socket.sendall(whole[start : start + size])
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
        with _as_connection_error():
            part = self._socket.recv(_CHUNK_BYTES)
        if not part:
            raise ConnectionError("the broker closed the connection")
        self._received += part

    def abort(self) -> None:
        """Wake up whoever reads or writes, in whatever thread: there will be nothing more."""
        with suppress(OSError):
            socket.socket.shutdown(
                self._socket, socket.SHUT_RDWR
            )  # an SSLSocket's own takes TLS off a thread that reads

    def close(self) -> None:
        self._socket.close()


def _with_tls(connection: socket.socket, host: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except TimeoutError:
        raise TimeoutError(f"it did not answer when TLS began{_TLS_HINT}") from None
    except (ConnectionError, ssl.SSLEOFError):
        raise ConnectionError(f"it closed the connection when TLS began{_TLS_HINT}") from None


@contextmanager
def _as_connection_error() -> Iterator[None]:
    """What another thread closes while it is used is lost, like any connection; ssl calls that a ValueError."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, OSError):  # a certificate that does not verify is both
            raise
        raise ConnectionAbortedError from None
