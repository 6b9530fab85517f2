"""The port of a cluster: what commands read of it, and the lease under which they change it.

A kind of cluster implements the class `Cluster`: `jobs.adapters.clusters.zookeeper` and `jobs.adapters.clusters.kraft`.
Commands use only this class and do not distinguish the kinds. A fact that a cluster does not have is null. Writing as
the cluster's controller is a capability of some clusters, their `fence`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import pyarrow as pa

from jobs.adapters.zookeeper.connection import ZooKeeperSession
from jobs.core.errors import RefusedError
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState, OperationState, Targets
from schemas.enums import NO_CONTROLLER
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
    """The small part of a cluster's metadata, without topics and partitions; for a commit what it depends on."""

    controller_id: int | None
    """The controller, or the leader of the quorum; NO_CONTROLLER if there is none, None if it cannot be read."""
    controller_epoch: int | None
    controller_epoch_version: int | None = None
    position: int | None
    """Last transaction at the time of reading: a zxid, or the high watermark of the quorum."""
    cluster_id: str | None
    migration: str | None = None
    brokers: list[Broker]
    """Registered brokers, including those that are not understood; fenced ones too, except for a commit."""
    requests: list[ZnodeRequest] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    controller_broker: int = NO_CONTROLLER
    """The broker that requests to the controller are sent to; NO_CONTROLLER if there is none, or it was not read."""
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


class Shares(ABC):
    """The topics of a large cluster in shares, which Spark's executors read; they get this object by pickle."""

    topics: Sequence[Sequence[str]]
    """The names of the topics of each share."""
    quarantine: Sequence[QuarantinedZnode] = ()
    """Rows of QUARANTINE for topics that could not be listed."""

    @abstractmethod
    def read(self, number: int) -> Iterable[Rows]:
        """Read one share."""

    def read_again(self, torn: Collection[str]) -> Rows | None:
        """Read topics once more that are `torn`, or were at another time than the list; None if there are none.

        `torn` of the result has all these topics, also deleted ones.
        """
        del torn
        return None


WHY_NO_FENCE: Final = (
    "a KRaft cluster has no controllership in ZooKeeper to take, and its own controller repairs leaders and ISRs"
)
"""Reason why nothing can be written as the controller of a cluster without a fence."""

ResourceName = tuple[str, str]
"""`broker` or `topic`, and its id or name; `<default>` for all brokers."""

CurrentOverrides = Mapping[ResourceName, Mapping[str, str] | None]
"""Current overrides by resource; None for a topic that does not exist, and for a broker that is not live."""


@dataclass(frozen=True, slots=True)
class TopicReading:
    """Topics and their partitions."""

    partitions: Sequence[PartitionInfo]
    topics: Sequence[TopicInfo]


class Lease(Protocol):
    """The lease of a cluster: one commit, cancellation or change of throttles at a time."""

    def acquire(self, timeout: float) -> None:
        """Take the lease, waiting for another holder; raise LeaseHeldError after `timeout` seconds."""

    def refuse_lost(self) -> None:
        """Raise LeaseLostError unless we have the lease; called right before each write."""

    def release(self) -> None:
        """Release the lease, so that another process can take it while this one continues without writing."""


class Cluster(ABC):
    """A cluster for a whole command; `str` gives its address.

    The methods that read raise UnreadableError if the cluster does not answer, or contains no Kafka cluster.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - a kind may close each connection at once
        """Close what is open."""

    @property
    @abstractmethod
    def medium(self) -> str:
        """Name of the metadata's store, for messages."""

    @property
    def fence(self) -> ZooKeeperSession | None:
        """The session by which the controllership can be taken, which fences writes of an earlier controller.

        None if nothing can be written as the controller. The cluster's controller then makes all elections, except
        for unclean ones, by itself.
        """
        return None

    @property
    def required_fence(self) -> ZooKeeperSession:
        """The fence; raise RefusedError if the cluster has none."""
        if self.fence is None:
            raise RefusedError(f"this command needs ZooKeeper: {WHY_NO_FENCE}; see docs/kraft.md")
        return self.fence

    @abstractmethod
    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read everything except topics and partitions; up to `small_partitions` partitions a cluster is small."""

    @abstractmethod
    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id, None if it is not known, and the registered brokers."""

    @abstractmethod
    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers, and what is known of their configs before they are asked."""

    @abstractmethod
    def read_rows(self) -> Iterable[Rows]:
        """Read all topics and partitions in this process."""

    def shares(self, count: int) -> Shares | None:
        """List the topics for reading in at most `count` shares; None if only this process can read the cluster."""
        del count
        return None

    @abstractmethod
    def read_end(self) -> ReadingEnd:
        """Read the position after topics and partitions were read."""

    @abstractmethod
    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the whole cluster without Spark, with the partitions of all topics or one.

        `columns` of PARTITIONS are in the order of its schema.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make the readings below no older than this call."""

    @abstractmethod
    def read_cluster(self) -> ClusterMetadata:
        """Read the live brokers and the controller that requests are sent to, not older than this call."""

    @abstractmethod
    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        """Read what changes depend on."""

    @abstractmethod
    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        """Read these partitions."""

    @abstractmethod
    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        """Read what operations depend on."""

    @abstractmethod
    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        """Read all reassignments that run or are requested; `moving` has those that the controller lists."""

    @abstractmethod
    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the overrides of brokers and topics.

        Raise UnreadableError if a live broker does not answer whose overrides no other broker reports; with
        `allow_silent` this broker counts as not live.
        """

    @abstractmethod
    def read_topics(self, names: Sequence[str]) -> TopicReading:
        """Read these topics with all their partitions."""

    def read_requests(self) -> Targets:
        """Read the reassignments requested in /admin; none if there is no such request."""
        return {}

    def withdraw_requests(self, keys: Collection[Key], lease: Lease) -> None:
        """Remove these partitions from the reassignments requested in /admin; raise LeaseLostError without the lease.

        The lease is checked once there is a connection: to wait for one may take longer than the session lives.
        """
        del keys, lease

    def read_resident_controller(self) -> LeaseHolder | None:
        """Return the Surveyor that is the resident controller, None if there is none."""
        return None

    @abstractmethod
    def read_lease_holder(self) -> LeaseHolder | None:
        """Return the holder of the lease, None if there is none or it cannot be decoded."""

    @abstractmethod
    def lease(
        self, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
    ) -> AbstractContextManager[Lease]:
        """Hold the lease; raise LeaseHeldError if another process keeps it.

        `timeout_seconds` is how long to wait for a holder that lives; None waits only until it shows that it does.
        """

    def lease_refusal(self) -> str | None:
        """Return why the cluster would deny us the lease, None if it would not; nothing is written."""
        return None
