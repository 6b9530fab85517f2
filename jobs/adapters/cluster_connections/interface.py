"""The interface of a connection to a cluster that plans change: its current state, and its lease.

Two implementations exist, `jobs.adapters.cluster_connections.zookeeper` and `jobs.adapters.cluster_connections.kraft`.
Code that asks Kafka's controller to carry plans out uses only this interface and does not distinguish them. The
capabilities of ZooKeeper alone, such as the controllership, are reached through `zookeeper_session`, which a cluster
without ZooKeeper refuses.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from kazoo.client import KazooClient

from jobs.adapters.sources.interface import ClusterSource
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
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Change, Key, Operation

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
