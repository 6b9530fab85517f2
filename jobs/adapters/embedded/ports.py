"""Free ports of this machine."""

import socket
from random import SystemRandom

from jobs.core.addresses import LOOPBACK

# Below Linux's range of ports for outgoing connections. A client that keeps connecting to a stopped server could get
# the server's port as its own from that range, and would then connect to itself.
_CANDIDATES = range(20_000, 32_000)

_reserved: set[int] = set()
"""Ports that this process has handed out already. A server may bind its port only seconds later."""


def free_port() -> int:
    """Return a port that is free now and was not returned before; another process may still take it."""
    tries = SystemRandom().sample(_CANDIDATES, 100)  # a seed, which tests set, would give all processes the same ports
    port = next((port for port in tries if port not in _reserved and is_free(port)), None) or _any_free_port()
    _reserved.add(port)
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do, so that lingering connections of an earlier run do not count
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


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
