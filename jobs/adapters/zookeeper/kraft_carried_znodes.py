"""Znodes that a migration to KRaft carries over in addition to topics, and znodes that it leaves behind.

Corresponds to `ZkMigrationClient.readAllMetadata` of Kafka 3.9: `ZkAclMigrationClient.iterateAcls`,
`ZkConfigMigrationClient.iterateClientQuotas` and `iterateBrokerConfigs`, `migrateDelegationTokens`. Names, counts and
rows for digests are kept, never a credential, a token or the value of another config than a quota.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import msgspec
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster_state import (
    BROKER_IDS,
    CLUSTER_ID,
    CONFIGS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    MIGRATION,
    PRODUCER_IDS,
)
from jobs.adapters.zookeeper.multi_read import children_of, read_permitted
from jobs.adapters.zookeeper.scram_users import USERS, decode_credential
from jobs.adapters.zookeeper.znode_reads import Znode, children
from jobs.core.errors import UnreadableError
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.security_digests import SecurityReading, acl_row, credential_row, quota_row
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE
from schemas.znode_codecs import FORBIDDEN, FORBIDDEN_REASON, MalformedZnodeError, decode_config

CLIENTS: Final = "/config/clients"
IPS: Final = "/config/ips"
BROKER_CONFIGS: Final = "/config/brokers"
TOKENS: Final = "/delegation_token/tokens"
CONSUMERS: Final = "/consumers"
_PATTERNS: Final = {"/kafka-acl": "LITERAL", "/kafka-acl-extended/prefixed": "PREFIXED"}
ACLS: Final = tuple(_PATTERNS)
"""Folders of literal and of prefixed ACLs (`ZkAclStore`), each with a folder for each resource type."""

RESOURCE_TYPES: Final = frozenset({"Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"})
"""Folders of ACLs that Kafka reads; it logs a warning for another one and ignores it (`AclAuthorizer.loadAllAcls`)."""

SCRAM: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})

_PASSWORDS: Final = (
    "sasl.jaas.config",
    *(f"ssl.{name}" for name in ("key.password", "keystore.certificate.chain", "keystore.key")),
    *(f"ssl.{name}" for name in ("keystore.password", "truststore.certificates", "truststore.password")),
)
"""Ends of the names of dynamic broker configs that are stored encoded (`DynamicBrokerConfig.isPasswordConfig`)."""

_OF_KAFKA: Final = {
    path.split("/")[1]
    for path in (
        *(BROKER_IDS, CLUSTER_ID, CONFIGS, CONTROLLER, CONTROLLER_EPOCH, DELETE_TOPICS, FEATURE, ISR_CHANGES),
        *(LOG_DIR_EVENTS, MIGRATION, PRODUCER_IDS, TOKENS, CONSUMERS, *ACLS),
        *("/kafka-acl-changes", "/kafka-acl-extended-changes", "/zookeeper", "/surveyor"),
    )
}
"""First names of all paths that Kafka, ZooKeeper itself or Surveyor writes (`ZkData.SecureRootPaths`)."""


class _Entry(msgspec.Struct):
    principal: str
    permissionType: str  # noqa: N815 - Kafka's names
    operation: str
    host: str


class _Acls(msgspec.Struct):
    """The content of an ACL's znode (`AclEntry.fromBytes`)."""

    version: int
    acls: list[_Entry]


@dataclass(slots=True)
class CarriedZnodes:
    """Counts of the metadata that is carried over, and paths of the rest."""

    acl_resources: int = 0
    """Resource patterns with ACLs."""
    acls: int = 0
    scram_credentials: int = 0
    """One for each user and mechanism."""
    quotas: int = 0
    """One for each entity and quota, such as the `producer_byte_rate` of a user's client."""
    delegation_tokens: int = 0
    acl_rows: list[str] = field(default_factory=list)
    quota_rows: list[str] = field(default_factory=list)
    credential_rows: list[str] = field(default_factory=list)
    """Rows of `schemas.security_digests`."""
    broker_configs: list[str] = field(default_factory=list)
    """Brokers with dynamic configs, by the name of their znode."""
    password_configs: dict[str, list[str]] = field(default_factory=dict)
    """Names of configs that are stored encoded, by broker."""
    throttled_brokers: list[str] = field(default_factory=list)
    """Brokers with a rate of a replication throttle, by the name of their znode."""
    malformed: dict[str, str] = field(default_factory=dict)
    """Reasons why a znode cannot be decoded, by path: `AclEntry.fromBytes` and the like lose it, or raise."""
    unread: dict[str, str] = field(default_factory=dict)
    """Reasons why a znode, or what is under it, is unknown, by path."""
    ignored_acls: list[str] = field(default_factory=list)
    """Folders of ACLs with a resource type that Kafka does not know."""
    orphaned_configs: list[str] = field(default_factory=list)
    """Topics that have a config and do not exist."""
    consumers: int = 0
    """Consumer groups that commit their offsets to ZooKeeper, as the consumers of Kafka 0.8 do."""
    foreign: list[str] = field(default_factory=list)
    """Znodes of other programs next to Kafka's."""
    has_empty_migration: bool = False
    """Whether /migration is empty, as `ZkSecurityMigrator` creates it; `MigrationZNode.decode` before 3.9 raises."""


def read_carried(client: KazooClient, topics: Sequence[str]) -> CarriedZnodes:
    """Read everything but `/brokers`; `topics` are the names of the topics that exist."""
    carried = CarriedZnodes()
    _read_acls(client, carried)
    _read_broker_configs(client, carried)
    _read_users_and_quotas(client, carried)
    carried.delegation_tokens = len(_names(client, TOKENS, carried))
    carried.consumers = len(_names(client, CONSUMERS, carried))
    carried.orphaned_configs = sorted({*_names(client, CONFIGS, carried)}.difference(topics))
    (migration,) = read_permitted(client, [MIGRATION])
    carried.has_empty_migration = migration.stat is not None and not migration.data
    carried.foreign = [f"/{name}" for name in _names(client, "/", carried) if name not in _OF_KAFKA]
    return carried


def read_security(client: KazooClient) -> SecurityReading:
    """Read ACLs, quotas and SCRAM credentials; what depends on a znode that cannot be read is None."""
    acls, users = CarriedZnodes(), CarriedZnodes()
    _read_acls(client, acls)
    _read_users_and_quotas(client, users)
    has_users = not (users.unread or users.malformed)
    return SecurityReading(
        acls=None if acls.unread or acls.malformed else acls.acl_rows,
        quotas=users.quota_rows if has_users else None,
        credentials=users.credential_rows if has_users else None,
    )


def _names(client: KazooClient, path: str, carried: CarriedZnodes) -> list[str]:
    try:
        return children(client, path) or []
    except UnreadableError:
        carried.unread[path] = FORBIDDEN_REASON
        return []


def _names_in(client: KazooClient, paths: Sequence[str], carried: CarriedZnodes) -> list[list[str]]:
    """Return the names under each path, read at once; one by one only if an ACL hides some, to know which."""
    try:
        return [sorted(names) for names in children_of(client, paths)]
    except UnreadableError:
        return [_names(client, path, carried) for path in paths]


def _existing(client: KazooClient, paths: Sequence[str], carried: CarriedZnodes) -> Iterator[Znode]:
    for znode in read_permitted(client, paths):
        if znode.data is FORBIDDEN:
            carried.unread[znode.path] = FORBIDDEN_REASON
        elif znode.stat is not None:
            yield znode


def _read_acls(client: KazooClient, carried: CarriedZnodes) -> None:
    for store in ACLS:
        for resource_type in _names(client, store, carried):
            folder = f"{store}/{resource_type}"
            names = _names(client, folder, carried)
            if resource_type not in RESOURCE_TYPES:
                carried.ignored_acls += [folder] * bool(names)
                continue
            for znode in _existing(client, [f"{folder}/{name}" for name in names], carried):
                if not znode.data:
                    continue  # no ACLs, as in `AclEntry.fromBytes`
                try:
                    acls = msgspec.json.decode(znode.data, type=_Acls).acls
                except msgspec.MsgspecError as error:
                    carried.malformed[znode.path] = str(error)
                else:
                    carried.acls += len(acls)
                    carried.acl_resources += 1
                    pattern = resource_type, _PATTERNS[store], znode.path.removeprefix(f"{folder}/")
                    carried.acl_rows += [
                        acl_row(*pattern, acl.principal, acl.host, acl.operation, acl.permissionType) for acl in acls
                    ]


def _configs(
    client: KazooClient, folders: Sequence[str], carried: CarriedZnodes
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the configs in folders by path; malformed ones are recorded."""
    names_by_folder = zip(folders, _names_in(client, folders, carried), strict=True)
    for znode in _existing(
        client, [f"{folder}/{name}" for folder, names in names_by_folder for name in names], carried
    ):
        try:
            config = decode_config(znode.data)
        except MalformedZnodeError as error:
            carried.malformed[znode.path] = str(error)
        else:
            yield znode.path, config


def _read_broker_configs(client: KazooClient, carried: CarriedZnodes) -> None:
    for path, config in _configs(client, [BROKER_CONFIGS], carried):
        broker = path.rpartition("/")[2]
        if config:
            carried.broker_configs.append(broker)
        if passwords := sorted(name for name in config if name.endswith(_PASSWORDS)):
            carried.password_configs[broker] = passwords
        if not {LEADER_RATE, FOLLOWER_RATE}.isdisjoint(config):
            carried.throttled_brokers.append(broker)


def _read_users_and_quotas(client: KazooClient, carried: CarriedZnodes) -> None:
    for path, config in _configs(client, [USERS], carried):
        _count_user(path, config, carried)
    of_users = [f"{USERS}/{user}/clients" for user in _names(client, USERS, carried)]
    for path, config in _configs(client, [CLIENTS, IPS, *of_users], carried):
        _count_quotas(path, config, carried)


def _count_user(path: str, config: Mapping[str, str], carried: CarriedZnodes) -> None:
    for mechanism in sorted(SCRAM.intersection(config)):
        if (credential := decode_credential(config[mechanism])) is None:
            carried.malformed[path] = f"the {mechanism} credential cannot be decoded"
        else:
            carried.scram_credentials += 1
            user = unquote(path.removeprefix(f"{USERS}/"))
            carried.credential_rows.append(credential_row(user, mechanism, credential.iterations))
    _count_quotas(path, {name: value for name, value in config.items() if name not in SCRAM}, carried)


def _count_quotas(path: str, config: Mapping[str, str], carried: CarriedZnodes) -> None:
    for name, value in sorted(config.items()):
        try:
            number = float(value)
        except ValueError:  # `ZkAdminManager.clientQuotaPropsToDoubleMap` raises
            carried.malformed[path] = f"{name} is not a number"
        else:
            carried.quotas += 1
            carried.quota_rows.append(quota_row(_entity(path), name, number))


_ENTITY_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}


def _entity(path: str) -> dict[str, str | None]:
    """Return the entity of a quota by the path of its znode, in the terms of DescribeClientQuotas.

    >>> _entity("/config/users/a%40b/clients/<default>")
    {'user': 'a@b', 'client-id': None}
    """
    _, _, *names = path.split("/")
    pairs = zip(names[::2], names[1::2], strict=True)
    return {_ENTITY_TYPES[kind]: None if name == DEFAULT_ENTITY else unquote(name) for kind, name in pairs}
