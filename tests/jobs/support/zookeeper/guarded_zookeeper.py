"""A ZooKeeper server that knows users, by SASL and by digest, and speaks TLS to clients with a certificate."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.jaas import with_jaas

USER, PASSWORD = "kafka", "kafka-secret"

_JAAS = f"""\
Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}";
}};
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files of one authority: of the server, and of a client."""

    ca: Path
    server: Path
    client: Path

    @classmethod
    def made_in(cls, folder: Path) -> "Certificates":
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        certificates = cls(*(folder / f"{name}.pem" for name in ("ca", "server", "client")))
        authority.cert_pem.write_to_path(certificates.ca)
        for path in (certificates.server, certificates.client):
            issued = authority.issue_cert(LOOPBACK)
            chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
            path.touch(0o600)
            path.write_bytes(_as_pkcs8(issued.private_key_pem.bytes()) + chain)
        return certificates


def _as_pkcs8(key: bytes) -> bytes:
    """The only form in which Java reads a key."""
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return serialization.load_pem_private_key(key, None).private_bytes(pem, pkcs8, serialization.NoEncryption())


class GuardedZooKeeper(EmbeddedZooKeeper):
    """`connect` in plain text, `secure` by TLS, where a client needs a certificate."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.certificates = Certificates.made_in(folder / "certificates")
        self.secure_port = free_port()

    @property
    def secure(self) -> str:
        return f"{LOOPBACK}:{self.secure_port}"

    def config(self) -> str:
        return super().config() + (
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"secureClientPort={self.secure_port}\n"
            f"secureClientPortAddress={LOOPBACK}\n"
            f"ssl.keyStore.location={self.certificates.server}\n"
            "ssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.certificates.ca}\n"
            "ssl.trustStore.type=PEM\n"
        )

    def command(self) -> list[str]:
        return with_jaas(super().command(), self.folder, _JAAS)
