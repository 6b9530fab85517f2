"""Dynamic configs of brokers, as ZooKeeper stores them in /config/brokers."""

from functools import partial
from shlex import quote
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.adapters.zookeeper.znode_reads import children
from jobs.core.errors import UnreadableError
from schemas.broker_config_defaults import BrokerSettings, stored_settings
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.kafka_decode_failures import impact_of
from schemas.rows import QuarantinedZnode
from schemas.znode_codecs import MalformedZnodeError, read_config

DYNAMIC_CONFIGS: Final = "/config/brokers"


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
            overrides[entity] = stored_settings(config)
        if unread:
            quarantine.append(unread_znode(reason="; ".join(unread)))
    return overrides, quarantine


def _config_entity(path: str) -> int | None:
    name = path.rsplit("/", 1)[1]
    if name != DEFAULT_ENTITY and not (name.isascii() and name.isdecimal()):
        raise MalformedZnodeError(f"{name!r} is neither a broker id nor {DEFAULT_ENTITY}")
    return None if name == DEFAULT_ENTITY else int(name)
