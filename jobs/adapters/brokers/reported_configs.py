"""Broker settings and API versions, which ZooKeeper does not store; they are requested from each broker.

Corresponds to `KafkaConfig`, `DynamicBrokerConfig` and ApiVersions. Only the names listed here are requested and
stored, so secrets never are. A broker that does not answer gets Kafka's defaults, marked as assumed.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final

from kafka.admin import ConfigResourceType
from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import ApiVersionsRequest
from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import NO_ERROR, read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.zookeeper.connection import children
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.core.errors import UnreadableError
from schemas.broker_config_names import (
    AUTHORIZER,
    CONTROL_PLANE_LISTENER,
    CREATE_POLICY,
    DEFAULT_ENTITY,
    PROTOCOL_VERSION,
    REPLICA_SELECTOR,
)
from schemas.kafka_decode_failures import impact_of
from schemas.rows import Broker, BrokerConfig, QuarantinedZnode
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR, parsed
from schemas.znode_codecs import MalformedZnodeError, read_config

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
    ApiKey.LeaderAndIsr,
    ApiKey.StopReplica,
    ApiKey.UpdateMetadata,
    ApiKey.AlterPartition,
    ApiKey.CreateTopics,
    ApiKey.ElectLeaders,
    ApiKey.AlterPartitionReassignments,
)
"""The requests whose highest version is stored, as `api.<NAME>`."""

DYNAMIC_CONFIGS: Final = "/config/brokers"

BROKER_TIMEOUT_SECONDS: Final = 2.0
"""Seconds that one broker may take to return its configs; a healthy broker takes a hundredth of it.

Up to MAX_CONNECTIONS brokers of `fanout` are asked at the same time, so this also bounds the whole."""

_VERSION_PREFIX: Final = "api."
"""Prefix of names that are not settings of a broker, but versions that it reports."""

DEFAULTS: Final[BrokerSettings] = {**KAFKA_DEFAULTS, **{f"api.{api.name}": None for api in APIS}}
"""Every name that gets a row, with its assumed value."""

_OF_ZOOKEEPER: Final = frozenset(
    {
        AUTHORIZER,
        CONTROL_PLANE_LISTENER,
        CREATE_POLICY,
        PROTOCOL_VERSION,
        "leader.imbalance.per.broker.percentage",  # a quorum's leader ignores it, and Kafka 4 does not have it
        "zookeeper.session.timeout.ms",
        *(f"api.{api.name}" for api in (ApiKey.LeaderAndIsr, ApiKey.StopReplica, ApiKey.UpdateMetadata)),
    }
)

KRAFT_DEFAULTS: Final[BrokerSettings] = {name: value for name, value in DEFAULTS.items() if name not in _OF_ZOOKEEPER}
"""The names that get a row in a KRaft cluster, with their assumed values."""


def read_broker_configs(
    brokers: Sequence[Broker],
    command_config: Path | None,
    overrides: Overrides,
    timeout_seconds: float,
    broker_timeout: float = BROKER_TIMEOUT_SECONDS,
    *,
    defaults: Mapping[str, str | None] = DEFAULTS,
) -> tuple[list[BrokerConfig], dict[int, str]]:
    """Request settings and versions from every broker in parallel.

    `brokers` are rows of BROKERS. Return rows of BROKER_CONFIGS without snapshot id, one per broker and name, in order,
    and the reasons why brokers did not answer, by broker id. `timeout_seconds` bounds the whole and `broker_timeout`
    one broker. `defaults` has the names that get a row. For a name that a broker does not return, the value is its
    dynamic override, else the default, marked as assumed. Raise UsageError for an invalid client.properties; a failing
    broker raises nothing.
    """
    names = {name: None for name in (*KAFKA_DEFAULTS, *defaults) if not name.startswith(_VERSION_PREFIX)}
    responses, failures = ask_brokers(
        brokers,
        read_properties(command_config),
        timeout_seconds,
        partial(_ask, [*names]),
        broker_timeout=broker_timeout,
    )
    ids = sorted({broker.broker_id for broker in brokers})
    rows = [row for broker_id in ids for row in _rows(broker_id, responses.get(broker_id, {}), overrides, defaults)]
    return rows, failures


def configured_brokers(client: KazooClient) -> list[str] | None:
    """Return the names in /config/brokers, None if its ACL does not let this client list them.

    In a cluster with zookeeper.set.acl=true only brokers can (`ZkData.sensitivePath`): configs may contain passwords.
    """
    try:
        return children(client, DYNAMIC_CONFIGS) or []
    except UnreadableError:
        return None


def read_overrides(client: KazooClient) -> tuple[dict[int | None, BrokerSettings], list[QuarantinedZnode]]:
    """Read the brokers' dynamic settings from ZooKeeper; return the stored ones and the znodes not understood.

    A client that may not list them gets none; settings that the brokers do not report are then assumed.
    The data of a quarantined znode is left out, because it may contain passwords.
    """
    overrides: dict[int | None, BrokerSettings] = {}
    quarantine: list[QuarantinedZnode] = []
    for znode in read_permitted(client, [f"{DYNAMIC_CONFIGS}/{name}" for name in configured_brokers(client) or ()]):
        if znode.stat is None:
            continue
        impact = impact_of(znode.path, znode.data)
        unread_znode = partial(QuarantinedZnode, path=znode.path, blocks=impact and impact.value)
        try:
            entity = _config_entity(znode.path)
        except MalformedZnodeError as error:
            mend = f"delete {quote(znode.path)}" if impact else None  # no broker reads it
            quarantine.append(unread_znode(reason=str(error), mend=mend))
            continue
        config, unread = read_config(znode.data)
        if config is not None:  # Kafka treats a znode without a config as an empty one
            overrides[entity] = _retained(config)
        if unread:
            quarantine.append(unread_znode(reason="; ".join(unread)))
    return overrides, quarantine


def _config_entity(path: str) -> int | None:
    name = path.rsplit("/", 1)[1]
    if name != DEFAULT_ENTITY and not (name.isascii() and name.isdecimal()):
        raise MalformedZnodeError(f"{name!r} is neither a broker id nor {DEFAULT_ENTITY}")
    return None if name == DEFAULT_ENTITY else int(name)


def _retained(config: Mapping[str, str | None]) -> BrokerSettings:
    return {name: value for name, value in config.items() if name in KAFKA_DEFAULTS}


def _rows(
    broker_id: int, settings: BrokerSettings, overrides: Overrides, defaults: Mapping[str, str | None]
) -> Iterator[BrokerConfig]:
    overridden = {**_retained(overrides.get(None, {})), **_retained(overrides.get(broker_id, {}))}
    read = {name: value for name, value in overridden.items() if value is not None}
    values = {name: None if value is None else parsed(value) for name, value in {**read, **settings}.items()}
    for name, default in defaults.items():
        assumed = name not in values
        yield BrokerConfig(broker_id=broker_id, name=name, value=values.get(name, default), assumed=assumed)


def _ask(names: Sequence[str], ask: Ask, broker: Broker) -> BrokerSettings:
    """Ask one broker for its versions, and for its settings, which it may refuse."""
    settings = _versions(ask(ApiVersionsRequest(max_version=2)))
    # any error costs only this broker's settings
    with suppress(Exception):
        settings |= _settings(_described(ask, broker, names), names)
    return settings


def _described(ask: Ask, broker: Broker, names: Iterable[str]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    resources = [(ConfigResourceType.BROKER, str(broker.broker_id), [*names])]
    return ask(DescribeConfigsRequest(resources=resources))


def _versions(response: Any) -> BrokerSettings:  # noqa: ANN401 - kafka-python is untyped
    highest = {api.api_key: str(api.max_version) for api in response.api_keys}
    return {f"api.{api.name}": highest.get(api.value) for api in APIS}


def _settings(response: Any, names: Container[str]) -> BrokerSettings:  # noqa: ANN401
    """Return the requested settings; raise the broker's error if it refuses them or has another id."""
    (result,) = response.results
    if result.error_code != NO_ERROR:
        raise for_code(result.error_code)
    return {config.name: config.value for config in result.configs if config.name in names}
