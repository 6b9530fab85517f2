"""Addresses of options and files: HOST:PORT."""

import re
from typing import Final

from jobs.core.errors import UsageError

LOOPBACK: Final = "127.0.0.1"

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
