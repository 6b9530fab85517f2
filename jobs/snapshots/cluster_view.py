"""The state of a cluster without Spark: live from ZooKeeper, or from a snapshot. It needs no JVM.

Both sources give the same `ClusterView`, with partitions as an Arrow table. Znodes in quarantine are only counted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from kazoo.client import KazooClient

from jobs.adapters.brokers.configs import DYNAMIC_CONFIGS, configured_brokers, read_overrides
from jobs.adapters.delta.filtered_reads import Filter
from jobs.adapters.delta.warehouse import Row, Warehouse, schema_of
from jobs.adapters.zookeeper.cluster import CONFIGS, REASSIGN, TOPICS, ignored_by_kafka, read_cluster
from jobs.adapters.zookeeper.connection import children, connected, with_retries
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.adapters.zookeeper.multi_read import gc_paused, read_permitted
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.repositories.snapshots import rows_as_of, table_as_of
from schemas.enums import RequestKind
from schemas.rows import Broker, Key, QuarantinedZnode, Snapshot, ZnodeRequest
from schemas.text import abbreviate
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from schemas.znodes import FORBIDDEN_REASON, MalformedZnodeError, decode_config

PARTITION: Final = (
    "topic",
    "partition",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader",
    "isr",
    "controller_epoch",
    "understood",
)
"""The columns of PARTITIONS that are read; the others are derived from them."""

_DERIVED_COLUMNS: Final = {"partition_state", "offline_replicas", "under_replicated", "under_min_isr"}
_SNAPSHOT_COLUMNS: Final = {"cluster", "snapshot_id", "vanished", *_DERIVED_COLUMNS}

ZNODE_COLUMNS: Final = [name for name in schema_of("partitions").names if name not in _SNAPSHOT_COLUMNS]
"""All columns of PARTITIONS that are read from znodes."""

RATES_TIMEOUT_SECONDS: Final = 5.0
"""Connect timeout; short, because a user waits for the result."""

_TOPIC: Final = re.compile(rf"{TOPICS}/([^/]+)")

_STATE_COLUMNS: Final = ("leader", "isr", "leader_epoch", "controller_epoch", "state_version", "leader_recovery_state")
"""Columns that a partition without a state znode does not have."""

TopicConfig = Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The state of a cluster at one time."""

    controller_id: int | None
    """NO_CONTROLLER if there is none, None if the znode cannot be parsed; likewise the epoch."""
    controller_epoch: int | None
    migration: str | None
    brokers: list[Broker]
    """Registered brokers: `broker_id`, and `understood` if the registration could be parsed."""
    configs: Mapping[str, TopicConfig]
    """Config by topic; None if it cannot be parsed, and values likewise."""
    deleting: frozenset[str]
    """Topics queued for deletion."""
    requested: Mapping[Key, list[int]]
    """Target replicas requested in /admin, by partition."""
    partitions: pa.Table
    quarantined: int
    blocking: list[QuarantinedZnode]
    """Rows of QUARANTINE that prevent a part of Kafka from starting."""
    ignored_request: str | None = None
    """Why a controller that is a broker ignores what is requested in /admin/reassign_partitions."""
    throttled_brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Throttle rates by broker or <default>; not recorded in snapshots."""
    unread_broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Why throttle rates of brokers are unknown, by the path that could not be read; not recorded in snapshots."""
    unread_topics: frozenset[str] = frozenset()
    """Topics whose assignment could not be read in part or as a whole; they may have partitions that are not listed."""
    log_dir_events: frozenset[int] = frozenset()
    """Brokers that report a failed log dir which no controller has handled."""

    @property
    def throttled_topics(self) -> dict[str, dict[str, str]]:
        """The throttled replicas of each topic."""
        lists = {
            topic: {name: value for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS) if (value := (config or {}).get(name))}
            for topic, config in self.configs.items()
        }
        return {topic: names for topic, names in lists.items() if names}

    @property
    def throttle_warnings(self) -> list[str]:
        """Where throttles may be set that are not known, by reason."""
        unread = dict(self.unread_broker_configs)
        for topic, config in sorted(self.configs.items()):
            if config is None or any(config.get(name, "") is None for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)):
                unread[f"{CONFIGS}/{topic}"] = "not understood"
        paths: dict[str, list[str]] = {}
        for path, reason in unread.items():
            paths.setdefault(reason, []).append(path)
        return [f"throttles set in {abbreviate(some)} are unknown: {reason}" for reason, some in paths.items()]


def view_now(
    endpoint: ZooKeeperEndpoint, *, topic: str | None = None, columns: Sequence[str] = PARTITION
) -> ClusterView:
    """Read the live state of all topics or one from ZooKeeper.

    `columns` of PARTITIONS must be in the order of its schema. Raise UnreadableError if ZooKeeper cannot be reached or
    contains no Kafka cluster.
    """
    with gc_paused(), connected(endpoint, RATES_TIMEOUT_SECONDS) as client:
        state = with_retries(lambda: read_cluster(client))
        configs, partitions, quarantine = with_retries(lambda: _read_topics(client, topic, columns))
        quarantine += state.quarantine
        quarantine += with_retries(lambda: read_overrides(client))[1]
        rates, unread = with_retries(lambda: _read_rates(client))
    return ClusterView(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        migration=state.migration,
        brokers=state.brokers,
        configs=configs,
        deleting=state.deleting,
        requested=_requested(state.requests),
        partitions=partitions,
        quarantined=len(quarantine),
        blocking=_blocking(quarantine),
        ignored_request=_ignored_request(quarantine),
        throttled_brokers=rates,
        unread_broker_configs=unread,
        unread_topics=_unread_topics(quarantine),
        log_dir_events=_log_dir_events(state.requests),
    )


def _read_rates(client: KazooClient) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Read the throttle rates of brokers; return also why they are unknown, by the path that could not be read."""
    names = configured_brokers(client)
    if names is None:
        return {}, {DYNAMIC_CONFIGS: FORBIDDEN_REASON}
    rates: dict[str, dict[str, str]] = {}
    unread: dict[str, str] = {}
    for name, znode in zip(names, read_permitted(client, [f"{DYNAMIC_CONFIGS}/{name}" for name in names]), strict=True):
        try:
            config = {} if znode.data is None else decode_config(znode.data)
        except MalformedZnodeError as error:
            unread[znode.path] = str(error)
        else:
            rates[name] = {key: value for key, value in config.items() if key in {LEADER_RATE, FOLLOWER_RATE}}
    return {name: broker_rates for name, broker_rates in rates.items() if broker_rates}, unread


def view_of(warehouse: Warehouse, snapshot: Snapshot, *partitions: Filter) -> ClusterView:
    """Read the state at a snapshot from the tables, with all partitions or those that match the filters."""
    topics = table_as_of(warehouse, snapshot, "topics", columns=["topic", "config", "deletion_requested"])
    rows = topics.to_pylist(maps_as_pydicts="strict")
    quarantine = rows_as_of(warehouse, snapshot, QuarantinedZnode) if snapshot.quarantined else []
    kinds = [RequestKind.REASSIGN.value, RequestKind.LOG_DIR.value]
    requests = rows_as_of(warehouse, snapshot, ZnodeRequest, ("kind", "in", kinds))
    return ClusterView(
        controller_id=snapshot.controller_id,
        controller_epoch=snapshot.controller_epoch,
        migration=snapshot.migration,
        brokers=rows_as_of(warehouse, snapshot, Broker),
        configs={row["topic"]: row["config"] for row in rows},
        deleting=frozenset(row["topic"] for row in rows if row["deletion_requested"]),
        requested=_requested(requests),
        partitions=table_as_of(warehouse, snapshot, "partitions", *partitions, columns=PARTITION),
        quarantined=snapshot.quarantined or 0,
        blocking=_blocking(quarantine),
        ignored_request=_ignored_request(quarantine),
        unread_topics=_unread_topics(quarantine),
        log_dir_events=_log_dir_events(requests),
    )


def with_last_known_replicas(view: ClusterView, warehouse: Warehouse, snapshot: Snapshot | None) -> ClusterView:
    """Give the partitions without known replicas those of the last snapshot, as a snapshot does.

    They remain not understood. So brokers that hold them are not shown as empty.
    """
    columns = view.partitions.column_names
    is_unknown = pc.equal(pc.list_value_length(view.partitions["replicas"]), 0)
    unknown = view.partitions.filter(is_unknown).to_pylist()
    if snapshot is None or not unknown:
        return view
    topics = sorted({row["topic"] for row in unknown})
    last = table_as_of(warehouse, snapshot, "partitions", columns=_ASSIGNMENT_COLUMNS)
    known = last.filter(pc.is_in(last["topic"], pa.array(topics, pa.string()))).to_pylist()
    by_key = {(row["topic"], row["partition"]): row for row in known}
    filled = [row | by_key.get((row["topic"], row["partition"]), {}) for row in unknown]
    table = pa.Table.from_pylist(filled, view.partitions.schema).select(columns)
    return replace(view, partitions=pa.concat_tables([view.partitions.filter(pc.invert(is_unknown)), table]))


_ASSIGNMENT_COLUMNS: Final = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")


def _blocking(quarantine: Iterable[QuarantinedZnode]) -> list[QuarantinedZnode]:
    return sorted((row for row in quarantine if row.blocks), key=attrgetter("path"))


def _ignored_request(quarantine: Iterable[QuarantinedZnode]) -> str | None:
    marks = (row.reason for row in quarantine if row.path == REASSIGN)
    return next((reason for reason in marks if reason.startswith(ignored_by_kafka(""))), None)


def _unread_topics(quarantine: Iterable[QuarantinedZnode]) -> frozenset[str]:
    return frozenset(found[1] for row in quarantine if (found := _TOPIC.fullmatch(row.path)))


def _log_dir_events(requests: Iterable[ZnodeRequest]) -> frozenset[int]:
    is_event = RequestKind.LOG_DIR
    return frozenset(row.broker_id for row in requests if row.kind == is_event and row.broker_id is not None)


def _requested(requests: Iterable[ZnodeRequest]) -> dict[Key, list[int]]:
    return {row.key: row.replicas or [] for row in requests if row.kind == RequestKind.REASSIGN}


def _read_topics(
    client: KazooClient, topic: str | None, columns: Sequence[str]
) -> tuple[dict[str, TopicConfig], pa.Table, list[QuarantinedZnode]]:
    """Read the configs and partitions of topics, and the rows of QUARANTINE."""
    schema = pa.schema([schema_of("partitions").field(name) for name in columns])
    configs: dict[str, TopicConfig] = {}
    tables, quarantine = [schema.empty_table()], list[QuarantinedZnode]()
    names = [name for name in children(client, TOPICS) or [] if topic in {None, name}]
    for reading in read_topic_rows(client, names):
        configs |= {row["topic"]: row.get("config") for row in reading.topics}
        tables.append(_table(reading.partitions, schema))
        quarantine += reading.quarantine
    return configs, pa.concat_tables(tables), quarantine


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(_values(rows, field.name), field.type) for field in schema], schema=schema)


def _values(rows: list[Row], name: str) -> list[Any]:
    if name in _STATE_COLUMNS:
        return [row.get(name) for row in rows]
    return list(map(itemgetter(name), rows))  # twice as quick
