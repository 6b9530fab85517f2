"""The broker endpoint for control requests, and its security: plain text or TLS, and SASL credentials.

Corresponds to `ChannelBuilders` and `SslFactory`, as Kafka's controller uses them for its control-plane or inter-broker
listener. The settings come from the client.properties that the Admin API uses as well.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jobs.adapters.brokers.admin_client import OAUTHBEARER, TLS, read_properties
from jobs.adapters.kerberos.login import GSSAPI
from jobs.core.errors import UsageError
from jobs.core.option_sources import COMMAND_CONFIG, option_name, value_at
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from schemas.znode_json import PLAINTEXT

_ALERT: Final = b"\x15\x03"
"""First bytes of a TLS alert, with which a TLS server answers plain text."""


class UnreachableBrokerError(Exception):
    """A broker that cannot be sent control requests; a retry is useless."""


class AuthenticationFailedError(UnreachableBrokerError):
    """TLS or SASL failed: the broker refuses us, or it cannot be trusted."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener that all brokers have, identified by its security protocol and, if given, its name."""

    security_protocol: str = PLAINTEXT
    name: str | None = None
    tls: ssl.SSLContext | None = None
    sasl: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of kafka-python's mechanisms; empty without SASL."""

    @classmethod
    def of(cls, command_config: Path | None, name: str | None) -> "Listener":
        """Read client.properties; raise UsageError for settings that are not supported."""
        file = option_name(COMMAND_CONFIG) if command_config is None else value_at(COMMAND_CONFIG, command_config)
        return cls.with_settings(read_properties(command_config), file, name)

    @classmethod
    def with_settings(cls, settings: Mapping[str, Any], file: str, name: str | None = None) -> "Listener":
        """Return the listener for settings of `read_properties`; `file` names their file in messages."""
        protocol = settings.get("security_protocol", PLAINTEXT)
        return cls(protocol, name, settings.get(TLS), _sasl(file, settings) if protocol.startswith("SASL") else {})

    def endpoint(self, broker: Broker) -> Endpoint | None:
        """Return the broker's endpoint at this listener, None if there is none."""
        fitting = (
            endpoint for endpoint in broker.endpoints or () if endpoint.security_protocol == self.security_protocol
        )
        return next((endpoint for endpoint in fitting if self.name in {None, endpoint.listener}), None)

    def address(self, broker: Broker) -> tuple[str, int]:
        """Return host and port for control requests; raise UnreachableBrokerError if there is no endpoint."""
        endpoint = self.endpoint(broker)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        if not broker.endpoints:
            raise UnreachableBrokerError(
                f"broker {broker.broker_id} has no endpoint in its registration that can be decoded"
            )
        endpoints = [f"{endpoint.listener} ({endpoint.security_protocol})" for endpoint in broker.endpoints]
        called, key = ("", "") if self.name is None else (f" called {self.name}", ", or control_listener in the conf")
        raise UnreachableBrokerError(
            f"broker {broker.broker_id} has no {self.security_protocol} endpoint{called}; it has "
            f"{', '.join(endpoints)}: set security.protocol in {option_name(COMMAND_CONFIG)}{key}",
        )


PLAINTEXT_LISTENER: Final = Listener()
"""Plain text without authentication."""


def _sasl(file: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in {OAUTHBEARER, GSSAPI} and not {"sasl_plain_username", "sasl_plain_password"} <= settings.keys():
        raise UsageError(f"{file}: SASL needs sasl.username and sasl.password")
    return {name: value for name, value in settings.items() if name.startswith("sasl_")}


@contextmanager
def explain_tls_errors() -> Iterator[None]:
    """Turn TLS errors into AuthenticationFailedError.

    With TLS 1.3 a refused certificate shows only in the first read.
    """
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise  # a lost connection
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationFailedError(
            f"its certificate does not verify: {error.verify_message}; see ssl.ca.location and its host name"
        ) from None
    except ssl.SSLError as error:
        raise AuthenticationFailedError(_tls_error_message(error.reason or "")) from None


def _tls_error_message(reason: str) -> str:
    """Explain OpenSSL's reason.

    >>> _tls_error_message("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    'it does not accept our certificate (TLSV13_ALERT_CERTIFICATE_REQUIRED): see ssl.certificate.location'
    >>> _tls_error_message("WRONG_VERSION_NUMBER")
    'the listener does not use TLS (WRONG_VERSION_NUMBER): see security.protocol'
    """
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return f"it does not accept our certificate ({reason}): see ssl.certificate.location"
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}:
        return f"the listener does not use TLS ({reason}): see security.protocol"
    return f"TLS failed ({reason})"


def refuse_alert(head: bytes) -> None:
    """Raise AuthenticationFailedError if a response begins with a TLS alert; as a length it would be too large."""
    if head[:2] == _ALERT:
        raise AuthenticationFailedError("the listener uses TLS, and the request was plain text: see security.protocol")
