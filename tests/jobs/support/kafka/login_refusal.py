"""A listener with SASL that refuses every login as Kafka's brokers do: it answers with an error, then closes."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from struct import pack, unpack
from threading import Thread
from typing import Final

API_VERSIONS, HANDSHAKE, AUTHENTICATE, CLUSTER, QUORUM = 18, 17, 36, 60, 55
UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED = 33, 58
FLEXIBLE: Final = 3
"""The first version of ApiVersions with compact arrays and tags."""

_SUPPORTED: Final = {
    API_VERSIONS: 3,
    HANDSHAKE: 1,
    AUTHENTICATE: 1,
    CLUSTER: 0,
    QUORUM: 0,
}
"""The highest version of each API."""
PLAIN = b"PLAIN"


@contextmanager
def refusing_logins() -> Iterator[int]:
    """Yield the port of a listener whose only mechanism is PLAIN."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_accept, args=(server,), daemon=True).start()
        yield int(server.getsockname()[1])
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError, ConnectionError):
                while _answer(connection):
                    pass


def _answer(connection: socket.socket) -> bool:
    """Answer a request; return whether the connection stays open."""
    (size,) = unpack(">i", _received(connection, 4))
    request = _received(connection, size)
    api, version, correlation = unpack(">hhi", request[:8])
    if api == API_VERSIONS:
        body, is_open = _versions(is_flexible=version >= FLEXIBLE), True
    elif api == HANDSHAKE:
        is_open = request.endswith(PLAIN)
        body = pack(">hih", 0 if is_open else UNSUPPORTED_SASL_MECHANISM, 1, len(PLAIN)) + PLAIN
    else:
        body, is_open = pack(">hhiq", SASL_AUTHENTICATION_FAILED, -1, 0, 0), False
    answer = pack(">i", correlation) + body
    connection.sendall(pack(">i", len(answer)) + answer)
    return is_open


def _versions(*, is_flexible: bool) -> bytes:
    tags = b"\0" if is_flexible else b""
    apis = b"".join(pack(">hhh", api, 0, version) + tags for api, version in _SUPPORTED.items())
    count = pack(">b", len(_SUPPORTED) + 1) if is_flexible else pack(">i", len(_SUPPORTED))
    return pack(">h", 0) + count + apis + (pack(">i", 0) + tags if is_flexible else b"")


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data
