"""End somebody else's ZooKeeper session at once, where a test would otherwise wait for its timeout.

ZooKeeper lets a client go on with a session for its id and its password, and gives each session a password that follows
from the id (`ZooKeeperServer.generatePasswd`): whoever sees an ephemeral znode can take its owner's session over and
close it. What was ephemeral in it is then gone, as after the timeout. For embedded servers only.
"""

import logging
import struct

from kazoo.client import KazooClient

SUPER_SECRET = 0xB3415C00
"""`ZooKeeperServer.superSecret`."""

_PASSWORD_BYTES = 16
_MULTIPLIER, _INCREMENT, _BITS = 0x5DEECE66D, 0xB, 48
_LOGGER = logging.getLogger("kazoo.embedded")


def end_session(connect: str, session_id: int) -> None:
    """Close a session: its ephemeral znodes are gone when this returns. One that has ended already stays ended."""
    client = KazooClient(connect, client_id=(session_id, session_password(session_id)), timeout=10, logger=_LOGGER)
    try:
        client.start(timeout=15)
    finally:
        client.stop()
        client.close()


def session_password(session_id: int) -> bytes:
    """What `new java.util.Random(id ^ superSecret).nextBytes` fills in.

    >>> session_password(0).hex()
    'f22acd4a97e69d6d20a49bb638eadb38'
    """
    state = (session_id ^ SUPER_SECRET ^ _MULTIPLIER) & ((1 << _BITS) - 1)
    password = b""
    while len(password) < _PASSWORD_BYTES:
        state = (state * _MULTIPLIER + _INCREMENT) & ((1 << _BITS) - 1)
        password += struct.pack("<I", state >> 16)
    return password
