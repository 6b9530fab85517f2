"""Real brokers and a real ZooKeeper that let clients in by Kerberos, and authorize super users only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka, EmbeddedZooKeeper
from jobs.core.addresses import LOOPBACK
from tests.jobs.support.jaas import with_jaas
from tests.jobs.support.kerberos.kdc import BROKER, USER, ZOOKEEPER, Kdc

REAUTHENTICATION: Final = 1.0
"""Seconds after which a connection to TICKETS must authenticate again."""


class KerberizedZooKeeper(EmbeddedZooKeeper):
    """It accepts all clients, and those with a ticket as their principal; znodes of brokers are writable by them."""

    kdc: Kdc

    def config(self) -> str:
        return super().config() + (
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "kerberos.removeHostFromPrincipal=true\n"
            "kerberos.removeRealmFromPrincipal=true\n"
        )

    def command(self) -> list[str]:
        java, *rest = with_jaas(super().command(), self.folder, self.kdc.jaas(ZOOKEEPER, "Server"))
        return [java, f"-Djava.security.krb5.conf={self.kdc.krb5_conf()}", *rest]


class KerberizedKafka(EmbeddedKafka):
    """INSIDE is for brokers and for the tests' own clients; Surveyor uses TICKETS. In ZooKeeper it is `kafka`."""

    kdc: Kdc

    def properties(self) -> dict[str, str]:
        return {
            **super().properties(),
            "listeners": f"INSIDE://{self.address},TICKETS://localhost:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,TICKETS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.tickets.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.tickets.gssapi.sasl.jaas.config": self.kdc.login_module(BROKER),
            "listener.name.tickets.gssapi.connections.max.reauth.ms": f"{1000 * REAUTHENTICATION:.0f}",
            "sasl.kerberos.service.name": "kafka",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "zookeeper.set.acl": "true",
            # as `surveyor control` needs it
            "inter.broker.protocol.version": "2.6",
            "controlled.shutdown.enable": "false",
        }

    def command(self) -> list[str]:
        java, *rest = with_jaas(super().command(), self.folder, self.kdc.jaas(BROKER, "Client"))
        krb5 = f"-Djava.security.krb5.conf={self.kdc.krb5_conf()}"
        return [java, krb5, f"-Dzookeeper.server.principal={ZOOKEEPER}", *rest]


@contextmanager
def kerberized_cluster() -> Iterator[tuple[EmbeddedCluster, Kdc]]:
    """Two such brokers, their ZooKeeper and KDC; the address of TICKETS is registered as localhost."""
    running = EmbeddedCluster(0)
    assert LOOPBACK in running.zookeeper_server.connect
    with Kdc(running.folder / "kdc") as kdc:
        running.zookeeper_server = zookeeper = KerberizedZooKeeper(running.folder / "zookeeper")
        zookeeper.kdc = kdc
        with running:
            for broker_id in (0, 1):
                broker = KerberizedKafka(
                    running.zookeeper_server.connect, broker_id, running.folder / f"broker-{broker_id}"
                )
                broker.kdc = kdc
                running.brokers[broker_id] = broker
                broker.start()
            for started in running.brokers.values():
                started.wait_ready()
            yield running, kdc
