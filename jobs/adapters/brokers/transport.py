"""Transport of bytes to and from one broker's listener, over plain TCP or TLS.

No other module uses the socket, and this one uses no operation that only plain sockets have, such as MSG_PEEK.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
_TLS_RECORD_BYTES: Final = 1 << 14
"""Bytes of a TLS record; one is sent within the timeout of a piece."""


_TLS_HINT: Final = ": does that listener use TLS?"


@dataclass(slots=True)
class Transport:
    """A connection; a read or write raises TimeoutError after the seconds given to `set_timeout`."""

    _socket: socket.socket
    _received: bytearray = field(default_factory=bytearray)
    """Bytes that were received and not yet read."""

    @classmethod
    def to(cls, address: tuple[str, int], seconds: float, tls: ssl.SSLContext | None = None) -> "Transport":
        """Connect within `seconds`; a TLS handshake may take as long again."""
        connection = socket.create_connection(address, timeout=seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(connection if tls is None else _with_tls(connection, address[0], tls))
        except BaseException:
            connection.close()
            raise

    def set_timeout(self, seconds: float) -> None:
        """Set the timeout of each later read and write."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> Iterator[int]:
        """Send in pieces and yield after each, because a large request takes longer than the caller may block."""
        view = memoryview(data)
        size = _TLS_RECORD_BYTES if isinstance(self._socket, ssl.SSLSocket) else _CHUNK_BYTES
        for start in range(0, len(view), size):
            with _as_connection_error():
                self._socket.sendall(view[start : start + size])
            yield start

    def wait(self) -> None:
        """Wait until bytes can be read."""
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
        """Shut the connection down, so that blocked reads and writes in other threads end."""
        with suppress(OSError):
            socket.socket.shutdown(
                self._socket, socket.SHUT_RDWR
            )  # SSLSocket.shutdown would remove the TLS object that another thread is reading from

    def close(self) -> None:
        self._socket.close()


def _with_tls(connection: socket.socket, host: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except TimeoutError:
        raise TimeoutError(f"it did not answer the TLS handshake{_TLS_HINT}") from None
    except (ConnectionError, ssl.SSLEOFError):
        raise ConnectionError(f"it closed the connection during the TLS handshake{_TLS_HINT}") from None


@contextmanager
def _as_connection_error() -> Iterator[None]:
    """Turn ssl's ValueError for a socket closed by another thread into ConnectionAbortedError."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, OSError):  # SSLCertVerificationError is both
            raise
        raise ConnectionAbortedError from None
