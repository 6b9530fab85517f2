"""Java's keystores: JKS, by OpenJDK's `JavaKeyStore` and `KeyProtector`, and PKCS12, by cryptography.

A JKS file is a list of private keys with their certificates, and of trusted certificates. SHA-1 of the password and the
content protects the file against changes, and SHA-1 of the password and a salt makes the stream that encrypts a key.
"""

import hashlib
import hmac
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_SEQUENCE: Final = 0x30
_OCTETS: Final = 0x04
_WHITENING: Final = b"Mighty Aphrodite"
_PRIVATE_KEY: Final = 1
_TRUSTED: Final = 2
"""Kinds of entries."""
_DIGEST_BYTES: Final = 20
_KEY_ALGORITHM: Final = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier of Sun's key protector, 1.3.6.1.4.1.42.2.17.1.1."""

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
    return data[:4] in {_JKS, _JCEKS} or data[:1] == bytes([_SEQUENCE])


def read_keystore(data: bytes, password: str | None, key_password: str | None = None) -> Keystore:
    """Read a keystore, of the type that its content has, as Java does; raise KeystoreError.

    `password` may be None for certificates that are not encrypted; then changes of a file are not noticed.
    `key_password` is the password of the key in JKS, if it differs. JKS with more than one private key is refused.
    """
    if data[:4] == _JKS:
        return _read_jks(data, password, key_password)
    if data[:4] == _JCEKS:
        raise KeystoreError(f"is of type JCEKS, which is not supported: {CONVERT}")
    if data[:1] == bytes([_SEQUENCE]):
        return _read_pkcs12(data, password)
    raise KeystoreError("is neither JKS nor PKCS12")


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


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> Keystore:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        content = password.encode("utf-16-be") + _WHITENING + body
        if not hmac.compare_digest(digest, hashlib.sha1(content).digest()):  # noqa: S324 - as Java defines it
            raise KeystoreError("does not have this password, or is damaged")
    try:
        entries = list(_entries(body))
    except struct.error:
        raise KeystoreError("is damaged") from None
    keys = [entry for entry in entries if entry.protected_key is not None]
    trusted = tuple(certificate for entry in entries if entry.protected_key is None for certificate in entry.chain)
    if not keys:
        return Keystore(trusted=trusted)
    if len(keys) > 1:
        raise KeystoreError(f"has {len(keys)} private keys; one is expected")
    secret = password if key_password is None else key_password
    if secret is None:
        raise KeystoreError("has a private key, which needs a password")
    [entry] = keys
    return Keystore(trusted, entry.chain, _unprotected(entry.protected_key or b"", secret))


@dataclass(frozen=True, slots=True)
class _Entry:
    chain: tuple[bytes, ...]
    protected_key: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Reader:
    """Reads Java's DataOutputStream; raises struct.error at the end of the data."""

    data: bytes
    at: int = 0

    def number(self, form: str = ">I") -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def part(self, size: int) -> bytes:
        (value,) = struct.unpack_from(f"{size}s", self.data, self.at)
        self.at += size
        return bytes(value)


def _entries(body: bytes) -> Iterator[_Entry]:
    reader = _Reader(body, len(_JKS))
    version = reader.number()

    def certificate() -> bytes:
        if version > 1:
            reader.part(reader.number(">H"))  # the type, X.509
        return reader.part(reader.number())

    for _ in range(reader.number()):
        kind = reader.number()
        reader.part(reader.number(">H"))  # the alias
        reader.number(">Q")  # the date
        if kind == _PRIVATE_KEY:
            key = reader.part(reader.number())
            yield _Entry(tuple(certificate() for _ in range(reader.number())), key)
        elif kind == _TRUSTED:
            yield _Entry((certificate(),))
        else:
            raise KeystoreError("is damaged")


def _unprotected(protected: bytes, password: str) -> "PrivateKeyTypes":
    """Decrypt a key: a salt, the key combined with a stream of digests, and a digest of the password and the key."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key  # noqa: PLC0415 - as above

    algorithm, octets = _fields(_content(protected, _SEQUENCE))
    if _KEY_ALGORITHM not in algorithm:
        raise KeystoreError("has a private key that is not encrypted as in JKS")
    data, secret = _content(octets, _OCTETS), password.encode("utf-16-be")
    salt, encrypted, check = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream, digest = b"", salt
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - as Java defines it
        stream += digest
    plain = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(check, hashlib.sha1(secret + plain).digest()):  # noqa: S324
        raise KeystoreError("has a private key with another password")
    return load_der_private_key(plain, None)


def _content(data: bytes, tag: int) -> bytes:
    """Return the content of a DER value that fills `data`."""
    start, end = _extent(data)
    if data[0] != tag or end != len(data):
        raise KeystoreError("is damaged")
    return data[start:end]


def _fields(content: bytes) -> tuple[bytes, bytes]:
    """Return the two values of a DER sequence."""
    _, end = _extent(content)
    return content[:end], content[end:]


def _extent(data: bytes) -> tuple[int, int]:
    """Return where the content of the first DER value begins and ends."""
    if len(data) < 2:  # noqa: PLR2004 - a tag and a length
        raise KeystoreError("is damaged")
    length, start = data[1], 2
    if length >> 7:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    return start, start + length
