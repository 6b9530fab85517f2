"""The address of a ZooKeeper ensemble, and the security of connections to it: TLS, SASL and digest authentication.

Only the path of the configuration file (`--zookeeper-config`) is kept until a connection is made: the content of the
file is never an argument and never goes into a table or a message. Keys have the names of client.properties, where that
has them.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.core.errors import MissingError, UsageError
from jobs.core.properties import load_pem, read_key_values

OPTION: Final = "--zookeeper-config"

_DIGEST_MD5: Final = "DIGEST-MD5"
_USES_TLS: Final = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}
_FILES: Final = {
    "ssl.ca.location": "ca",
    "ssl.certificate.location": "certfile",
    "ssl.key.location": "keyfile",
}
_KEYS: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "digest.username",
    "digest.password",
    *_FILES,
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
"""Keys of the file; TLS files are PEM. `digest` is ZooKeeper's own scheme, without SASL."""


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
    settings = read_key_values(config, OPTION, _KEYS)
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol not in _USES_TLS:
        raise UsageError(f"{OPTION} {config}: security.protocol is {protocol!r}; it is one of {', '.join(_USES_TLS)}")
    options: dict[str, Any] = {}
    if _USES_TLS[protocol]:
        options |= _tls(config, settings)
    if protocol.startswith("SASL"):
        options["sasl_options"] = _sasl(config, settings)
    if "digest.username" in settings:
        options["auth_data"] = [("digest", f"{settings['digest.username']}:{settings.get('digest.password', '')}")]
    return options


def _tls(config: Path, settings: dict[str, str]) -> dict[str, Any]:
    files = {key: Path(value) for key, value in settings.items() if key in _FILES}
    for key, path in files.items():
        if not path.is_file():
            raise UsageError(f"{OPTION} {config}: {key}: there is no file {path}")
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    paths = {_FILES[key]: str(path) for key, path in files.items()}
    if "certfile" in paths:
        paths.setdefault("keyfile", paths["certfile"])  # kazoo sends no certificate without a key file
    password = settings.get("ssl.key.password", "")  # without a password, OpenSSL prompts on the terminal
    # kazoo itself would retry silently with invalid files
    load_pem(
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        f"{OPTION} {config}",
        authorities=paths.get("ca"),
        certificate=paths.get("certfile"),
        key=paths.get("keyfile"),
        password=password,
    )
    return {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": algorithm.lower() == "https",
        "keyfile_password": password,
        **paths,
    }


def _sasl(config: Path, settings: dict[str, str]) -> dict[str, str]:
    try:
        import puresasl  # noqa: F401, PLC0415 - kazoo uses it for SASL; it is an extra
    except ImportError:
        raise MissingError(
            f"{OPTION} {config}: SASL with ZooKeeper needs one more package: pip install 'kafka-surveyor[sasl]'"
        ) from None
    mechanism = settings.get("sasl.mechanism", _DIGEST_MD5)
    if mechanism != _DIGEST_MD5:
        raise UsageError(f"{OPTION} {config}: sasl.mechanism is {mechanism!r}; only {_DIGEST_MD5} is supported")
    if not {"sasl.username", "sasl.password"} <= settings.keys():
        raise UsageError(f"{OPTION} {config}: SASL needs sasl.username and sasl.password")
    return {"mechanism": mechanism, "username": settings["sasl.username"], "password": settings["sasl.password"]}
