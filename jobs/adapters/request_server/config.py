"""Addresses that receive brokers' requests, and accepted clients: `--listen`, `--advertise`, `--listen-config`.

Corresponds to `listeners`, `advertised.listeners` and the settings of `SslConfigs` and `BrokerSecurityConfigs`. Keys of
PEM files are those of the other configuration files. An address with the name of a listener, `CLIENTS://HOST:PORT`, is
for the clients of that listener of the brokers.
"""

import difflib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobs.adapters.request_server.api_handler import ServerListener
from jobs.adapters.request_server.authentication import MECHANISMS, PLAIN
from jobs.core.addresses import parse_address
from jobs.core.errors import UsageError
from jobs.core.properties import AUTHORITIES, CERTIFICATE, KEYSTORE, read_key_values
from jobs.core.tls_files import KEYS as TLS_KEYS
from jobs.core.tls_files import TRUSTSTORE, load_files, names_authorities, names_certificate
from schemas.znode_json import PLAINTEXT, SECURITY_PROTOCOLS

OPTION: Final = "--listen-config"
LISTEN: Final = "--listen"
ADVERTISE: Final = "--advertise"

PROTOCOL: Final = "security.protocol"
PRINCIPALS: Final = "broker.principals"
CLIENT_AUTH: Final = "ssl.client.auth"
ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
CONTROL_LISTEN: Final = "control.plane.listen"
CONTROL_ADVERTISE: Final = "control.plane.advertise"
CONTROL_PROTOCOL: Final = "control.plane.security.protocol"
PRINCIPAL_TYPE: Final = "User:"
PASSWORD_PREFIX: Final = "sasl.plain.user."  # noqa: S105 - a prefix of settings
PASSWORD_SUFFIX: Final = ".password"  # noqa: S105

KEYS: Final = (
    PROTOCOL,
    PRINCIPALS,
    CLIENT_AUTH,
    *TLS_KEYS,
    ENABLED_MECHANISMS,
    CONTROL_LISTEN,
    CONTROL_ADVERTISE,
    CONTROL_PROTOCOL,
)
_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - refused below
_NAMED_ADDRESS: Final = re.compile(r"(?:(?P<name>[\w.-]+)://)?(?P<address>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Binding:
    """One address to listen on, the address advertised to brokers, and its security protocol."""

    security_protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0 if the port is chosen when it is bound, as in tests."""
    listener: str | None = None
    """Name of the brokers' listener whose clients connect here; None where brokers send their requests."""

    @property
    def server_listener(self) -> ServerListener:
        return ServerListener(self.security_protocol, self.listener)


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """The options of the request server, checked."""

    bindings: tuple[Binding, ...]
    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords of PLAIN by user."""
    principals: frozenset[str] = frozenset()
    """The clients that are accepted; a PLAINTEXT listener accepts all."""

    @classmethod
    def of(cls, listen: Sequence[str], advertise: Sequence[str], file: Path | None) -> "ListenConfig":
        """Read the options and the file; raise UsageError for what cannot be served, or would accept any client.

        `listen` and `advertise`: HOST:PORT for brokers, and CLIENTS://HOST:PORT for clients of their listener CLIENTS.
        """
        values = {} if file is None else read_key_values(file, OPTION, KEYS, is_known=_is_password)
        addresses, advertised_addresses = _by_listener(LISTEN, listen), _by_listener(ADVERTISE, advertise)
        if None not in addresses:
            raise UsageError(f"{LISTEN} HOST:PORT is missing, without the name of a listener: brokers connect to it")
        if unserved := [name for name in advertised_addresses if name not in addresses]:
            raise UsageError(f"{ADVERTISE} {unserved[0]}://HOST:PORT needs {LISTEN} {unserved[0]}://HOST:PORT")
        bindings = [
            _binding(
                LISTEN,
                address,
                ADVERTISE,
                advertised_addresses.get(name),
                values.get(PROTOCOL, PLAINTEXT) if name is None else PLAINTEXT,
                name,
            )
            for name, address in addresses.items()
        ]
        if CONTROL_LISTEN in values:
            protocol = values.get(CONTROL_PROTOCOL, values.get(PROTOCOL, PLAINTEXT))
            advertised = values.get(CONTROL_ADVERTISE)
            bindings.append(_binding(CONTROL_LISTEN, values[CONTROL_LISTEN], CONTROL_ADVERTISE, advertised, protocol))
        protocols = {binding.security_protocol for binding in bindings}
        secured = protocols - {PLAINTEXT}
        if secured and PRINCIPALS not in values:
            raise UsageError(
                f"{OPTION} {file}: {PRINCIPALS} is missing: name the brokers' principals, separated by semicolons, "
                "such as User:kafka or User:CN=broker1,O=Example"
            )
        principals = frozenset(name.strip() for name in values.get(PRINCIPALS, "").split(";") if name.strip())
        unknown = sorted(name for name in principals if not name.startswith(PRINCIPAL_TYPE))
        if unknown:
            raise UsageError(
                f"{OPTION} {file}: {PRINCIPALS} has {unknown[0]!r}, as which no broker can log in: expected principals "
                "such as User:kafka or User:CN=broker1,O=Example, separated by semicolons"
            )
        passwords = {
            key.removeprefix(PASSWORD_PREFIX).removesuffix(PASSWORD_SUFFIX): value
            for key, value in values.items()
            if _is_password(key)
        }
        uses_tls, uses_sasl = any(p.endswith("SSL") for p in secured), any(p.startswith("SASL") for p in secured)
        return cls(
            tuple(bindings),
            _tls(file, values, needs_certificate="SSL" in secured) if uses_tls else None,
            _mechanisms(file, values, passwords) if uses_sasl else (),
            passwords,
            principals,
        )


def _is_password(key: str) -> bool:
    return key.startswith(PASSWORD_PREFIX) and key.endswith(PASSWORD_SUFFIX)


def _by_listener(option: str, addresses: Sequence[str]) -> dict[str | None, str]:
    """Return the addresses by their listener, None for that without a name; raise UsageError if two have the same.

    Names are in capitals, as brokers register them (`ListenerName.normalised`).
    """
    by_listener = dict[str | None, str]()
    for text in addresses:
        parts = _NAMED_ADDRESS.fullmatch(text)
        name, address = (parts["name"], parts["address"]) if parts else (None, text)
        name = name and name.upper()
        if name in by_listener:
            kind = f"of listener {name}" if name else "without the name of a listener"
            raise UsageError(f"{option} {text!r}: there is another address {kind}, {by_listener[name]}")
        by_listener[name] = address
    return by_listener


def _binding(  # noqa: PLR0917 - an address, its options, and what it is for
    option: str, listen: str, advertise_option: str, advertise: str | None, protocol: str, listener: str | None = None
) -> Binding:
    if protocol not in SECURITY_PROTOCOLS:
        near = difflib.get_close_matches(protocol, SECURITY_PROTOCOLS, 1)
        choices = ", ".join(SECURITY_PROTOCOLS)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{OPTION}: {PROTOCOL} is {protocol!r}; it is one of {choices}{hint}")
    host, port = parse_address(option, listen)
    advertised_host, advertised_port = parse_address(advertise_option, advertise) if advertise else (host, port)
    if advertised_host in _ANY_ADDRESS:
        form = f"{listener}://HOST:PORT" if listener else "HOST:PORT"
        raise UsageError(f"brokers cannot connect to {advertised_host}: give {advertise_option} {form}")
    return Binding(protocol, host, port, advertised_host, advertised_port, listener)


def _tls(file: Path | None, values: Mapping[str, str], *, needs_certificate: bool) -> ssl.SSLContext:
    """Make the context of a server: TLS 1.2 or later. With SSL alone, only a certificate identifies the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not names_certificate(values):
        raise UsageError(f"{OPTION} {file}: {CERTIFICATE} or {KEYSTORE} is missing: the certificate of this server")
    mode = values.get(CLIENT_AUTH, "required" if needs_certificate else "none")
    if mode not in _CLIENT_AUTH:
        raise UsageError(f"{OPTION} {file}: {CLIENT_AUTH} is {mode!r}; it is one of {', '.join(_CLIENT_AUTH)}")
    if needs_certificate and mode != "required":
        raise UsageError(
            f"{OPTION} {file}: {CLIENT_AUTH} must be required with SSL, because only a certificate identifies the "
            "client"
        )
    if mode != "none" and not names_authorities(values):
        raise UsageError(
            f"{OPTION} {file}: {AUTHORITIES} or {TRUSTSTORE} is missing: the authorities that sign the brokers' "
            "certificates"
        )
    load_files(context, values, f"{OPTION} {file}")
    context.verify_mode = _CLIENT_AUTH[mode]
    return context


def _mechanisms(file: Path | None, values: Mapping[str, str], passwords: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in values.get(ENABLED_MECHANISMS, "").split(",") if name.strip())
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise UsageError(
            f"{OPTION} {file}: {ENABLED_MECHANISMS} is {values.get(ENABLED_MECHANISMS)!r}; it is one or more of "
            f"{', '.join(MECHANISMS)}, separated by commas"
        )
    if PLAIN in names and not passwords:
        raise UsageError(f"{OPTION} {file}: PLAIN needs the brokers' user, {PASSWORD_PREFIX}NAME{PASSWORD_SUFFIX}")
    return names
