"""Keystores and truststores as Java's keytool makes them, of the certificates that the tests have in PEM files."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from jobs.adapters.java.home import java_home
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

TYPES: Final = ("PKCS12", "old PKCS12")
"""The last one has the algorithms that Java used before 12: RC2 and triple DES, with SHA-1."""
PASSWORD: Final = "store-secret"  # noqa: S105 - not a real password


def keytool(*arguments: str, old: bool = False) -> None:
    """Run keytool with PASSWORD for every store, which is not among the arguments, as operators are advised."""
    legacy = ["-J-Dkeystore.pkcs12.legacy"] if old else []
    command = [str(java_home() / "bin" / "keytool"), *legacy, "-J-XX:TieredStopAtLevel=1", *arguments]
    done = subprocess.run(command, env={**os.environ, "STORE": PASSWORD}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Keystores:
    """The files of one type: private keys of the server and of a client, and the authority that both trust."""

    kind: str
    server: Path
    client: Path
    trust: Path

    @classmethod
    def of(cls, certificates: Certificates, folder: Path, kind: str) -> "Keystores":
        stores = cls(kind, *(folder / f"{name}.store" for name in ("server", "client", "trust")))
        where = ["-storetype", stores.type, "-keystore", str(stores.trust), "-storepass:env", "STORE"]
        keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), *where, old=stores.is_old)
        for pem, store in ((certificates.server, stores.server), (certificates.client, stores.client)):
            stores.import_key(pem, store)
        return stores

    @property
    def type(self) -> str:
        return self.kind.removeprefix("old ")

    @property
    def is_old(self) -> bool:
        return self.kind.startswith("old")

    def import_key(self, pem: Path, store: Path, alias: str = "own") -> None:
        """Add the private key of a PEM file, with its certificates."""
        key, chain = serialization.load_pem_private_key(pem.read_bytes(), None), certificates_of(pem)
        source = store.with_suffix(f".{alias}.source.p12")
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        source.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, chain[0], chain[1:], encryption))  # type: ignore[arg-type]
        from_source = ["-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass:env", "STORE"]
        to_store = ["-destkeystore", str(store), "-deststoretype", self.type, "-deststorepass:env", "STORE"]
        aliases = ["-srcalias", "own", "-destalias", alias]
        keytool("-importkeystore", "-noprompt", *from_source, *to_store, *aliases, old=self.is_old)

    @property
    def client_properties(self) -> dict[str, str]:
        """As in the client.properties of Kafka's tools."""
        return self.properties(self.client)

    def properties(self, keys: Path) -> dict[str, str]:
        return {
            "ssl.keystore.type": self.type,
            "ssl.keystore.location": str(keys),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": self.type,
            "ssl.truststore.location": str(self.trust),
            "ssl.truststore.password": PASSWORD,
        }


def certificates_of(pem: Path) -> list[x509.Certificate]:
    """The certificates of a PEM file, which may begin with a key."""
    data = pem.read_bytes()
    return x509.load_pem_x509_certificates(data[data.index(b"-----BEGIN CERTIFICATE") :])
