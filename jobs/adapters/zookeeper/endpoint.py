"""The address of a ZooKeeper ensemble, and the security of connections to it: TLS, SASL, Kerberos and digest.

Only the path of the configuration file (`--zookeeper-config`) is kept until a connection is made: the content of the
file is never an argument and never goes into a table or a message. Keys have the names of client.properties, if it has
them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.adapters.kerberos.login import GSSAPI, INSTALL, KERBEROS_KEYS, KerberosLogin, login_of
from jobs.core.errors import MissingError, UsageError
from jobs.core.jaas import login_module
from jobs.core.option_sources import ZOOKEEPER_CONFIG, value_at
from jobs.core.properties import HOST_NAMES, read_key_values
from jobs.core.tls_files import TLS_KEYS, client_context

_DIGEST_MD5: Final = "DIGEST-MD5"
_JAAS_SECTION: Final = "zookeeper.sasl.clientconfig"
_SERVICE: Final = "zookeeper.sasl.client.username"
"""System properties of Java's ZooKeeper client: the section of the JAAS file, and the service's name."""
_LOGIN: Final = "login"
"""The argument of the mechanism for Kerberos."""

_USES_TLS: Final = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}
_KEYS: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    *KERBEROS_KEYS,
    _JAAS_SECTION,
    _SERVICE,
    "digest.username",
    "digest.password",
    *TLS_KEYS,
    HOST_NAMES,
)
"""Keys of the file. `digest` is ZooKeeper's own scheme, without SASL."""


@dataclass(frozen=True, slots=True)
class ZooKeeperEndpoint:
    """Where a cluster keeps its metadata: HOST:PORT[,...][/chroot], and the configuration file of connections.

    Without a file, connections are unauthenticated and in plain text.
    """

    hosts: str
    config: Path | None = None

    def __str__(self) -> str:
        return self.hosts


def kazoo_options(config: Path | None) -> dict[str, Any]:
    """Return kazoo's options for a configuration file; raise UsageError for an invalid file."""
    if config is None:
        return {}
    settings = read_key_values(config, value_at(ZOOKEEPER_CONFIG, config), _KEYS)
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _USES_TLS:
        raise UsageError(
            f"{value_at(ZOOKEEPER_CONFIG, config)}: security.protocol is {protocol!r}; it is one of "
            f"{', '.join(_USES_TLS)}"
        )
    options: dict[str, Any] = {}
    if _USES_TLS[protocol]:
        from jobs.adapters.zookeeper.tls_handler import TlsHandler  # noqa: PLC0415 - kazoo, which --help does not need

        options |= {
            "use_ssl": True,
            "handler": TlsHandler(client_context(settings, value_at(ZOOKEEPER_CONFIG, config))),
        }
    if protocol.startswith("SASL"):
        options["sasl_options"] = _sasl(config, settings)
    if "digest.username" in settings:
        options["auth_data"] = [("digest", f"{settings['digest.username']}:{settings.get('digest.password', '')}")]
    return options


def login_in(options: dict[str, Any]) -> KerberosLogin | None:
    """Return the Kerberos login in kazoo's options, None without one."""
    login: KerberosLogin | None = options.get("sasl_options", {}).get(_LOGIN)
    return login


def acl_id(config: Path | None) -> str | None:
    """Return the id that ACLs have for the user of a configuration file, None if the file does not contain it."""
    options = kazoo_options(config)
    sasl, login = options.get("sasl_options", {}), login_in(options)
    if login is not None and login.principal is not None:
        return kerberos_acl_id(login.principal)
    if login is None and "username" in sasl:
        return f"sasl:{sasl['username']}"
    return next((f"digest:{credential.partition(':')[0]}" for _, credential in options.get("auth_data", ())), None)


def kerberos_acl_id(principal: str) -> str:
    """Return the ids that ACLs may have for a principal: ZooKeeper can be set to remove its host and its realm.

    >>> kerberos_acl_id("kafka/b1.example@EXAMPLE")
    'sasl:kafka/b1.example@EXAMPLE (sasl:kafka if ZooKeeper removes host and realm from principals)'
    """
    short = principal.partition("@")[0].partition("/")[0]
    return f"sasl:{principal} (sasl:{short} if ZooKeeper removes host and realm from principals)"


def _sasl(config: Path, settings: dict[str, str]) -> dict[str, Any]:
    file = value_at(ZOOKEEPER_CONFIG, config)
    mechanism = settings.get("sasl.mechanism", _DIGEST_MD5)
    if mechanism not in {_DIGEST_MD5, GSSAPI}:
        raise UsageError(f"{file}: sasl.mechanism is {mechanism!r}; it is one of {_DIGEST_MD5}, {GSSAPI}")
    try:
        from jobs.adapters.zookeeper import kerberos_mechanism  # noqa: F401, PLC0415 - puresasl is an extra
    except ImportError:
        install = INSTALL if mechanism == GSSAPI else "pip install 'kafka-surveyor[sasl]'"
        raise MissingError(f"{file}: SASL with ZooKeeper needs one more package: {install}") from None
    if mechanism == GSSAPI:
        section, service = settings.get(_JAAS_SECTION, "Client"), settings.get(_SERVICE, "zookeeper")
        login = login_of(settings, file, section, service)
        return {"mechanism": GSSAPI, "service": login.service, _LOGIN: login}
    module = login_module(settings, file, settings.get(_JAAS_SECTION, "Client"))
    user = {} if module is None else module.options
    username = settings.get("sasl.username", user.get("username"))
    password = settings.get("sasl.password", user.get("password"))
    if username is None or password is None:
        raise UsageError(f"{file}: SASL needs sasl.username and sasl.password")
    return {"mechanism": mechanism, "username": username, "password": password}
