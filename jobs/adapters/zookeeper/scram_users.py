"""SCRAM credentials of users, as brokers store them in /config/users.

Corresponds to `ScramCredentialUtils.credentialFromString`. Names of users are percent-encoded in paths
(`Sanitizer.sanitize`).
"""

import base64
import binascii
from typing import Final
from urllib.parse import quote

from kazoo.client import KazooClient

from jobs.adapters.request_server.sasl_mechanisms import ScramCredential
from jobs.adapters.zookeeper.connection import with_retries
from jobs.adapters.zookeeper.znode_reads import read
from schemas.znode_codecs import read_config

USERS: Final = "/config/users"


def sanitize(user: str) -> str:
    """Return the name of a user's znode, as `Sanitizer.sanitize` encodes it: only letters, digits, "-_." stay.

    >>> sanitize("CN=a ~b*+")
    'CN%3Da%20%7Eb%2A%2B'
    """
    return quote(user, safe="").replace("~", "%7E")  # quote never encodes "~", Java's URLEncoder does


def scram_credential(client: KazooClient, user: str, mechanism: str) -> ScramCredential | None:
    """Read a user's credential for a mechanism, such as SCRAM-SHA-256; None if there is none that can be decoded.

    Raise UnreadableError if an ACL forbids reading it, as in a cluster with zookeeper.set.acl=true.
    """
    znode = with_retries(lambda: read(client, f"{USERS}/{sanitize(user)}"))
    config, _ = read_config(znode.data)
    text = (config or {}).get(mechanism)
    return None if text is None else decode_credential(text)


def decode_credential(text: str) -> ScramCredential | None:
    """Decode the text of a credential, None if it is malformed.

    >>> decode_credential("salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096").iterations
    4096
    """
    values = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored, server = (base64.b64decode(values[name]) for name in ("salt", "stored_key", "server_key"))
        return ScramCredential(salt, stored, server, int(values["iterations"]))
    except (KeyError, ValueError, binascii.Error):
        return None
