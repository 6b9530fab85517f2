"""The authentication of one connection by SASL: handshake, exchange, and whether the principal is allowed.

Corresponds to `SaslServerAuthenticator`.
"""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.listen_config import OPTION, PRINCIPALS, Security
from jobs.adapters.request_server.messages import SASL_AUTHENTICATE, MalformedRequestError, response_entity
from jobs.adapters.request_server.sasl_mechanisms import (
    Credentials,
    RefusedCredentialsError,
    SaslExchange,
    ScramCredential,
    exchange_of,
)

MAX_SHOWN_NAME: Final = 100
"""Characters of a user's name in the log."""

_SASL_FAILED: Final = 58
_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34


class AuthenticationError(Exception):
    """The client is not authenticated, for a reason that is logged and not sent to the client."""


MAX_NAME_BYTES: Final = 250
"""Bytes of the longest name of a user that is read from ZooKeeper; its znode may have three times as many."""


def require_allowed(security: Security, principal: str) -> None:
    """Raise AuthenticationError unless the listener accepts the principal; a listener of clients accepts all."""
    if not (security.is_for_clients or principal in security.principals):
        raise AuthenticationError(f"{principal} is not among {PRINCIPALS} of {OPTION}")


def authenticate_response(version: int, error: int, message: str | None, data: bytes = b"") -> ApiMessage:
    """Return a response to SaslAuthenticate."""
    fields = {"error_code": ErrorCode(error), "error_message": message, "auth_bytes": data}
    return response_entity(SASL_AUTHENTICATE, version, "SaslAuthenticateResponse", **fields)


def failed_response(version: int) -> ApiMessage:
    """Return the response to a client that is not authenticated. Like Kafka's response, it has no reason."""
    return authenticate_response(version, _SASL_FAILED, "Authentication failed")


@dataclass(slots=True)
class SaslAuthenticator:
    """How far the authentication of a connection is."""

    security: Security
    credentials: Credentials
    """Credentials for SCRAM; called in a thread, because it may wait for ZooKeeper."""
    executor: Executor
    principal: str | None = None
    """Principal of the authenticated client; None until then."""
    _exchange: SaslExchange | None = None
    _refusal: str = "its credentials are wrong"

    def handshake(self, request: ApiMessage) -> ApiMessage:
        """Return the response to SaslHandshake.

        Raise AuthenticationError if a client wants another mechanism: an error in the response would end a producer or
        a consumer, which can authenticate at all brokers.
        """
        mechanisms = self.security.mechanisms
        if self.principal is not None or self._exchange is not None:
            return SaslHandshakeResponse(error_code=ErrorCode(_ILLEGAL_SASL_STATE), mechanisms=mechanisms)
        if request.mechanism not in mechanisms:
            if self.security.is_for_clients:
                raise AuthenticationError(f"mechanism {_shown(request.mechanism)} is not among {', '.join(mechanisms)}")
            return SaslHandshakeResponse(error_code=ErrorCode(_UNSUPPORTED_MECHANISM), mechanisms=mechanisms)
        self._exchange = exchange_of(
            request.mechanism,
            self.security.passwords,
            self._client_credential if self.security.is_for_clients else self._broker_credential,
        )
        return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=mechanisms)

    async def authenticate(self, version: int, request: ApiMessage) -> ApiMessage:
        """Return the response to SaslAuthenticate, with which the principal may be known.

        Raise AuthenticationError if the client is not authenticated, MalformedRequestError if there was no handshake.
        """
        exchange = self._exchange
        if exchange is None:
            raise MalformedRequestError("SaslAuthenticate before SaslHandshake")
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(self.executor, exchange.respond, request.auth_bytes)
        except RefusedCredentialsError as error:
            raise AuthenticationError(str(error) or self._refusal) from None
        if exchange.user is not None:
            principal = f"User:{exchange.user}"
            require_allowed(self.security, principal)
            self.principal, self._exchange = principal, None
        return authenticate_response(version, 0, None, data)

    def _broker_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a broker's user; a client can name any user, and must not make us read for it."""
        if f"User:{user}" in self.security.principals:
            return self.credentials(user, mechanism)
        self._refusal = f"User:{_shown(user)} is not among {PRINCIPALS} of {OPTION}"
        return None

    def _client_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of any user. If a name cannot be part of a path in ZooKeeper, no user has it."""
        is_part_of_path = 0 < len(user.encode()) <= MAX_NAME_BYTES and user not in {".", ".."}
        return self.credentials(user, mechanism) if is_part_of_path else None


def _shown(name: str) -> str:
    return name[:MAX_SHOWN_NAME].encode("unicode_escape").decode()
