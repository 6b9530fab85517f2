"""SASL authentication at the start of a connection to a broker, by kafka-python's mechanisms.

Corresponds to `SaslClientAuthenticator`: SaslHandshake chooses the mechanism, SaslAuthenticate carries its messages. A
broker that requires re-authentication (`connections.max.reauth.ms`) closes the connection; the next connection
authenticates again, with a new token if there is one.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from jobs.adapters.brokers.admin_client import NO_CREDENTIALS, error_name, require_credentials
from jobs.adapters.brokers.listeners import OAUTHBEARER, AuthenticationFailedError
from jobs.adapters.kerberos.login import GSSAPI

_VERSION: Final = 1
"""Version of both requests, which brokers support since 2.2."""

_MALFORMED: Final = (ValueError, LookupError, struct.error)

_HINTS: Final = {
    OAUTHBEARER: "it does not accept the token: see its issuer, audience and expiry, and both clocks",
    GSSAPI: "it does not accept the ticket: see both clocks, and the keytab of the broker",
}
_PASSWORD_HINT: Final = "see sasl.username and sasl.password"  # noqa: S105 - a message

Exchange = Callable[[Any], bytes]
"""Sends one request of kafka-python and returns the raw response."""


def authenticate(exchange: Exchange, settings: Mapping[str, Any], host: str) -> None:
    """Authenticate at the broker on `host`.

    Raise AuthenticationFailedError if the broker refuses us, or cannot prove that it knows the user.
    """
    name = settings["sasl_mechanism"]
    try:
        mechanism = get_sasl_mechanism(name)(**settings, host=host)
        handshake = SaslHandshakeResponse.decode(exchange(_request(SaslHandshakeRequest(name))), _VERSION, header=True)
        if handshake.error_code:
            accepted = ", ".join(handshake.mechanisms)
            raise AuthenticationFailedError(
                f"{error_name(handshake.error_code)}: it accepts {accepted}, not {name}: see sasl.mechanism"
            )
        while not mechanism.is_done():
            data = exchange(_request(SaslAuthenticateRequest(mechanism.auth_bytes())))
            response = SaslAuthenticateResponse.decode(data, _VERSION, header=True)
            if response.error_code:  # its message is left out, as it may contain a PLAIN password
                hint = _HINTS.get(name, _PASSWORD_HINT)
                raise AuthenticationFailedError(f"{error_name(response.error_code)}: {hint}")
            mechanism.receive(response.auth_bytes)
    except NO_CREDENTIALS as error:
        raise AuthenticationFailedError(str(error)) from None
    except _MALFORMED:
        raise AuthenticationFailedError(
            f"its responses to {name} are not those of a broker that knows the user"
        ) from None
    if not mechanism.is_authenticated():
        raise AuthenticationFailedError(f"its response to {name} is invalid")


def prepare(settings: Mapping[str, Any]) -> None:
    """Obtain what `authenticate` needs and may take long; raise AuthenticationFailedError if it cannot be had."""
    try:
        require_credentials(settings)
    except NO_CREDENTIALS as error:
        raise AuthenticationFailedError(str(error)) from None


def _request(request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    request.API_VERSION = _VERSION
    return request
