"""ZooKeeper as a metadata source for the driver; Spark's executors read by `jobs.adapters.zookeeper.source`."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import pyarrow as pa
from kazoo.client import KazooClient

from jobs.adapters.brokers.reported_configs import DEFAULTS, DYNAMIC_CONFIGS, configured_brokers, read_overrides
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.sources.interface import (
    ClusterMetadata,
    ConfigDefaults,
    DriverReading,
    LiveReading,
    ReadingEnd,
    TopicOverrides,
)
from jobs.adapters.zookeeper.cluster import TOPICS, ClusterState, read_brokers, read_cluster, read_cluster_id
from jobs.adapters.zookeeper.connection import ZooKeeperSession, children, sync, with_retries
from jobs.adapters.zookeeper.kraft_carried_znodes import read_security
from jobs.adapters.zookeeper.multi_read import children_of, gc_paused, read_permitted
from jobs.adapters.zookeeper.topics import read_topic_rows
from schemas.partition_info import PartitionInfo
from schemas.rows import Broker, QuarantinedZnode
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE
from schemas.znode_codecs import FORBIDDEN_REASON, MalformedZnodeError, decode_config

TOPICS_PER_COUNT: Final = 1000
"""Topics whose partitions are counted before each check of the limit."""

_KRAFT_COLUMNS: Final = frozenset({"eligible_leader_replicas", "last_known_elr"})
"""Columns that ZooKeeper does not have."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSource:
    """The ZooKeeper ensemble of a cluster, read by the session of the command."""

    session: ZooKeeperSession

    def __str__(self) -> str:
        return str(self.session.endpoint)

    @property
    def medium(self) -> str:
        return "ZooKeeper"

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read brokers, controller, requests and dynamic broker configs."""
        with self.session.connected() as client:
            state = with_retries(lambda: read_cluster(client))
            overrides, quarantine = with_retries(lambda: read_overrides(client))
            is_small = with_retries(lambda: _has_at_most(client, small_partitions))
        state.quarantine += quarantine
        settings = ConfigDefaults(defaults=DEFAULTS, overrides=overrides)
        return DriverReading(metadata=_metadata(state), is_small=is_small, settings=settings)

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id and the registered brokers."""
        with self.session.connected() as client:
            return with_retries(lambda: read_cluster_id(client)), with_retries(lambda: read_brokers(client))

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers and their dynamic settings."""
        with self.session.connected() as client:
            brokers = with_retries(lambda: read_brokers(client))
            overrides, _ = with_retries(lambda: read_overrides(client))
        return brokers, ConfigDefaults(defaults=DEFAULTS, overrides=overrides)

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the live state of all topics or one."""
        with gc_paused(), self.session.connected() as client:
            state = with_retries(lambda: read_cluster(client))
            configs, partitions, quarantine = with_retries(lambda: _read_topics(client, topic, columns))
            quarantine += state.quarantine
            quarantine += with_retries(lambda: read_overrides(client))[1]
            rates, unread = with_retries(lambda: _read_rates(client))
        return LiveReading(
            metadata=_metadata(state),
            configs=configs,
            partitions=partitions,
            quarantine=quarantine,
            throttle_rates=rates,
            unread_broker_configs=unread,
        )

    def read_end(self) -> ReadingEnd:
        """Read the last zxid, ACLs and the like, and see if the brokers' dynamic configs can be listed."""
        with self.session.connected() as client:
            with_retries(lambda: sync(client))
            zxid = client.last_zxid
            can_list = with_retries(lambda: configured_brokers(client)) is not None
            security = with_retries(lambda: read_security(client))
        unlisted = f"{DYNAMIC_CONFIGS} cannot be listed, so settings that brokers do not report are assumed"
        warnings = [] if can_list else [f"{unlisted}: {FORBIDDEN_REASON}"]
        return ReadingEnd(position=zxid, security=security, warnings=warnings)


def _metadata(state: ClusterState) -> ClusterMetadata:
    return ClusterMetadata(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        controller_epoch_version=state.epoch_version,
        position=state.zxid,
        cluster_id=state.cluster_id,
        migration=state.migration,
        brokers=state.brokers,
        requests=state.requests,
        quarantine=state.quarantine,
    )


def _has_at_most(client: KazooClient, limit: int) -> bool:
    """Count partition znodes without reading them, and stop above the limit."""
    paths = [f"{TOPICS}/{topic}/partitions" for topic in children(client, TOPICS) or []]
    counted = 0
    for start in range(0, len(paths), TOPICS_PER_COUNT):
        chunk = paths[start : start + TOPICS_PER_COUNT]
        counted += sum(map(len, children_of(client, chunk, permitted=True)))
        if counted > limit:
            return False
    return True


def _read_rates(client: KazooClient) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Read the throttle rates of brokers; return also why they are unknown, by the path that could not be read."""
    names = configured_brokers(client)
    if names is None:
        return {}, {DYNAMIC_CONFIGS: FORBIDDEN_REASON}
    rates: dict[str, dict[str, str]] = {}
    unread: dict[str, str] = {}
    for name, znode in zip(names, read_permitted(client, [f"{DYNAMIC_CONFIGS}/{name}" for name in names]), strict=True):
        try:
            config = decode_config(znode.data)
        except MalformedZnodeError as error:
            unread[znode.path] = str(error)
        else:
            rates[name] = {key: value for key, value in config.items() if key in {LEADER_RATE, FOLLOWER_RATE}}
    return {name: broker_rates for name, broker_rates in rates.items() if broker_rates}, unread


def _read_topics(
    client: KazooClient, topic: str | None, columns: Sequence[str]
) -> tuple[dict[str, TopicOverrides], pa.Table, list[QuarantinedZnode]]:
    """Read the configs and partitions of topics, and the rows of QUARANTINE."""
    schema = schema_of("partitions", *columns)
    configs: dict[str, TopicOverrides] = {}
    tables, quarantine = [schema.empty_table()], list[QuarantinedZnode]()
    names = [name for name in children(client, TOPICS) or [] if topic in {None, name}]
    for reading in read_topic_rows(client, names):
        configs |= {info.topic: info.config for info in reading.topics}
        tables.append(_table(reading.partitions, schema))
        quarantine += reading.quarantine
    return configs, pa.concat_tables(tables), quarantine


def _table(partitions: Sequence[PartitionInfo], schema: pa.Schema) -> pa.Table:
    return pa.table([_column(partitions, field) for field in schema], schema=schema)


def _column(partitions: Sequence[PartitionInfo], field: pa.Field) -> pa.Array:
    if field.name in _KRAFT_COLUMNS:
        return pa.nulls(len(partitions), field.type)
    return pa.array(map(attrgetter(field.name), partitions), field.type, size=len(partitions))
