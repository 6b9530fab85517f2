"""Reads PKCS12 keystores; the error for another type names it, and the command that converts it."""

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_OTHER_TYPES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""The first bytes of files of other types."""
_SEQUENCE: Final = 0x30

CONVERT: Final = "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"


class KeystoreError(Exception):
    """A file that is not a keystore, is damaged, or has another password; the message begins with a verb."""


@dataclass(frozen=True, slots=True)
class Keystore:
    """Certificates in DER, and a private key or None."""

    trusted: tuple[bytes, ...] = ()
    chain: tuple[bytes, ...] = ()
    """The certificate of the private key first, then its issuers' certificates."""
    key: "PrivateKeyTypes | None" = field(default=None, repr=False)


def is_keystore(data: bytes) -> bool:
    """Return whether a file is a keystore of any type, not PEM."""
    return data[:4] in _OTHER_TYPES or data[:1] == bytes([_SEQUENCE])


def read_keystore(data: bytes, password: str | None) -> Keystore:
    """Read a keystore of type PKCS12; raise KeystoreError for other types, and if it is damaged."""
    if other := _OTHER_TYPES.get(data[:4]):
        raise KeystoreError(f"is of type {other}, which is not supported; convert it: {CONVERT}")
    if data[:1] == bytes([_SEQUENCE]):
        return _read_pkcs12(data, password)
    raise KeystoreError("is not PKCS12")


def _read_pkcs12(data: bytes, password: str | None) -> Keystore:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - slow, and rarely needed
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PKCS#12 bundle could not be parsed as DER")  # BER is read as well
            store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise KeystoreError("does not have this password, or is damaged") from None
    except UnsupportedAlgorithm as error:
        raise KeystoreError(f"is encrypted by an algorithm that is not supported ({error})") from None
    others = [certificate.certificate for certificate in store.additional_certs]
    if store.key is None:
        trusted = others if store.cert is None else [store.cert.certificate, *others]
        return Keystore(trusted=tuple(certificate.public_bytes(Encoding.DER) for certificate in trusted))
    if store.cert is None:
        raise KeystoreError("has a private key without its certificate")
    # only Java's own attribute distinguishes a trusted certificate from one of the chain
    chain = [store.cert.certificate]
    while (
        issuer := next((certificate for certificate in others if certificate.subject == chain[-1].issuer), None)
    ) is not None:
        others.remove(issuer)
        chain.append(issuer)
    return Keystore(chain=tuple(certificate.public_bytes(Encoding.DER) for certificate in chain), key=store.key)
