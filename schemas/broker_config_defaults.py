"""The settings and API versions of brokers that are stored, with the defaults of Kafka.

Corresponds to `KafkaConfig`. Only the names listed here are requested and stored, so secrets never are.
"""

from collections.abc import Mapping
from typing import Final

from schemas.broker_config_names import (
    AUTHORIZER,
    CONTROL_PLANE_LISTENER,
    CREATE_POLICY,
    PROTOCOL_VERSION,
    REPLICA_SELECTOR,
)
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR

BrokerSettings = dict[str, str | None]
"""Values that a broker returned, by name; names that it did not return are missing."""

Overrides = Mapping[int | None, Mapping[str, str | None]]
"""Dynamic settings by broker id; the key None is `<default>`, which applies to every broker.

A value that cannot be decoded is null.
"""

KAFKA_DEFAULTS: Final[BrokerSettings] = {
    AUTHORIZER: "",
    "auto.leader.rebalance.enable": "true",
    CONTROL_PLANE_LISTENER: None,
    "controlled.shutdown.enable": "true",
    CREATE_POLICY: None,
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "inter.broker.listener.name": None,
    PROTOCOL_VERSION: None,
    "leader.imbalance.check.interval.seconds": "300",
    "leader.imbalance.per.broker.percentage": "10",
    MIN_ISR: str(DEFAULT_MIN_ISR),
    "num.partitions": "1",
    "replica.lag.time.max.ms": "30000",
    REPLICA_SELECTOR: None,
    "security.inter.broker.protocol": "PLAINTEXT",
    "unclean.leader.election.enable": "false",
    "zookeeper.session.timeout.ms": "18000",
}
"""The settings that are stored, with the defaults of Kafka 2.5 to 3.9; null if the default depends on others.

They are assumed only for brokers that do not report them. Kafka 2.4 has other defaults of replica.lag.time.max.ms
(10000) and zookeeper.session.timeout.ms (6000).
"""

APIS: Final = (
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "AlterPartition",
    "CreateTopics",
    "ElectLeaders",
    "AlterPartitionReassignments",
)
"""The requests whose highest version is stored, as `api.<NAME>`."""

VERSION_PREFIX: Final = "api."
"""Prefix of names that are not settings of a broker, but versions that it reports."""


def version_name(api: str) -> str:
    """Return the name of the row with the highest version of a request."""
    return VERSION_PREFIX + api


DEFAULTS: Final[BrokerSettings] = {**KAFKA_DEFAULTS, **{version_name(api): None for api in APIS}}
"""Every name that gets a row, with its assumed value."""

_OF_ZOOKEEPER: Final = frozenset(
    {
        AUTHORIZER,
        CONTROL_PLANE_LISTENER,
        CREATE_POLICY,
        PROTOCOL_VERSION,
        "leader.imbalance.per.broker.percentage",  # a quorum's leader ignores it, and Kafka 4 does not have it
        "zookeeper.session.timeout.ms",
        *map(version_name, ("LeaderAndIsr", "StopReplica", "UpdateMetadata")),
    }
)

KRAFT_DEFAULTS: Final[BrokerSettings] = {name: value for name, value in DEFAULTS.items() if name not in _OF_ZOOKEEPER}
"""The names that get a row in a KRaft cluster, with their assumed values."""


def stored_settings(config: Mapping[str, str | None]) -> BrokerSettings:
    """Return only the settings that are stored."""
    return {name: value for name, value in config.items() if name in KAFKA_DEFAULTS}
