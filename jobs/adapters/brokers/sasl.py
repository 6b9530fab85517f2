"""Who we are, said to a broker at the beginning of a connection: SASL's PLAIN and SCRAM, by kafka-python's mechanisms.

Corresponds to `SaslClientAuthenticator`: SaslHandshake names the mechanism, SaslAuthenticate carries what it has to
say. A broker that wants to hear it again after `connections.max.reauth.ms` closes the connection; the next one begins
like the first.
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

from jobs.adapters.brokers.admin import error_name
from jobs.adapters.brokers.listeners import AuthenticationFailedError

_VERSION: Final = 1
"""Of both requests: brokers know it since 2.2."""

_MALFORMED: Final = (ValueError, LookupError, struct.error)

Exchange = Callable[[Any], bytes]
"""Sends one request of kafka-python, and returns the answer as it came."""


def authenticate(exchange: Exchange, settings: Mapping[str, str]) -> None:
    """Say who we are; raise NotLetInError where the broker does not take it, or cannot be who it claims to be."""
    name = settings["sasl_mechanism"]
    mechanism = get_sasl_mechanism(name)(**settings)
    try:
        handshake = SaslHandshakeResponse.decode(exchange(_request(SaslHandshakeRequest(name))), _VERSION, header=True)
        if handshake.error_code:
            known = ", ".join(handshake.mechanisms)
            raise AuthenticationFailedError(
                f"{error_name(handshake.error_code)}: it takes {known}, not {name}: see sasl.mechanism"
            )
        while not mechanism.is_done():
            data = exchange(_request(SaslAuthenticateRequest(mechanism.auth_bytes())))
            answer = SaslAuthenticateResponse.decode(data, _VERSION, header=True)
            if answer.error_code:  # what it says of it besides is left out: it knows the password, if it is PLAIN
                raise AuthenticationFailedError(f"{error_name(answer.error_code)}: see sasl.username and sasl.password")
            mechanism.receive(answer.auth_bytes)
    except _MALFORMED:
        raise AuthenticationFailedError(
            f"its answers to {name} are not those of a broker that knows the user"
        ) from None
    if not mechanism.is_authenticated():
        raise AuthenticationFailedError(f"its answer to {name} makes no sense")


def _request(request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    request.API_VERSION = _VERSION
    return request
