"""The authentication of one connection by SASL: handshake, exchange, and whether the principal is allowed.

Corresponds to `SaslServerAuthenticator`.
"""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from jobs.adapters.kio_imports import ErrorCode, SaslHandshakeResponse
from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.authentication import (
    Credentials,
    RefusedCredentialsError,
    SaslExchange,
    ScramCredential,
    exchange_of,
)
from jobs.adapters.request_server.config import OPTION, PRINCIPALS, ListenConfig
from jobs.adapters.request_server.messages import SASL_AUTHENTICATE, MalformedRequestError, response_entity

MAX_SHOWN_NAME: Final = 100
"""Characters of a user's name in the log."""

_SASL_FAILED: Final = 58
_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34


class AuthenticationError(Exception):
    """The client is not authenticated, for a reason that is logged and not sent to the client."""


def require_allowed(config: ListenConfig, principal: str) -> None:
    """Raise AuthenticationError unless a principal is among those of the listener."""
    if principal not in config.principals:
        raise AuthenticationError(f"{principal} is not among {PRINCIPALS} of {OPTION}")


def authenticate_response(version: int, error: int, message: str | None, data: bytes = b"") -> ApiMessage:
    """Return a response to SaslAuthenticate."""
    fields = {"error_code": ErrorCode(error), "error_message": message, "auth_bytes": data}
    return response_entity(SASL_AUTHENTICATE, version, "SaslAuthenticateResponse", **fields)


def failed_response(version: int) -> ApiMessage:
    """Return the response to a client that is not authenticated. Like that of Kafka, it has no reason."""
    return authenticate_response(version, _SASL_FAILED, "Authentication failed")


@dataclass(slots=True)
class SaslAuthenticator:
    """How far the authentication of a connection is."""

    config: ListenConfig
    credentials: Credentials
    """Credentials for SCRAM; called in a thread, because it may wait for ZooKeeper."""
    executor: Executor
    principal: str | None = None
    """Principal of the authenticated client; None until then."""
    _exchange: SaslExchange | None = None
    _refusal: str = "its credentials are wrong"

    def handshake(self, request: ApiMessage) -> ApiMessage:
        """Return the response to SaslHandshake."""
        mechanisms = self.config.mechanisms
        if self.principal is not None or self._exchange is not None:
            return SaslHandshakeResponse(error_code=ErrorCode(_ILLEGAL_SASL_STATE), mechanisms=mechanisms)
        if request.mechanism not in mechanisms:
            return SaslHandshakeResponse(error_code=ErrorCode(_UNSUPPORTED_MECHANISM), mechanisms=mechanisms)
        self._exchange = exchange_of(request.mechanism, self.config.passwords, self._broker_credential)
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
            require_allowed(self.config, principal)
            self.principal, self._exchange = principal, None
        return authenticate_response(version, 0, None, data)

    def _broker_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a broker's user; a client can name any user, and must not make us read for it."""
        if f"User:{user}" in self.config.principals:
            return self.credentials(user, mechanism)
        shown = user[:MAX_SHOWN_NAME].encode("unicode_escape").decode()
        self._refusal = f"User:{shown} is not among {PRINCIPALS} of {OPTION}"
        return None
