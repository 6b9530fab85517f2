"""The server's half of SASL: PLAIN by a list of users, SCRAM by stored keys.

Corresponds to `SaslServerAuthenticator`, `PlainSaslServer` and `ScramSaslServer`. A refusal never reveals whether the
user or the password is wrong.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from scramp import ScramException, ScramMechanism

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM)

_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 32


class RefusedCredentialsError(Exception):
    """The client's credentials are wrong."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored keys of a user's password (`ScramCredential`)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


Credentials = Callable[[str, str], ScramCredential | None]
"""Returns the credential of a user for a mechanism, None if there is none; it may wait for ZooKeeper."""


class SaslExchange(Protocol):
    """One authentication, message by message."""

    user: str | None
    """Name of the authenticated user; None until then."""

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a message; raise RefusedCredentialsError if the client is refused."""


@dataclass(slots=True)
class PlainExchange:
    """PLAIN (RFC 4616): one message with user and password."""

    passwords: Mapping[str, str] = field(repr=False)
    user: str | None = None

    def respond(self, message: bytes) -> bytes:
        try:
            authorization, name, password = message.decode().split("\0")
        except ValueError:
            raise RefusedCredentialsError from None
        expected = self.passwords.get(name)
        # the comparison takes the same time if there is no such user
        given, stored = password.encode(), (secrets.token_hex() if expected is None else expected).encode()
        is_right = hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(stored).digest())
        if expected is None or not is_right or authorization not in {"", name}:
            raise RefusedCredentialsError
        self.user = name
        return b""


@dataclass(slots=True)
class ScramExchange:
    """SCRAM (RFC 5802, 7677): two messages, by the scramp library."""

    mechanism: str
    credentials: Credentials
    user: str | None = None
    _server: Any = None
    _name: str | None = None
    _is_known: bool = False

    def respond(self, message: bytes) -> bytes:
        try:
            return self._respond(message.decode())
        except (ScramException, UnicodeDecodeError):
            raise RefusedCredentialsError from None

    def _respond(self, message: str) -> bytes:
        if self._server is None:
            server = ScramMechanism(self.mechanism).make_server(self._authentication)
            server.set_client_first(message)
            self._server = server
            return str(server.get_server_first()).encode()
        server = self._server
        server.set_client_final(message)
        final_message = str(server.get_server_final()).encode()
        if not self._is_known or final_message.startswith(b"e="):
            raise RefusedCredentialsError
        self.user = self._name
        return final_message

    def _authentication(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        """Return a user's salt, keys and iterations; for an unknown user keys that match no password."""
        self._name = name
        known = self.credentials(name, self.mechanism)
        self._is_known = known is not None
        if known is None:
            size = hashlib.new(self.mechanism.removeprefix("SCRAM-").replace("SHA-", "sha")).digest_size
            known = ScramCredential(
                secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(size), secrets.token_bytes(size), _ITERATIONS
            )
        return known.salt, known.stored_key, known.server_key, known.iterations


def exchange_of(mechanism: str, passwords: Mapping[str, str], credentials: Credentials) -> SaslExchange:
    """Begin an authentication by a mechanism."""
    if mechanism == PLAIN:
        return PlainExchange(passwords)
    return ScramExchange(mechanism, credentials)
