"""How messages name what a cluster's metadata consists of: znodes in ZooKeeper, responses of brokers in KRaft.

Messages that concern both kinds of cluster use these names, so that none points to a znode of a cluster without any.
"""

from dataclasses import dataclass
from typing import Final

from schemas.znode_size import ZNODE_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataNames:
    """The names in one kind of cluster."""

    has_znodes: bool
    """Whether metadata has znodes, which can be malformed and have versions."""
    max_assignment_bytes: int | None
    """Maximum size of a topic's assignment; None without a limit."""
    entry: str
    """Name of an entry in quarantine: znode or response."""
    no_brokers: str
    no_topics: str
    unread_config: str
    """Reason why the config of a topic is unknown."""
    _broker: str
    _topic: str
    _config: str

    def broker(self, broker_id: int | str) -> str:
        """Name a broker's registration.

        >>> IN_ZOOKEEPER.broker(3), IN_KRAFT.broker(3)
        ('/brokers/ids/3', 'broker 3')
        """
        return self._broker.format(broker_id)

    def topic(self, topic: str) -> str:
        """Name a topic's assignment.

        >>> IN_ZOOKEEPER.topic("orders"), IN_KRAFT.topic("orders")
        ('/brokers/topics/orders', 'topic orders')
        """
        return self._topic.format(topic)

    def topic_config(self, topic: str) -> str:
        """Name a topic's config.

        >>> IN_ZOOKEEPER.topic_config("orders"), IN_KRAFT.topic_config("orders")
        ('/config/topics/orders', 'the config of topic orders')
        """
        return self._config.format(topic)


IN_ZOOKEEPER: Final = MetadataNames(
    has_znodes=True,
    max_assignment_bytes=ZNODE_LIMIT,
    entry="znode",
    no_brokers="/brokers/ids is empty",
    no_topics="/brokers/topics is empty",
    unread_config="not understood",
    _broker="/brokers/ids/{}",
    _topic="/brokers/topics/{}",
    _config="/config/topics/{}",
)

IN_KRAFT: Final = MetadataNames(
    has_znodes=False,
    max_assignment_bytes=None,
    entry="response",
    no_brokers="none is live",
    no_topics="the brokers list none",
    unread_config="this client may not read it; `surveyor doctor` names the permission",
    _broker="broker {}",
    _topic="topic {}",
    _config="the config of topic {}",
)
