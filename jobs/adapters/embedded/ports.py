"""TCP ports of the loopback interface."""

import random
import socket

LOOPBACK = "127.0.0.1"
# Below the range out of which Linux takes the ports of outgoing connections: there, a client that keeps on calling a
# stopped server may be given the server's own port, and then answers itself.
_CANDIDATES = range(20_000, 32_000)

_reserved: set[int] = set()
"""Ports found by this process: a server that starts listens on its own only seconds later."""


def free_port() -> int:
    """A port nobody listens on just now, each time another; another process may still take it before we do."""
    tries = random.sample(_CANDIDATES, 100)
    port = next((port for port in tries if port not in _reserved and is_free(port)), None) or _any_free_port()
    _reserved.add(port)
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do, so that connections of an earlier run that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=2).close()
    except OSError:
        return False
    return True


def four_letter_word(port: int, word: str) -> str:
    """What a ZooKeeper answers to a four-letter word; empty when it does not."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(word.encode())
            return connection.makefile().read()
    except OSError:
        return ""


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
