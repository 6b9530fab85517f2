"""A cluster that keeps its metadata in ZooKeeper."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeVar

import pyarrow as pa
from kazoo.client import KazooClient

from jobs.adapters.clusters.interface import (
    Cluster,
    ClusterMetadata,
    ConfigDefaults,
    CurrentOverrides,
    DriverReading,
    Lease,
    LiveReading,
    ReadingEnd,
    ResourceName,
    Rows,
    Shares,
    TopicOverrides,
    TopicReading,
)
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.zookeeper import lease_znode, precondition_reader
from jobs.adapters.zookeeper.admin_requests import withdraw
from jobs.adapters.zookeeper.broker_overrides import DYNAMIC_CONFIGS, configured_brokers, read_overrides
from jobs.adapters.zookeeper.cluster_state import (
    BROKER_IDS,
    CONFIGS,
    TOPICS,
    ClusterState,
    read_brokers,
    read_cluster,
    read_cluster_id,
    reassign_requests,
)
from jobs.adapters.zookeeper.connection import ZooKeeperSession, connected, sync, with_retries
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.kraft_carried_znodes import read_security
from jobs.adapters.zookeeper.lease_znode import ZnodeLease, current_holder, lease_refusal, leased
from jobs.adapters.zookeeper.multi_read import children_of, read_many, read_permitted
from jobs.adapters.zookeeper.plan_submission import read_resident_controller
from jobs.adapters.zookeeper.topics import TopicRows, read_topic_rows
from jobs.adapters.zookeeper.znode_reads import children
from jobs.core.errors import SurveyorError
from jobs.core.garbage_collection import gc_paused
from jobs.core.properties import on_executor
from schemas.broker_config_defaults import DEFAULTS
from schemas.broker_config_names import DEFAULT_ENTITY
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState, OperationState, Targets
from schemas.lease_holder import LeaseHolder
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Broker, Change, Key, Operation, QuarantinedZnode
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE
from schemas.znode_codecs import FORBIDDEN_REASON, MalformedZnodeError, decode_config

T = TypeVar("T")

TOPICS_PER_COUNT: Final = 1000
"""Topics whose partitions are counted before each check of the limit."""

_TOPIC_COLUMNS: Final = ("topic", "topic_version", "topic_id", "config", "understood", "assignment_understood")

_KRAFT_COLUMNS: Final = frozenset({"eligible_leader_replicas", "last_known_elr"})
"""Columns that ZooKeeper does not have."""


class ZooKeeperCluster(ZooKeeperSession, Cluster):
    """A cluster as its ZooKeeper ensemble shows it, read by one session."""

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def medium(self) -> str:
        return "ZooKeeper"

    @property
    def fence(self) -> ZooKeeperSession:
        return self

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read brokers, controller, requests and dynamic broker configs."""
        with self.connected() as client:
            state = with_retries(lambda: read_cluster(client))
            overrides, quarantine = with_retries(lambda: read_overrides(client))
            is_small = with_retries(lambda: _has_at_most(client, small_partitions))
        state.quarantine += quarantine
        settings = ConfigDefaults(defaults=DEFAULTS, overrides=overrides)
        return DriverReading(metadata=_metadata(state), is_small=is_small, settings=settings)

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id and the registered brokers."""
        return self._read(lambda client: (read_cluster_id(client), read_brokers(client)))

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers and their dynamic settings."""
        brokers, (overrides, _) = self._read(lambda client: (read_brokers(client), read_overrides(client)))
        return brokers, ConfigDefaults(defaults=DEFAULTS, overrides=overrides)

    def read_rows(self) -> Iterator[Rows]:
        """Read all topics and partitions."""
        names = self._read(lambda client: children(client, TOPICS)) or []
        with gc_paused(), self.connected() as client:
            yield from map(_rows, read_topic_rows(client, names))

    def shares(self, count: int) -> "ZooKeeperShares":
        """List the topics for executors."""
        names = self._read(lambda client: children(client, TOPICS)) or []
        size = max(1, -(-len(names) // count))
        shares = [names[start : start + size] for start in range(0, len(names), size)]
        config = self.endpoint.config and self.endpoint.config.absolute()
        return ZooKeeperShares(replace(self.endpoint, config=config), shares)

    def read_end(self) -> ReadingEnd:
        """Read the last zxid, ACLs and the like, and see if the brokers' dynamic configs can be listed."""
        with self.connected() as client:
            with_retries(lambda: sync(client))
            zxid = client.last_zxid
            can_list = with_retries(lambda: configured_brokers(client)) is not None
            security = with_retries(lambda: read_security(client))
        unlisted = f"{DYNAMIC_CONFIGS} cannot be listed, so settings that brokers do not report are assumed"
        warnings = [] if can_list else [f"{unlisted}: {FORBIDDEN_REASON}"]
        return ReadingEnd(position=zxid, security=security, warnings=warnings)

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the live state of all topics or one."""
        with gc_paused(), self.connected() as client:
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

    def sync(self) -> None:
        """Do nothing: each reading is synced."""

    def read_cluster(self) -> ClusterMetadata:
        return _metadata(self._read(read_cluster))

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        return self._read(lambda client: precondition_reader.read_current(client, changes))

    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        key_list = list(keys)
        return self._read(lambda client: precondition_reader.partitions_now(client, key_list))

    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        return self._read(lambda client: precondition_reader.read_operations(client, operations))

    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        return self._read(lambda client: precondition_reader.read_reassignments(client, moving))

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the znodes of overrides, and those that exist while the broker is registered or the topic exists."""
        del allow_silent  # no broker is asked
        ordered = sorted(resources)
        paths = [*map(_resource_path, ordered), *map(_override_path, ordered)]
        znodes = self._read(lambda client: read_many(client, paths))
        resource_znodes, configs = znodes[: len(ordered)], znodes[len(ordered) :]
        overrides_by_resource: dict[ResourceName, Mapping[str, str] | None] = {}
        for resource, resource_znode, config in zip(ordered, resource_znodes, configs, strict=True):
            try:
                overrides = decode_config(config.data)
            except MalformedZnodeError as error:
                raise SurveyorError(
                    f"{config.path} is not understood ({error}): repair it, then commit again"
                ) from None
            overrides_by_resource[resource] = None if resource_znode.stat is None else overrides
        return overrides_by_resource

    def read_topics(self, names: Sequence[str]) -> TopicReading:
        readings = self._read(lambda client: list(read_topic_rows(client, names)))
        return TopicReading(
            [row for reading in readings for row in reading.partitions],
            [row for reading in readings for row in reading.topics],
        )

    def read_requests(self) -> Targets:
        return self._read(reassign_requests) or {}

    def withdraw_requests(self, keys: Collection[Key], lease: Lease) -> None:
        with self.connected() as client:
            lease.refuse_lost()
            withdraw(client, keys)

    def read_resident_controller(self) -> LeaseHolder | None:
        return self._read(read_resident_controller)

    def read_lease_holder(self) -> LeaseHolder | None:
        return self._read(current_holder)

    @contextmanager
    def lease(
        self, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
    ) -> Iterator[ZnodeLease]:
        """Hold the znode of the lease; without a time limit, wait until the session of a killed process has ended."""
        timeout = lease_znode.LEASE_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        with self.connected() as client, leased(client, holder, timeout, notify, self.endpoint.config) as lease:
            yield lease

    def lease_refusal(self) -> str | None:
        with self.connected() as client:
            refusal = lease_refusal(client, self.endpoint.config)
            return None if refusal is None else str(refusal)

    def _read(self, read: Callable[[KazooClient], T]) -> T:
        """Return what `read` returns, not older than this call; repeat it while connections are lost."""
        with self.connected() as client:
            with_retries(lambda: sync(client))
            return with_retries(lambda: read(client))


@dataclass(slots=True)
class ZooKeeperShares(Shares):
    """The topics of a large cluster in shares, each read by a session of its own, as it belongs to a process."""

    endpoint: ZooKeeperEndpoint
    topics: Sequence[Sequence[str]]

    def read(self, number: int) -> Iterator[Rows]:
        """Read one share; `number` determines the server, so that the shares are spread over the ensemble."""
        endpoint = replace(self.endpoint, config=on_executor(self.endpoint.config))
        with connected(endpoint, first_server=number) as client:
            with_retries(lambda: sync(client))
            yield from map(_rows, read_topic_rows(client, self.topics[number]))


def _rows(reading: TopicRows) -> Rows:
    return Rows(
        topics=_table(reading.topics, schema_of("topics", *_TOPIC_COLUMNS)),
        partitions=_table(reading.partitions, schema_of("partitions", *PartitionInfo.__struct_fields__)),
        quarantine=reading.quarantine,
        read_seconds=reading.read_seconds,
        decode_seconds=reading.decode_seconds,
    )


def _metadata(state: ClusterState) -> ClusterMetadata:
    return ClusterMetadata(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        controller_epoch_version=state.epoch_version,
        controller_broker=state.controller.broker_id,
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


def _table(rows: Sequence[PartitionInfo | TopicInfo], schema: pa.Schema) -> pa.Table:
    return pa.table([_column(rows, field) for field in schema], schema=schema)


def _column(rows: Sequence[PartitionInfo | TopicInfo], field: pa.Field) -> pa.Array:
    if field.name in _KRAFT_COLUMNS:
        return pa.nulls(len(rows), field.type)
    return pa.array(map(attrgetter(field.name), rows), field.type, size=len(rows))


def _resource_path(resource: ResourceName) -> str:
    """The znode that exists while the broker is registered, the topic exists, or any broker has configs."""
    kind, name = resource
    if name == DEFAULT_ENTITY:
        return DYNAMIC_CONFIGS
    return f"{BROKER_IDS if kind == 'broker' else TOPICS}/{name}"


def _override_path(resource: ResourceName) -> str:
    """The znode of the resource's config overrides."""
    kind, name = resource
    return f"{DYNAMIC_CONFIGS if kind == 'broker' else CONFIGS}/{name}"
