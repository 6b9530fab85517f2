"""Addresses of options and files: HOST:PORT."""

import ipaddress
import re
from typing import Final

from jobs.core.errors import UsageError

LOOPBACK: Final = "127.0.0.1"

_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})

_ADDRESS: Final = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])?:)?(?P<port>[0-9]{1,5})", re.ASCII)
_LAST_PORT: Final = 65535


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT; the default host is the loopback address.

    >>> parse_address("--listen", "9308"), parse_address("--listen", "[::]:9308")
    (('127.0.0.1', 9308), ('::', 9308))
    """
    parts = _ADDRESS.fullmatch(text)
    if parts is None or int(parts["port"]) > _LAST_PORT:
        raise UsageError(f"{option} {text!r} is no address: expected HOST:PORT, or PORT on the loopback")
    return (parts["host"] or LOOPBACK).strip("[]"), int(parts["port"])


def is_loopback(host: str) -> bool:
    """Return whether only processes of this host can connect to an address or a name.

    >>> [is_loopback(host) for host in ("127.0.1.1", "::1", "localhost", "10.0.0.7", "broker1.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOOPBACK_NAMES
