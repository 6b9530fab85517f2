"""Certificates and keys of a TLS context, from the files that a properties file names: PEM, or Java's keystores.

Corresponds to `DefaultSslEngineFactory`. Keys of PEM files are librdkafka's, keys of keystores are Java's.
"""

import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from jobs.core.errors import UsageError
from jobs.core.keystores import CONVERT, Keystore, KeystoreError, is_keystore, read_keystore
from jobs.core.properties import AUTHORITIES, CERTIFICATE, HOST_NAMES, KEY_PASSWORD, KEYSTORE, PRIVATE_KEY

TRUSTSTORE: Final = "ssl.truststore.location"
KEYSTORE_TYPE: Final = "ssl.keystore.type"
TRUSTSTORE_TYPE: Final = "ssl.truststore.type"
KEYSTORE_PASSWORD: Final = "ssl.keystore.password"  # noqa: S105 - the name of a setting
TRUSTSTORE_PASSWORD: Final = "ssl.truststore.password"  # noqa: S105
ENABLED_PROTOCOLS: Final = "ssl.enabled.protocols"

TLS_KEYS: Final = (
    AUTHORITIES,
    CERTIFICATE,
    PRIVATE_KEY,
    KEY_PASSWORD,
    KEYSTORE,
    KEYSTORE_TYPE,
    KEYSTORE_PASSWORD,
    TRUSTSTORE,
    TRUSTSTORE_TYPE,
    TRUSTSTORE_PASSWORD,
)
TYPES: Final = ("JKS", "PKCS12", "PEM")


def client_context(values: Mapping[str, str], file: str) -> ssl.SSLContext:
    """Make a client's context: TLS 1.2 or later, host names checked unless HOST_NAMES disables it.

    `file` is the option and path of the properties file, for messages. Raise UsageError for invalid files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _versions(values.get(ENABLED_PROTOCOLS), file)
    context.check_hostname = values.get(HOST_NAMES, "https").lower() == "https"
    if not names_authorities(values):
        context.load_default_certs()
    load_files(context, values, file)
    return context


def _versions(enabled: str | None, file: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the lowest and the highest version of TLS for `ssl.enabled.protocols`."""
    supported = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    names = [*supported] if enabled is None else [name.strip() for name in enabled.split(",")]
    versions = [version for name, version in supported.items() if name in names]
    if not versions:
        raise UsageError(f"{file}: {ENABLED_PROTOCOLS} is {enabled!r}; supported are {', '.join(supported)}")
    return versions[0], versions[-1]


def names_authorities(values: Mapping[str, str]) -> bool:
    return not values.keys().isdisjoint({AUTHORITIES, TRUSTSTORE})


def names_certificate(values: Mapping[str, str]) -> bool:
    return not values.keys().isdisjoint({CERTIFICATE, KEYSTORE})


def load_files(context: ssl.SSLContext, values: Mapping[str, str], file: str) -> None:
    """Load what the values name into a context; raise UsageError for invalid files."""
    for one, other in ((AUTHORITIES, TRUSTSTORE), (CERTIFICATE, KEYSTORE)):
        if {one, other} <= values.keys():
            raise UsageError(f"{file}: {one} and {other} exclude each other: omit one of them")
    for key in (KEYSTORE_TYPE, TRUSTSTORE_TYPE):
        if key in values and values[key].upper() not in TYPES:
            raise UsageError(
                f"{file}: {key} is {values[key]!r}; it is one of {', '.join(TYPES)}; convert it: {CONVERT}"
            )
    authorities, certificate = values.get(AUTHORITIES), values.get(CERTIFICATE)
    if TRUSTSTORE in values:
        store = _keystore(values, file, TRUSTSTORE, TRUSTSTORE_TYPE, TRUSTSTORE_PASSWORD)
        if store is None:
            authorities = values[TRUSTSTORE]
        else:
            _trust(context, store, f"{file}: {TRUSTSTORE} {values[TRUSTSTORE]}")
    if KEYSTORE in values:
        store = _keystore(values, file, KEYSTORE, KEYSTORE_TYPE, KEYSTORE_PASSWORD)
        if store is None:
            certificate = values[KEYSTORE]
        else:
            _identify(context, store, f"{file}: {KEYSTORE} {values[KEYSTORE]}")
    _load_pem(
        context,
        file,
        authorities=authorities,
        certificate=certificate,
        key=values.get(PRIVATE_KEY),
        password=values.get(KEY_PASSWORD, ""),
    )


def _keystore(values: Mapping[str, str], file: str, location: str, kind: str, password: str) -> Keystore | None:
    """Return the keystore that `location` names, None if it is a PEM file; the content decides, as in Java."""
    path = Path(values[location])
    where = f"{file}: {location} {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from None
    if not is_keystore(data) and values.get(kind, "").upper() == "PEM":
        return None
    try:
        return read_keystore(data, values.get(password))
    except KeystoreError as error:
        raise UsageError(f"{where} {error}; see {password} and {kind}") from None


def _trust(context: ssl.SSLContext, store: Keystore, where: str) -> None:
    """Trust the certificates of a truststore, also certificates of intermediate authorities, as Java does."""
    if not store.trusted:
        has_key = "it has a private key, whose certificates are not trusted" if store.key is not None else "it is empty"
        raise UsageError(f"{where} has no trusted certificate: {has_key}; see `keytool -list -v`")
    context.load_verify_locations(cadata=b"".join(store.trusted))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _identify(context: ssl.SSLContext, store: Keystore, where: str) -> None:
    """Load the private key; OpenSSL reads it from a file, which for that moment is encrypted by a random password."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow, and rarely needed

    if store.key is None:
        raise UsageError(f"{where} has no private key; see `keytool -list -v`")
    password = secrets.token_bytes(32).hex()
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    chain = "".join(map(ssl.DER_cert_to_PEM_cert, store.chain)).encode()
    with NamedTemporaryFile(prefix="surveyor-", suffix=".pem") as pem:
        pem.write(key + chain)
        pem.flush()
        try:
            context.load_cert_chain(pem.name, password=password)
        except ssl.SSLError as error:
            raise UsageError(f"{where}: its private key and certificate do not fit ({error.reason})") from None


def _load_pem(
    context: ssl.SSLContext,
    file: str,
    *,
    authorities: str | None,
    certificate: str | None,
    key: str | None,
    password: str,
) -> None:
    """Load PEM files; `password` is never None, because OpenSSL would prompt for it on the terminal."""
    setting = AUTHORITIES
    try:
        if authorities is not None:
            context.load_verify_locations(authorities)
        setting = f"{CERTIFICATE}, {PRIVATE_KEY} or {KEY_PASSWORD}"
        if certificate is not None:
            context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise UsageError(f"{file}: {setting}: not the PEM file it should be ({error.reason})") from None
    except OSError as error:
        raise UsageError(f"{file}: {setting}: {error.strerror}") from None
