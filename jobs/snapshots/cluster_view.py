"""The state of a cluster without Spark: live, or from a snapshot.

Both give the same `ClusterView`, with partitions as an Arrow table. Znodes in quarantine are only counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.clusters.interface import Cluster, LiveReading, TopicOverrides
from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.cluster_state import REASSIGN, ignored_by_kafka
from jobs.core.arrow_rows import as_rows, values_of
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of, table_as_of
from schemas.enums import RequestKind
from schemas.metadata_names import IN_ZOOKEEPER, MetadataNames
from schemas.rows import HIDDEN_TOPICS, Broker, Key, QuarantinedZnode, Snapshot, Voter, ZnodeRequest
from schemas.text import abbreviate
from schemas.topic_configs import FOLLOWER_REPLICAS, LEADER_REPLICAS

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

SOURCE_COLUMNS: Final = [name for name in schema_of("partitions").names if name not in _SNAPSHOT_COLUMNS]
"""All columns of PARTITIONS that are read from a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The state of a cluster at one time."""

    controller_id: int | None
    """NO_CONTROLLER if there is none, None if the znode cannot be decoded; likewise the epoch."""
    controller_epoch: int | None
    migration: str | None
    brokers: list[Broker]
    """Live brokers: `broker_id`, and `understood` if the registration could be decoded."""
    configs: Mapping[str, TopicOverrides]
    """Config by topic; None if it cannot be decoded, and values likewise."""
    deleting: frozenset[str]
    """Topics queued for deletion."""
    requested: Mapping[Key, list[int]]
    """Target replicas requested in /admin, by partition."""
    partitions: pa.Table
    quarantined: int
    blocking: list[QuarantinedZnode]
    """Rows of QUARANTINE that prevent a part of Kafka from starting."""
    ignored_request: str | None = None
    """Reason why a controller that is a broker ignores what is requested in /admin/reassign_partitions."""
    throttled_brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Throttle rates by broker or <default>; not recorded in snapshots."""
    unread_broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Reasons why throttle rates of brokers are unknown, by the unreadable path; not recorded in snapshots."""
    unread_topics: frozenset[str] = frozenset()
    """Topics whose assignment could not be read in part or as a whole; they may have partitions that are not listed."""
    hidden_topics: str | None = None
    """Reason why further topics may exist, which no row names; None if there are none."""
    log_dir_events: frozenset[int] = frozenset()
    """Brokers that report a failed log dir which no controller has handled."""
    voters: Sequence[Voter] | None = None
    """The voters of a quorum; None in ZooKeeper, or if they are unknown."""
    names: MetadataNames = IN_ZOOKEEPER
    """How messages name what was read."""
    cluster_id: str | None = None
    """None if it is not known."""

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
        """Places in which unknown throttles may be set, by reason."""
        unread = dict(self.unread_broker_configs)
        for topic, config in sorted(self.configs.items()):
            if config is None or any(config.get(name, "") is None for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)):
                unread[self.names.topic_config(topic)] = self.names.unread_config
        paths: dict[str, list[str]] = {}
        for path, reason in unread.items():
            paths.setdefault(reason, []).append(path)
        return [f"throttles set in {abbreviate(some)} are unknown: {reason}" for reason, some in paths.items()]


def view_now(cluster: Cluster, *, topic: str | None = None, columns: Sequence[str] = PARTITION) -> ClusterView:
    """Read the live state of all topics or one.

    `columns` of PARTITIONS must be in the order of its schema. Raise UnreadableError if the cluster cannot be reached.
    """
    return view_of_reading(cluster.read_live(topic, columns))


def view_of_reading(reading: LiveReading) -> ClusterView:
    """Return what was read as a view."""
    metadata = reading.metadata
    return ClusterView(
        controller_id=metadata.controller_id,
        controller_epoch=metadata.controller_epoch,
        migration=metadata.migration,
        brokers=metadata.live_brokers,
        configs=reading.configs,
        deleting=metadata.deleting,
        requested=_requested(metadata.requests),
        partitions=reading.partitions,
        quarantined=len(reading.quarantine),
        blocking=_blocking(reading.quarantine),
        ignored_request=_ignored_request(reading.quarantine),
        throttled_brokers=reading.throttle_rates,
        unread_broker_configs=reading.unread_broker_configs,
        unread_topics=_unread_topics(reading.quarantine),
        hidden_topics=_hidden_topics(reading.quarantine),
        voters=metadata.voters,
        names=metadata.names,
        cluster_id=metadata.cluster_id,
        log_dir_events=_log_dir_events(metadata.requests),
    )


def view_of(
    warehouse: Warehouse, snapshot: Snapshot, *partitions: Filter, columns: Sequence[str] = PARTITION
) -> ClusterView:
    """Read the state at a snapshot from the tables, with all partitions or those that match the filters."""
    topics = table_as_of(warehouse, snapshot, "topics", columns=["topic", "config", "deletion_requested"])
    quarantine = rows_as_of(warehouse, snapshot, QuarantinedZnode) if snapshot.quarantined else []
    kinds = [RequestKind.REASSIGN.value, RequestKind.LOG_DIR.value]
    requests = rows_as_of(warehouse, snapshot, ZnodeRequest, ("kind", "in", kinds))
    return ClusterView(
        controller_id=snapshot.controller_id,
        controller_epoch=snapshot.controller_epoch,
        migration=snapshot.migration,
        brokers=live_brokers_as_of(warehouse, snapshot),
        configs=dict(values_of(topics, "topic", "config")),
        deleting=frozenset(
            topic for topic, is_deleted in values_of(topics, "topic", "deletion_requested") if is_deleted
        ),
        requested=_requested(requests),
        partitions=table_as_of(warehouse, snapshot, "partitions", *partitions, columns=columns),
        quarantined=snapshot.quarantined or 0,
        blocking=_blocking(quarantine),
        ignored_request=_ignored_request(quarantine),
        unread_topics=_unread_topics(quarantine),
        hidden_topics=_hidden_topics(quarantine),
        voters=snapshot.voters,
        names=snapshot.names,
        log_dir_events=_log_dir_events(requests),
    )


def with_last_known_replicas(view: ClusterView, warehouse: Warehouse, snapshot: Snapshot | None) -> ClusterView:
    """Give the partitions without known replicas the replicas of the last snapshot, as a snapshot does.

    They remain not understood. So brokers that hold them are not shown as empty.
    """
    columns = view.partitions.column_names
    is_unknown = pc.equal(pc.list_value_length(view.partitions["replicas"]), 0)
    unread = view.partitions.filter(is_unknown)
    if snapshot is None or not unread.num_rows:
        return view
    topics = sorted({*unread["topic"].to_pylist()})
    last = table_as_of(warehouse, snapshot, "partitions", columns=_ASSIGNMENT_COLUMNS)
    last = last.filter(pc.is_in(last["topic"], pa.array(topics, pa.string())))
    by_key = dict(zip(values_of(last, "topic", "partition"), as_rows(last), strict=True))
    keys = values_of(unread, "topic", "partition")
    filled = [row | by_key.get(key, {}) for key, row in zip(keys, as_rows(unread), strict=True)]
    table = pa.Table.from_pylist(filled, view.partitions.schema).select(columns)
    return replace(view, partitions=pa.concat_tables([view.partitions.filter(pc.invert(is_unknown)), table]))


_ASSIGNMENT_COLUMNS: Final = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")


def _blocking(quarantine: Iterable[QuarantinedZnode]) -> list[QuarantinedZnode]:
    return sorted((row for row in quarantine if row.blocks), key=attrgetter("path"))


def _ignored_request(quarantine: Iterable[QuarantinedZnode]) -> str | None:
    marks = (row.reason for row in quarantine if row.path == REASSIGN)
    return next((reason for reason in marks if reason.startswith(ignored_by_kafka(""))), None)


def _unread_topics(quarantine: Iterable[QuarantinedZnode]) -> frozenset[str]:
    return frozenset(topic for row in quarantine if (topic := row.whole_topic))


def _hidden_topics(quarantine: Iterable[QuarantinedZnode]) -> str | None:
    return next((row.reason for row in quarantine if row.path == HIDDEN_TOPICS), None)


def _log_dir_events(requests: Iterable[ZnodeRequest]) -> frozenset[int]:
    is_event = RequestKind.LOG_DIR
    return frozenset(row.broker_id for row in requests if row.kind == is_event and row.broker_id is not None)


def _requested(requests: Iterable[ZnodeRequest]) -> dict[Key, list[int]]:
    return {row.key: row.replicas or [] for row in requests if row.kind == RequestKind.REASSIGN}
