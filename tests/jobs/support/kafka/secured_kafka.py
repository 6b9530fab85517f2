"""Real brokers with authentication, on a listener of each kind, and authorization for super users only.

Znodes that they write can be written by their ZooKeeper user only (zookeeper.set.acl); most can be read by all users.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.jaas import with_jaas
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.guarded_zookeeper import PASSWORD as OF_ZOOKEEPER
from tests.jobs.support.zookeeper.guarded_zookeeper import USER as IN_ZOOKEEPER
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates, GuardedZooKeeper

USER, GUEST, PASSWORD = "surveyor", "guest", "tr0ub4dor&3"
"""A super user and a user without permissions, with the same password."""

REAUTHENTICATION: Final = 1.0
"""Seconds after which a connection to USERS is closed."""

_LOGIN: Final = "org.apache.kafka.common.security"
_USERS: Final = " ".join(f'user_{name}="{PASSWORD}"' for name in ("broker", USER, GUEST))
_PLAIN: Final = f'{_LOGIN}.plain.PlainLoginModule required username="broker" password="{PASSWORD}" {_USERS};'
_SCRAM: Final = f"{_LOGIN}.scram.ScramLoginModule required;"

_JAAS: Final = f"""\
Client {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="{IN_ZOOKEEPER}" password="{OF_ZOOKEEPER}";
}};
"""
ZOOKEEPER_CONFIG: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "DIGEST-MD5",
    "sasl.username": IN_ZOOKEEPER,
    "sasl.password": OF_ZOOKEEPER,
}
"""With it Surveyor is the brokers' user in ZooKeeper."""

_KNOWN: Final = f"Processing override for entityPath: users/{USER} "
"""What a broker logs once it knows a password of SCRAM."""

_PROTOCOLS: Final = {"INSIDE": "PLAINTEXT", "CONTROL": "SASL_SSL", "USERS": "SASL_SSL", "MUTUAL": "SSL"}


class SecuredKafka(EmbeddedKafka):
    """INSIDE is for brokers and clients; CONTROL, the control-plane listener, USERS and MUTUAL are tested."""

    certificates: Certificates

    def properties(self) -> dict[str, str]:
        others = [f"{name}://{LOOPBACK}:0" for name in _PROTOCOLS if name != "INSIDE"]
        return {
            **super().properties(),
            "listeners": ",".join([f"INSIDE://{self.address}", *others]),
            "listener.security.protocol.map": ",".join(map(":".join, _PROTOCOLS.items())),
            "inter.broker.listener.name": "INSIDE",
            "control.plane.listener.name": "CONTROL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.control.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.control.plain.sasl.jaas.config": _PLAIN,
            "listener.name.control.scram-sha-512.sasl.jaas.config": _SCRAM,
            "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.users.scram-sha-256.sasl.jaas.config": _SCRAM,
            "listener.name.users.scram-sha-256.connections.max.reauth.ms": f"{1000 * REAUTHENTICATION:.0f}",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": f"RULE:^.*$/{USER}/",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "offsets.topic.replication.factor": "2",  # there are two brokers
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:ANONYMOUS;User:broker;User:{USER}",
            "zookeeper.set.acl": "true",
            # as `surveyor control` needs it
            "inter.broker.protocol.version": "2.6",
            "controlled.shutdown.enable": "false",
        }

    def command(self) -> list[str]:
        return with_jaas(super().command(), self.folder, _JAAS)


def _know_user(bootstrap: str) -> bool:
    """Set the password; only the controller does it, and any broker may be asked."""
    both = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        upsertions = [UserScramCredentialUpsertion(USER, mechanism, PASSWORD) for mechanism in both]
        admin.alter_user_scram_credentials(upsertions)
        return len(admin.describe_user_scram_credentials([USER])[USER]["credential_infos"]) == len(both)


@contextmanager
def secured_cluster() -> Iterator[tuple[EmbeddedCluster, Certificates]]:
    """Two such brokers that know USER."""
    running = EmbeddedCluster(0)
    running.zookeeper_server = GuardedZooKeeper(running.folder / "zookeeper")
    with running:
        certificates = Certificates.made_in(running.folder / "certificates")
        for broker_id in (0, 1):
            secured = SecuredKafka(running.zookeeper_server.connect, broker_id, running.folder / f"broker-{broker_id}")
            secured.certificates = certificates
            running.brokers[broker_id] = secured
            secured.start()
        for broker in running.brokers.values():
            broker.wait_ready()
        assert eventually(lambda: _know_user(running.bootstrap))
        assert eventually(lambda: all(_KNOWN in broker.log_of_this_run() for broker in running.brokers.values()))
        yield running, certificates


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """A client.properties that only its owner can read."""
    path.touch(0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return path
