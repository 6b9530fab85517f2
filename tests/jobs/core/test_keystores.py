"""Keystores that Java's keytool made, read without Java."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.core.errors import UsageError
from jobs.core.keystores import Keystore, KeystoreError, is_keystore, read_keystore
from jobs.core.tls_files import client_context
from tests.jobs.support.outside.keystores import PASSWORD, TYPES, Keystores, certificates_of, keytool
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

FILE: Final = "--command-config f"


@pytest.fixture(scope="module")
def stores(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Keystores]:
    return {kind: Keystores.of(certificates, tmp_path_factory.mktemp(kind.replace(" ", "-")), kind) for kind in TYPES}


def der(pem: Path) -> tuple[bytes, ...]:
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in certificates_of(pem))


def key_bytes(store: Keystore) -> bytes:
    assert store.key is not None
    return store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("kind", TYPES)
def test_content(stores: dict[str, Keystores], certificates: Certificates, kind: str) -> None:
    keys = read_keystore(stores[kind].client.read_bytes(), PASSWORD)
    trust = read_keystore(stores[kind].trust.read_bytes(), PASSWORD)

    own = load_pem_private_key(certificates.client.read_bytes(), None)
    assert key_bytes(keys) == own.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    assert (keys.chain, keys.trusted) == (der(certificates.client), ())
    assert (trust.trusted, trust.chain, trust.key) == (der(certificates.ca), (), None)
    assert PASSWORD not in repr(keys)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("algorithm", ["RSA", "EC"])
def test_keys_that_keytool_generates(tmp_path: Path, kind: str, algorithm: str) -> None:
    store, exported = tmp_path / "store", tmp_path / "cert.der"
    where = [
        "-keystore",
        str(store),
        "-storetype",
        kind.removeprefix("old "),
        "-storepass:env",
        "STORE",
        "-alias",
        "ä b",
    ]
    old = kind.startswith("old")
    keytool("-genkeypair", "-keyalg", algorithm, "-dname", "CN=x", "-keypass:env", "STORE", *where, old=old)
    keytool("-exportcert", "-file", str(exported), *where, old=old)

    read = read_keystore(store.read_bytes(), PASSWORD)

    assert read.chain == (exported.read_bytes(),)
    assert read.key is not None
    assert client_context({"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}, FILE)


@pytest.mark.parametrize("kind", TYPES)
def test_another_password(stores: dict[str, Keystores], kind: str) -> None:
    for path in (stores[kind].client, stores[kind].trust):
        with pytest.raises(KeystoreError, match="does not have this password, or is damaged"):
            read_keystore(path.read_bytes(), "wrong-one")


@settings(max_examples=200)
@given(at=st.integers(0, 10_000), value=st.integers(1, 255), name=st.sampled_from(["client", "trust"]))
@example(at=6, value=128, name="client")
def test_no_change_is_read(stores: dict[str, Keystores], at: int, value: int, name: str) -> None:
    """A change that matters is an error; some bytes do not matter, such as the name of a key."""
    path = stores["PKCS12"].client if name == "client" else stores["PKCS12"].trust
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= value

    same = read_keystore(path.read_bytes(), PASSWORD)
    with suppress(KeystoreError):
        read = read_keystore(bytes(data), PASSWORD)
        assert (read.chain, read.trusted) == (same.chain, same.trusted)


@pytest.mark.parametrize("kind", ["JKS", "JCEKS"])
def test_other_types(stores: dict[str, Keystores], tmp_path: Path, kind: str) -> None:
    """A store of another type is refused with the command that converts it, and the converted file is read."""
    other, converted = tmp_path / "other.store", tmp_path / "converted.p12"
    source = ["-srckeystore", str(stores["PKCS12"].client), "-srcstorepass:env", "STORE", "-deststorepass:env", "STORE"]
    keytool("-importkeystore", *source, "-destkeystore", str(other), "-deststoretype", kind)

    with pytest.raises(KeystoreError, match=f"is of type {kind}, which is not supported") as refused:
        read_keystore(other.read_bytes(), PASSWORD)
    command = str(refused.value).partition("convert it: keytool ")[2]
    advised = command.replace("FILE.p12", str(converted)).replace("FILE", str(other)).split()
    keytool(*advised, "-srcstorepass:env", "STORE", "-deststorepass:env", "STORE")
    read, same = (read_keystore(path.read_bytes(), PASSWORD) for path in (converted, stores["PKCS12"].client))
    assert (key_bytes(read), read.chain) == (key_bytes(same), same.chain)


def test_files_that_are_no_keystore(certificates: Certificates) -> None:
    with pytest.raises(KeystoreError, match="is not PKCS12"):
        read_keystore(b"BKS", PASSWORD)
    assert not is_keystore(certificates.ca.read_bytes())


def test_a_chain_has_no_other_certificates(certificates: Certificates, tmp_path: Path) -> None:
    """PKCS12 does not say which belong to the key: here there are those of another one, and the authority."""
    store = Keystores("PKCS12", tmp_path / "s", tmp_path / "two.p12", tmp_path / "t")
    store.import_key(certificates.client, store.client)
    store.import_key(certificates.server, store.client, alias="other")
    where = ["-keystore", str(store.client), "-storetype", "PKCS12", "-storepass:env", "STORE"]
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), *where)

    assert read_keystore(store.client.read_bytes(), PASSWORD).chain == der(certificates.client) + der(certificates.ca)


def trusting(stores: Keystores) -> dict[str, str]:
    return {key: value for key, value in stores.client_properties.items() if "truststore" in key}


@pytest.mark.parametrize("kind", TYPES)
def test_a_context_trusts_what_the_truststore_has(
    stores: dict[str, Keystores], certificates: Certificates, kind: str
) -> None:
    context = client_context(trusting(stores[kind]), FILE)

    assert context.get_ca_certs(binary_form=True) == list(der(certificates.ca))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_pem_files_named_as_keystores(certificates: Certificates) -> None:
    values = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.client),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.endpoint.identification.algorithm": "",
    }

    context = client_context(values, FILE)

    assert context.get_ca_certs(binary_form=True) == list(der(certificates.ca))
    assert not context.check_hostname


Change = Callable[[Keystores, Certificates], dict[str, str]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda _s, _c: {"ssl.keystore.password": "wrong-one"},
            "does not have this password, or is damaged; see ssl.k",
        ),
        (lambda _s, _c: {"ssl.truststore.password": "wrong-one"}, "is damaged; see ssl.truststore.password"),
        (lambda _s, _c: {"ssl.truststore.location": "/nowhere"}, "ssl.truststore.location /nowhere cannot be read: No"),
        (
            lambda _s, _c: {"ssl.keystore.type": "BCFKS"},
            "ssl.keystore.type is 'BCFKS'; it is one of JKS, PKCS12, PEM; convert it: keytool",
        ),
        (lambda s, _c: {"ssl.keystore.location": str(s.trust)}, "has no private key; see `keytool -list -v`"),
        (lambda s, _c: {"ssl.truststore.location": str(s.client)}, "has no trusted certificate: it has a private key"),
        (lambda _s, c: {"ssl.ca.location": str(c.ca)}, "ssl.truststore.location exclude each other"),
        (lambda _s, c: {"ssl.certificate.location": str(c.client)}, "ssl.keystore.location exclude each other"),
        (
            lambda _s, c: {"ssl.keystore.location": str(c.client)},
            "is not PKCS12; see ssl.keystore.password",
        ),
    ],
)
def test_what_is_wrong(stores: dict[str, Keystores], certificates: Certificates, change: Change, reason: str) -> None:
    values = stores["PKCS12"].client_properties | change(stores["PKCS12"], certificates)
    with pytest.raises(UsageError) as refused:
        client_context(values, FILE)

    assert str(refused.value).startswith(f"{FILE}: ")
    assert reason in str(refused.value)
    assert "wrong-one" not in str(refused.value)
    assert PASSWORD not in str(refused.value)
