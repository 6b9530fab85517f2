"""Which of a broker's endpoints control requests go to, and how it is spoken to there: in plain text or TLS, as whom.

Corresponds to `ChannelBuilders` and `SslFactory`, as Kafka's controller uses them for its control-plane or inter-broker
listener. What is needed stands in the same client.properties that the Admin API goes by.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobs.adapters.brokers.admin import read_properties
from jobs.adapters.brokers.control_encoding import Row
from jobs.core.errors import UsageError
from jobs.core.properties import load_pem
from schemas.znode_json import SECURITY_PROTOCOLS

PLAINTEXT: Final = "PLAINTEXT"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OPTION: Final = "--command-config"

_ALERT: Final = b"\x15\x03"
"""How TLS answers what it does not understand."""


class UnreachableBrokerError(Exception):
    """A broker that cannot be told, however often it is asked."""


class AuthenticationFailedError(UnreachableBrokerError):
    """A broker whose listener does not let us in, or is not to be trusted: TLS or SASL came to nothing."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener that all brokers have, by its security protocol; by its name, too, where it was given."""

    security_protocol: str = PLAINTEXT
    name: str | None = None
    tls: ssl.SSLContext | None = None
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What kafka-python's mechanisms take; empty where there is no SASL."""

    @classmethod
    def of(cls, command_config: Path | None, name: str | None) -> "Listener":
        """Read client.properties; raise UsageError on what cannot be spoken by."""
        settings = read_properties(command_config)
        protocol = settings.get("security_protocol", PLAINTEXT)
        if protocol not in SECURITY_PROTOCOLS:
            known = ", ".join(SECURITY_PROTOCOLS)
            raise UsageError(f"{OPTION} {command_config}: security.protocol is {protocol!r}; it is one of {known}")
        tls = _tls(command_config, settings) if protocol.endswith("SSL") else None
        return cls(protocol, name, tls, _sasl(command_config, settings) if protocol.startswith("SASL") else {})

    def endpoint(self, broker: Row) -> Row | None:
        """The broker's endpoint at this listener, if there is one."""
        endpoints: Sequence[Row] = broker.get("endpoints") or ()
        fitting = (each for each in endpoints if each["security_protocol"] == self.security_protocol)
        return next((each for each in fitting if self.name in {None, each["listener"]}), None)

    def address(self, broker: Row) -> tuple[str, int]:
        """Where a broker takes control requests; raise CannotTellError where it has no such endpoint."""
        endpoint = self.endpoint(broker)
        if endpoint is not None:
            return endpoint["host"], endpoint["port"]
        if not broker.get("endpoints"):
            raise UnreachableBrokerError(f"broker {broker['broker_id']} has registered no endpoint that is understood")
        known = [f"{each['listener']} ({each['security_protocol']})" for each in broker["endpoints"]]
        named, key = ("", "") if self.name is None else (f" called {self.name}", ", or control_listener in the conf")
        raise UnreachableBrokerError(
            f"broker {broker['broker_id']} has no {self.security_protocol} endpoint{named}, but "
            f"{', '.join(known)}: set security.protocol in {OPTION}{key}",
        )


PLAIN: Final = Listener()
"""In plain text, as nobody in particular."""


def _tls(config: Path | None, settings: Mapping[str, str]) -> ssl.SSLContext:
    """As kafka-python makes it: the host's name is checked unless the file says otherwise, and TLS is 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(settings.get("ssl_check_hostname", "https"))
    if "ssl_cafile" not in settings:
        context.load_default_certs()
    load_pem(
        context,
        f"{OPTION} {config}",
        authorities=settings.get("ssl_cafile"),
        certificate=settings.get("ssl_certfile"),
        key=settings.get("ssl_keyfile"),
        password=settings.get("ssl_password", ""),
    )
    return context


def _sasl(config: Path | None, settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise UsageError(
            f"{OPTION} {config}: sasl.mechanism is {mechanism!r}; brokers are told what was written by {known}"
        )
    if not {"sasl_plain_username", "sasl_plain_password"} <= settings.keys():
        raise UsageError(f"{OPTION} {config}: SASL needs sasl.username and sasl.password")
    return {name: value for name, value in settings.items() if name.startswith("sasl_")}


@contextmanager
def explain_tls_errors() -> Iterator[None]:
    """Say what came of TLS: with TLS 1.3 a server refuses a certificate only when something is read from it."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise  # lost, as any connection may be
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationFailedError(
            f"its certificate does not verify: {error.verify_message}; see ssl.ca.location, and the name it is made for"
        ) from None
    except ssl.SSLError as error:
        raise AuthenticationFailedError(_tls_error_message(error.reason or "")) from None


def _tls_error_message(reason: str) -> str:
    """What OpenSSL's reason means here.

    >>> _tls_error_message("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    'it does not take our certificate (TLSV13_ALERT_CERTIFICATE_REQUIRED): see ssl.certificate.location'
    >>> _tls_error_message("WRONG_VERSION_NUMBER")
    'it does not speak TLS there (WRONG_VERSION_NUMBER): see security.protocol'
    """
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return f"it does not take our certificate ({reason}): see ssl.certificate.location"
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}:
        return f"it does not speak TLS there ({reason}): see security.protocol"
    return f"TLS failed ({reason})"


def refuse_alert(head: bytes) -> None:
    """Raise NotLetInError where the first bytes of an answer are a record of TLS: no answer is as long as they say."""
    if head[:2] == _ALERT:
        raise AuthenticationFailedError("it speaks TLS there, and was spoken to without: see security.protocol")
