"""The interface of a cluster: what commands read of it, and the lease under which they change it.

Two implementations exist, `jobs.adapters.clusters.zookeeper` and `jobs.adapters.clusters.kraft`. Code that reads a
cluster, or asks Kafka's controller to carry plans out, uses only this interface and does not distinguish them. A fact
that a cluster does not have is null. The capabilities of ZooKeeper alone, such as the controllership, are reached
through `zookeeper_session`, which a cluster without ZooKeeper refuses.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

import pyarrow as pa
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster import ClusterState
from jobs.adapters.zookeeper.connection import ZooKeeperSession
from schemas.current_state import (
    CurrentCluster,
    CurrentPartition,
    CurrentReassignments,
    CurrentState,
    OperationState,
    Targets,
)
from schemas.lease_holder import LeaseHolder
from schemas.metadata_names import IN_ZOOKEEPER, MetadataNames
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import (
    Broker,
    Change,
    Key,
    Operation,
    QuarantinedZnode,
    Voter,
    ZnodeRequest,
    topics_queued_for_deletion,
)
from schemas.security_digests import SecurityReading

TopicOverrides = Mapping[str, str | None] | None
"""A topic's config; None if it cannot be read, and values likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefaults:
    """Broker configs that are known before the brokers are queried."""

    defaults: Mapping[str, str | None]
    """Names that get a row, with Kafka's defaults."""
    overrides: Mapping[int | None, Mapping[str, str | None]] = field(default_factory=dict)
    """Dynamic settings by broker id; the key None applies to every broker."""


@dataclass(slots=True, kw_only=True)
class ClusterMetadata:
    """The small part of a cluster's metadata: everything except topics and partitions."""

    controller_id: int | None
    """The controller, or the leader of the quorum; NO_CONTROLLER if there is none, None if it cannot be read."""
    controller_epoch: int | None
    controller_epoch_version: int | None = None
    position: int | None
    """Last transaction at the time of reading: a zxid, or the high watermark of the quorum."""
    cluster_id: str | None
    migration: str | None = None
    brokers: list[Broker]
    """Registered brokers, including those that are not understood or fenced."""
    requests: list[ZnodeRequest] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    metadata_version: int | None = None
    voters: list[Voter] | None = None
    names: MetadataNames = IN_ZOOKEEPER
    """How messages name what was read."""

    @property
    def control(self) -> dict[str, int | None]:
        """The controller's id and epoch, as columns of SNAPSHOTS."""
        return {"controller_id": self.controller_id, "controller_epoch": self.controller_epoch}

    @property
    def live_brokers(self) -> list[Broker]:
        """Registered brokers that are not fenced."""
        return [row for row in self.brokers if row.is_live]

    @property
    def live(self) -> dict[int, int | None]:
        """Broker epochs of the live brokers by broker id; an epoch that the source does not have is None."""
        return {row.broker_id: row.broker_epoch for row in self.live_brokers}

    @property
    def deleting(self) -> frozenset[str]:
        """Topics queued for deletion."""
        return topics_queued_for_deletion(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """The part of a cluster's metadata that the driver reads before Spark starts."""

    metadata: ClusterMetadata
    is_small: bool
    """Whether there are so few partitions that Spark's parallelism costs more than it saves."""
    settings: ConfigDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading:
    """The current state of a cluster, or of one of its topics."""

    metadata: ClusterMetadata
    configs: Mapping[str, TopicOverrides]
    partitions: pa.Table
    quarantine: Sequence[QuarantinedZnode]
    """All rows of QUARANTINE, including the rows of `metadata`."""
    throttle_rates: Mapping[str, Mapping[str, str]]
    """Throttle rates by broker or DEFAULT_ENTITY."""
    unread_broker_configs: Mapping[str, str]
    """Reasons why throttle rates are unknown, by the path that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Topics and partitions as one process read them: columns of TOPICS and of PARTITIONS without derived ones."""

    topics: pa.Table
    partitions: pa.Table
    quarantine: Sequence[QuarantinedZnode]
    read_seconds: float
    decode_seconds: float
    torn: Sequence[str] = ()
    """Topics that are left out, as they changed while they were read; they have to be read once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingEnd:
    """The position after reading, ACLs and the like, and warnings about what could not be read."""

    position: int | None
    security: SecurityReading
    warnings: Sequence[str] = ()


class ClusterSource(Protocol):
    """The source of a cluster's metadata; `str` gives its address."""

    @property
    def medium(self) -> str:
        """Name of the metadata's store, for messages."""

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read everything except topics and partitions; up to `small_partitions` partitions a cluster is small.

        Raise UnreadableError if the source cannot be reached, or contains no Kafka cluster.
        """

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id, None if it is not known, and the registered brokers."""

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers, and what is known of their configs before they are asked."""

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the whole cluster without Spark, with the partitions of all topics or one.

        `columns` of PARTITIONS are in the order of its schema.
        """

    def read_end(self) -> ReadingEnd:
        """Read the position after topics and partitions were read."""


ResourceName = tuple[str, str]
"""`broker` or `topic`, and its id or name; `<default>` for all brokers."""

CurrentOverrides = Mapping[ResourceName, Mapping[str, str] | None]
"""Current overrides by resource; None for a topic that does not exist, and for a broker that is not live."""


class LiveCluster(CurrentCluster, Protocol):
    """The small part of a cluster's state that a commit depends on."""

    @property
    def controller_epoch(self) -> int | None:
        """Number in /controller_epoch; None if it cannot be read, or there is none."""

    @property
    def controller_broker(self) -> int:
        """The broker that requests to the controller are sent to; NO_CONTROLLER if there is none."""

    @property
    def zookeeper_state(self) -> ClusterState:
        """The state in ZooKeeper; raise RefusedError for a cluster without ZooKeeper."""


@dataclass(frozen=True, slots=True)
class TopicReading:
    """Topics and their partitions."""

    partitions: Sequence[PartitionInfo]
    topics: Sequence[TopicInfo]


class ClusterReader(Protocol):
    """Reads what a plan depends on. After `sync`, no reading is older than that call."""

    def sync(self) -> None:
        """Make later readings no older than this call."""

    def read_cluster(self) -> LiveCluster:
        """Read brokers and controller, not older than this call."""

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        """Read what changes depend on."""

    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        """Read these partitions."""

    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        """Read what operations depend on."""

    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        """Read all reassignments that run or are requested; `moving` has those that the controller lists."""

    def read_requests(self) -> Targets:
        """Read the reassignments requested in /admin; none if there is no such request."""

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the overrides of brokers and topics.

        Raise UnreadableError if a live broker does not answer whose overrides no other broker reports; with
        `allow_silent` this broker counts as not live.
        """

    def read_topics(self, names: Sequence[str]) -> TopicReading:
        """Read these topics with all their partitions."""

    def read_lease_holder(self) -> LeaseHolder | None:
        """Return the holder of the lease, None if there is none or it cannot be decoded."""

    def read_resident_controller(self) -> LeaseHolder | None:
        """Return the Surveyor that is the resident controller, None if there is none."""

    @property
    def zookeeper_client(self) -> KazooClient:
        """The client of ZooKeeper; raise RefusedError for a cluster without ZooKeeper."""


class Lease(Protocol):
    """The lease of a cluster: one commit, cancellation or change of throttles at a time."""

    def acquire(self, timeout: float) -> None:
        """Take the lease, waiting for another holder; raise LeaseHeldError after `timeout` seconds."""

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless we have the lease; called right before each write."""

    def release(self) -> None:
        """Release the lease, so that another process can take it while this one continues without writing."""


class ClusterConnection(Protocol):
    """The connection of a whole command to a cluster that it carries a plan out in; `str` gives its address."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def batch_unavailable_reason(self) -> str | None:
        """Reason why nothing can be written as the controller; None if it can."""

    @property
    def elects_uncleanly(self) -> bool:
        """Whether unclean elections are requested from the cluster's controller; it makes the others by itself."""

    def reading(self) -> AbstractContextManager[ClusterReader]:
        """Yield a reader; raise UnreadableError if the cluster does not answer, or not anymore in this block."""

    def withdraw_requests(self, keys: Collection[Key], lease: Lease) -> None:
        """Remove these partitions from the reassignments requested in /admin; raise LeaseLostError without the lease.

        The lease is checked once there is a connection: to wait for one may take longer than the session lives.
        """

    def lease(
        self, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
    ) -> AbstractContextManager[Lease]:
        """Hold the lease; raise LeaseHeldError if another process keeps it.

        `timeout_seconds` is how long to wait for a holder that lives; None waits only until it shows that it does.
        """

    def lease_refusal(self) -> str | None:
        """Return why the cluster would deny us the lease, None if it would not; nothing is written."""

    @property
    def source(self) -> ClusterSource:
        """The cluster as a metadata source, which reads by this connection."""

    @property
    def zookeeper_session(self) -> ZooKeeperSession:
        """The session; raise RefusedError for a cluster without ZooKeeper."""
