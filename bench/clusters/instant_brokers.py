"""Brokers that answer every control request at once and without an error, in a process of their own.

    python -m bench.clusters.instant_brokers COUNT

prints their ports, one a line, and runs until its standard input ends.
"""

import socket
import struct
import sys
from contextlib import suppress
from threading import Thread
from typing import Final

_API_VERSIONS: Final = 18
_DESCRIBE_CONFIGS: Final = 32
_TOO_NEW: Final = 35
"""UNSUPPORTED_VERSION: the answer is one of version 0, whatever was asked for, and names what is spoken."""

_SPOKEN: Final = ((4, 0, 7), (5, 0, 4), (6, 0, 8), (_API_VERSIONS, 0, 0), (_DESCRIBE_CONFIGS, 0, 0))
_NO_PARTITIONS: Final = b"\1\0"

_BROKER_RESOURCE: Final = 4
_PROTOCOL: Final = b"\0\x1dinter.broker.protocol.version\0\x032.6\0\0\0"
"""A setting with its value, which is not read-only, no default and not sensitive; 2.6 fits topics without ids."""
_SETTINGS: Final = struct.pack(">iihhbhi", 0, 1, 0, -1, _BROKER_RESOURCE, 0, 1) + _PROTOCOL
"""DescribeConfigs 0: no throttling, one resource without an error or a message, of no name and with one setting."""


def main(count: int) -> None:
    for _ in range(count):
        listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=_accept, args=(listener,), daemon=True).start()
        print(listener.getsockname()[1], flush=True)  # noqa: T201 - what the parent reads
    sys.stdin.read()


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    buffer = memoryview(bytearray(1 << 20))
    with suppress(struct.error, OSError), connection:
        while True:
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            first = connection.recv(8, socket.MSG_WAITALL)
            left = size - len(first)
            while left:
                left -= connection.recv_into(buffer, min(left, len(buffer)))
            answer = _answer(*struct.unpack(">hhi", first))
            connection.sendall(struct.pack(">i", len(answer)) + answer)


def _answer(key: int, version: int, correlation: int) -> bytes:
    if key == _API_VERSIONS:
        spoken = b"".join(struct.pack(">hhh", *api) for api in _SPOKEN)
        return struct.pack(">ihi", correlation, _TOO_NEW if version else 0, len(_SPOKEN)) + spoken
    if key == _DESCRIBE_CONFIGS:
        return struct.pack(">i", correlation) + _SETTINGS
    listed = b"\0" if key == 6 else _NO_PARTITIONS
    return struct.pack(">ibh", correlation, 0, 0) + listed


if __name__ == "__main__":
    main(int(sys.argv[1]))
