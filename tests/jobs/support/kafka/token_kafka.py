"""Real brokers that let clients in by OAUTHBEARER, with Kafka's unsecured tokens, and authorize super users only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.servers import EmbeddedKafka
from jobs.core.addresses import LOOPBACK

USER, GUEST = "surveyor", "guest"
"""A super user and a user without permissions."""

REAUTHENTICATION: Final = 1.0
"""Seconds after which a connection to TOKENS must authenticate again."""

_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAAS: Final = f'{_MODULE} required unsecuredLoginStringClaim_sub="broker";'


class TokenKafka(EmbeddedKafka):
    """INSIDE is for brokers and for the tests' own clients; Surveyor uses TOKENS."""

    def properties(self) -> dict[str, str]:
        return {
            **super().properties(),
            "listeners": f"INSIDE://{self.address},TOKENS://{LOOPBACK}:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": JAAS,
            "listener.name.tokens.oauthbearer.connections.max.reauth.ms": f"{1000 * REAUTHENTICATION:.0f}",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:ANONYMOUS;User:broker;User:{USER}",
            # as `surveyor control` needs it
            "inter.broker.protocol.version": "2.6",
            "controlled.shutdown.enable": "false",
        }


@contextmanager
def token_cluster() -> Iterator[EmbeddedCluster]:
    """Two such brokers."""
    running = EmbeddedCluster(0)
    with running:
        for broker_id in (0, 1):
            broker = TokenKafka(running.zookeeper_server.connect, broker_id, running.folder / f"broker-{broker_id}")
            running.brokers[broker_id] = broker
            broker.start()
        for started in running.brokers.values():
            started.wait_ready()
        yield running
