"""End another client's ZooKeeper session at once, so that tests need not wait for its timeout.

A client can resume a session by its id and password, and ZooKeeper derives the password from the id
(`ZooKeeperServer.generatePasswd`). So any client that reads an ephemeral znode can take over its owner's session and
close it, which deletes the session's ephemeral znodes, as after the timeout. For embedded servers only.
"""

import struct

from kazoo.client import KazooClient

from jobs.core.logs import quiet_logger

SUPER_SECRET = 0xB3415C00
"""`ZooKeeperServer.superSecret`."""

_PASSWORD_BYTES = 16
_MULTIPLIER, _INCREMENT, _BITS = 0x5DEECE66D, 0xB, 48
_LOGGER = quiet_logger("kazoo.embedded")


def end_session(connect: str, session_id: int) -> None:
    """Close a session; its ephemeral znodes are deleted when this returns. No-op for a session that has ended."""
    client = KazooClient(connect, client_id=(session_id, session_password(session_id)), timeout=10, logger=_LOGGER)
    try:
        client.start(timeout=15)
    finally:
        client.stop()
        client.close()


def session_password(session_id: int) -> bytes:
    """Return the bytes of `new java.util.Random(id ^ superSecret).nextBytes`.

    >>> session_password(0).hex()
    'f22acd4a97e69d6d20a49bb638eadb38'
    """
    state = (session_id ^ SUPER_SECRET ^ _MULTIPLIER) & ((1 << _BITS) - 1)
    password = b""
    while len(password) < _PASSWORD_BYTES:
        state = (state * _MULTIPLIER + _INCREMENT) & ((1 << _BITS) - 1)
        password += struct.pack("<I", state >> 16)
    return password
