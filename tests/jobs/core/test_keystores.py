"""Keystores that Java's keytool made, read without Java."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
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


def test_a_key_with_a_password_of_its_own(stores: dict[str, Keystores], tmp_path: Path) -> None:
    store = tmp_path / "own.jks"
    store.write_bytes(stores["JKS"].client.read_bytes())
    where = ["-keystore", str(store), "-storetype", "JKS", "-storepass:env", "STORE", "-alias", "own"]
    keytool("-keypasswd", "-keypass:env", "STORE", "-new", "another-secret", *where)

    key = key_bytes(read_keystore(store.read_bytes(), PASSWORD, "another-secret"))

    assert key == key_bytes(read_keystore(stores["JKS"].client.read_bytes(), PASSWORD))
    for wrong in (None, "wrong-one"):
        with pytest.raises(KeystoreError, match="has a private key with another password"):
            read_keystore(store.read_bytes(), PASSWORD, wrong)


def test_certificates_need_no_password(stores: dict[str, Keystores], certificates: Certificates) -> None:
    """In JKS, where it only shows changes; with it every change is noticed."""
    data = stores["JKS"].trust.read_bytes()

    assert read_keystore(data, None).trusted == der(certificates.ca)
    with pytest.raises(KeystoreError, match="needs a password"):
        read_keystore(stores["JKS"].client.read_bytes(), None)


@settings(max_examples=200)
@given(
    at=st.integers(0, 10_000),
    value=st.integers(1, 255),
    kind=st.sampled_from(["JKS", "PKCS12"]),
    name=st.sampled_from(["client", "trust"]),
)
@example(at=6, value=128, kind="PKCS12", name="client")
def test_no_change_is_read(stores: dict[str, Keystores], at: int, value: int, kind: str, name: str) -> None:
    """A change that matters is an error; PKCS12 has some bytes that do not, such as the name of a key."""
    path = stores[kind].client if name == "client" else stores[kind].trust
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= value

    if kind == "JKS":
        with pytest.raises(KeystoreError):
            read_keystore(bytes(data), PASSWORD)
    else:
        same = read_keystore(path.read_bytes(), PASSWORD)
        with suppress(KeystoreError):
            read = read_keystore(bytes(data), PASSWORD)
            assert (read.chain, read.trusted) == (same.chain, same.trusted)


@given(size=st.integers(4, 10_000))
def test_a_file_that_is_cut_off(stores: dict[str, Keystores], size: int) -> None:
    """Without a password, too, it ends in one error, and in no other."""
    data = stores["JKS"].trust.read_bytes()
    for password in (None, PASSWORD):
        with pytest.raises(KeystoreError):
            read_keystore(data[: min(size, len(data) - 21)], password)


def test_other_types(stores: dict[str, Keystores], tmp_path: Path, certificates: Certificates) -> None:
    jceks = tmp_path / "x.jceks"
    source = ["-srckeystore", str(stores["JKS"].client), "-srcstoretype", "JKS", "-srcstorepass:env", "STORE"]
    keytool(
        "-importkeystore",
        *source,
        "-destkeystore",
        str(jceks),
        "-deststoretype",
        "JCEKS",
        "-deststorepass:env",
        "STORE",
    )

    with pytest.raises(KeystoreError, match=r"JCEKS, which is not supported: keytool -importkeystore .*PKCS12"):
        read_keystore(jceks.read_bytes(), PASSWORD)
    with pytest.raises(KeystoreError, match="is neither JKS nor PKCS12"):
        read_keystore(b"BKS", PASSWORD)
    assert not is_keystore(certificates.ca.read_bytes())


def test_two_private_keys(certificates: Certificates, tmp_path: Path) -> None:
    two = Keystores("JKS", tmp_path / "s", tmp_path / "two.jks", tmp_path / "t")
    two.import_key(certificates.client, two.client)
    two.import_key(certificates.server, two.client, alias="other")

    with pytest.raises(KeystoreError, match="has 2 private keys; one is expected"):
        read_keystore(two.client.read_bytes(), PASSWORD)


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
            "is neither JKS nor PKCS12; see ssl.keystore.password",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_what_is_wrong(
    stores: dict[str, Keystores], certificates: Certificates, kind: str, change: Change, reason: str
) -> None:
    values = stores[kind].client_properties | change(stores[kind], certificates)
    with pytest.raises(UsageError) as refused:
        client_context(values, FILE)

    assert str(refused.value).startswith(f"{FILE}: ")
    assert reason in str(refused.value)
    assert "wrong-one" not in str(refused.value)
    assert PASSWORD not in str(refused.value)
