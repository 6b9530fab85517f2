"""Addresses that receive brokers' requests, and accepted clients: `--listen`, `--advertise`, `--listen-config`.

Corresponds to `listeners`, `advertised.listeners` and the settings of `SslConfigs` and `BrokerSecurityConfigs`. Keys of
PEM files have the same names as in the other configuration files. An address with the name of a listener,
`CLIENTS://HOST:PORT`, is for the clients of that listener of the brokers; its settings have the prefix
`listener.name.clients.`, as in Kafka.
"""

import difflib
import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from jobs.adapters.request_server.api_handler import ServerListener
from jobs.adapters.request_server.sasl_mechanisms import MECHANISMS, PLAIN
from jobs.core.addresses import parse_address
from jobs.core.errors import UsageError
from jobs.core.properties import (
    AUTHORITIES,
    CERTIFICATE,
    KEY_PASSWORD,
    KEYSTORE,
    PRIVATE_KEY,
    read_key_values,
    refuse_shared_key,
)
from jobs.core.tls_files import (
    KEYSTORE_PASSWORD,
    KEYSTORE_TYPE,
    TLS_KEYS,
    TRUSTSTORE,
    TRUSTSTORE_PASSWORD,
    TRUSTSTORE_TYPE,
    load_files,
    names_authorities,
    names_certificate,
)
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

LISTEN_FILE_KEYS: Final = (
    PROTOCOL,
    PRINCIPALS,
    CLIENT_AUTH,
    *TLS_KEYS,
    ENABLED_MECHANISMS,
    CONTROL_LISTEN,
    CONTROL_ADVERTISE,
    CONTROL_PROTOCOL,
)
LISTENER_PREFIX: Final = "listener.name."
LISTENER_KEYS: Final = (PROTOCOL, CLIENT_AUTH, *TLS_KEYS, ENABLED_MECHANISMS)
"""Keys that may have the prefix of a listener."""

_OWN_CERTIFICATE: Final = (CERTIFICATE, PRIVATE_KEY, KEY_PASSWORD, KEYSTORE, KEYSTORE_TYPE, KEYSTORE_PASSWORD)
_OWN_AUTHORITIES: Final = (AUTHORITIES, TRUSTSTORE, TRUSTSTORE_TYPE, TRUSTSTORE_PASSWORD)
_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - refused below
_NAMED_ADDRESS: Final = re.compile(r"(?:(?P<name>[\w.-]+)://)?(?P<address>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Security:
    """How the clients of an address log in, and which of them are accepted."""

    tls: ssl.SSLContext | None = None
    client_auth: str = "none"
    """`ssl.client.auth`: whether clients need a certificate."""
    mechanisms: tuple[str, ...] = ()
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords of PLAIN by user."""
    principals: frozenset[str] = frozenset()
    """The brokers' principals; a PLAINTEXT listener accepts all."""
    is_for_clients: bool = False
    """Whether all clients that log in are accepted, as brokers do."""


def listener_key(listener: str, key: str) -> str:
    """Return the name of a setting of a listener (`ListenerName.configPrefix`).

    >>> listener_key("CLIENTS", "ssl.client.auth")
    'listener.name.clients.ssl.client.auth'
    """
    return f"{LISTENER_PREFIX}{listener.lower()}.{key}"


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
    """Name of the brokers' listener whose clients connect here; None for the address of brokers' requests."""
    security: Security = field(default=Security(), repr=False)

    @property
    def server_listener(self) -> ServerListener:
        return ServerListener(self.security_protocol, self.listener)


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """The options of the request server, checked."""

    bindings: tuple[Binding, ...]

    @property
    def logins(self) -> dict[str, Security]:
        """How the clients of listeners log in, by listener; those in plain text are left out."""
        return {
            binding.listener: binding.security
            for binding in self.bindings
            if binding.listener is not None and binding.security_protocol != PLAINTEXT
        }

    @classmethod
    def of(cls, listen: Sequence[str], advertise: Sequence[str], file: Path | None) -> "ListenConfig":
        """Read the options and the file; raise UsageError for what cannot be served, or would accept any client.

        `listen` and `advertise`: HOST:PORT for brokers, and CLIENTS://HOST:PORT for clients of their listener CLIENTS.
        """
        values = (
            {} if file is None else read_key_values(file, f"{OPTION} {file}", LISTEN_FILE_KEYS, is_known=_is_variable)
        )
        addresses, advertised_addresses = _by_listener(LISTEN, listen), _by_listener(ADVERTISE, advertise)
        if None not in addresses:
            raise UsageError(f"{LISTEN} HOST:PORT is missing, without the name of a listener: brokers connect to it")
        if unserved := [name for name in advertised_addresses if name not in addresses]:
            raise UsageError(f"{ADVERTISE} {unserved[0]}://HOST:PORT needs {LISTEN} {unserved[0]}://HOST:PORT")
        of_clients = {name: _listener_values(file, values, name) for name in addresses if name is not None}
        _refuse_unknown_listeners(file, values, of_clients)
        bindings = [
            _binding(
                LISTEN,
                address,
                ADVERTISE,
                advertised_addresses.get(name),
                (values if name is None else of_clients[name]).get(PROTOCOL, PLAINTEXT),
                name,
            )
            for name, address in addresses.items()
        ]
        if CONTROL_LISTEN in values:
            protocol = values.get(CONTROL_PROTOCOL, values.get(PROTOCOL, PLAINTEXT))
            advertised = values.get(CONTROL_ADVERTISE)
            bindings.append(_binding(CONTROL_LISTEN, values[CONTROL_LISTEN], CONTROL_ADVERTISE, advertised, protocol))
        protocols = frozenset(binding.security_protocol for binding in bindings if binding.listener is None)
        of_brokers = _brokers_security(file, values, protocols - {PLAINTEXT})
        return cls(
            tuple(
                replace(
                    binding,
                    security=of_brokers
                    if binding.listener is None
                    else _clients_security(file, of_clients[binding.listener], binding.security_protocol),
                )
                for binding in bindings
            )
        )


def _brokers_security(file: Path | None, values: Mapping[str, str], secured: frozenset[str]) -> Security:
    """Return how brokers log in. `secured`: the security protocols of their addresses without PLAINTEXT."""
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
    passwords = _passwords(values)
    client_auth = values.get(CLIENT_AUTH, "required" if "SSL" in secured else "none")
    if "SSL" in secured and client_auth in _CLIENT_AUTH and client_auth != "required":
        raise UsageError(
            f"{OPTION} {file}: {CLIENT_AUTH} must be required with SSL, because only a certificate identifies the "
            "client"
        )
    mechanisms = _mechanisms(file, values, passwords) if any(name.startswith("SASL") for name in secured) else ()
    tls = _tls(file, values, client_auth) if any(name.endswith("SSL") for name in secured) else None
    return Security(tls, client_auth, mechanisms, passwords, principals)


def _clients_security(file: Path | None, values: Mapping[str, str], protocol: str) -> Security:
    """Return how the clients of a listener log in, by its values without their prefix."""
    client_auth = values.get(CLIENT_AUTH, "required" if protocol == "SSL" else "none")
    passwords = _passwords(values)
    return Security(
        _tls(file, values, client_auth) if protocol.endswith("SSL") else None,
        client_auth,
        _mechanisms(file, values, passwords) if protocol.startswith("SASL") else (),
        passwords,
        is_for_clients=True,
    )


def _listener_values(file: Path | None, values: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the values of a listener without its prefix, and the values of the file that it shares with brokers.

    It shares certificate and authorities, unless it has its own, and the mechanisms. It has its own security protocol,
    users, and `ssl.client.auth`, so that it accepts only the clients configured for it.
    """
    prefix = listener_key(listener, "")
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    for key in own:
        if not (key in LISTENER_KEYS or _is_password(key)):
            known = ", ".join((*LISTENER_KEYS, f"{PASSWORD_PREFIX}NAME{PASSWORD_SUFFIX}"))
            raise UsageError(f"{OPTION} {file}: {prefix}{key} is not known; after {prefix} known are {known}")
    shared = [ENABLED_MECHANISMS]
    shared += () if names_certificate(own) else _OWN_CERTIFICATE
    shared += () if names_authorities(own) else _OWN_AUTHORITIES
    if file is not None:
        refuse_shared_key(own, f"{OPTION} {file}")
    return {**{key: values[key] for key in shared if key in values}, **own}


def _refuse_unknown_listeners(file: Path | None, values: Mapping[str, str], listeners: Collection[str]) -> None:
    """Raise UsageError for settings of a listener without an address."""
    prefixes = tuple(listener_key(listener, "") for listener in listeners)
    for key in values:
        if key.startswith(LISTENER_PREFIX) and not key.startswith(prefixes):
            raise UsageError(
                f"{OPTION} {file}: {key} belongs to no address: its listener, in lower case here, is that of "
                f"{LISTEN} NAME://HOST:PORT"
            )


def _is_variable(key: str) -> bool:
    """Return whether a key has the name of a user or of a listener in it."""
    return _is_password(key) or key.startswith(LISTENER_PREFIX)


def _passwords(values: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(PASSWORD_PREFIX).removesuffix(PASSWORD_SUFFIX): value
        for key, value in values.items()
        if _is_password(key)
    }


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


def _tls(file: Path | None, values: Mapping[str, str], client_auth: str) -> ssl.SSLContext:
    """Make the context of a server: TLS 1.2 or later. `client_auth`: `ssl.client.auth`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not names_certificate(values):
        raise UsageError(f"{OPTION} {file}: {CERTIFICATE} or {KEYSTORE} is missing: the certificate of this server")
    if client_auth not in _CLIENT_AUTH:
        raise UsageError(f"{OPTION} {file}: {CLIENT_AUTH} is {client_auth!r}; it is one of {', '.join(_CLIENT_AUTH)}")
    if client_auth != "none" and not names_authorities(values):
        raise UsageError(
            f"{OPTION} {file}: {AUTHORITIES} or {TRUSTSTORE} is missing: the authorities that sign the certificates of "
            "brokers or clients"
        )
    load_files(context, values, f"{OPTION} {file}")
    context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def _mechanisms(file: Path | None, values: Mapping[str, str], passwords: Mapping[str, str]) -> tuple[str, ...]:
    """Return the enabled mechanisms; raise UsageError for logins that cannot be verified here."""
    names = tuple(name.strip() for name in values.get(ENABLED_MECHANISMS, "").split(",") if name.strip())
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise UsageError(
            f"{OPTION} {file}: {ENABLED_MECHANISMS} is {values.get(ENABLED_MECHANISMS)!r}; it is one or more of "
            f"{', '.join(MECHANISMS)}, separated by commas. Other logins cannot be verified here: their clients use "
            "the brokers, and `surveyor plan` and `surveyor commit` replace their admin tools"
        )
    if PLAIN in names and not passwords:
        raise UsageError(f"{OPTION} {file}: PLAIN needs the users to verify, {PASSWORD_PREFIX}NAME{PASSWORD_SUFFIX}")
    return names
