"""The connection to a cluster that plans change, and that keeps its metadata in ZooKeeper."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient

from jobs.adapters.brokers.reported_configs import DYNAMIC_CONFIGS
from jobs.adapters.cluster_connections.interface import CurrentOverrides, Lease, ResourceName, TopicReading
from jobs.adapters.sources.zookeeper import ZooKeeperSource
from jobs.adapters.zookeeper import lease_znode, precondition_reader
from jobs.adapters.zookeeper.admin_requests import withdraw
from jobs.adapters.zookeeper.cluster import BROKER_IDS, CONFIGS, TOPICS, ClusterState, read_cluster, reassign_requests
from jobs.adapters.zookeeper.connection import ZooKeeperSession, sync
from jobs.adapters.zookeeper.lease_znode import ZnodeLease, current_holder, lease_refusal, leased
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.plan_submission import read_resident_controller
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.core.errors import SurveyorError
from schemas.broker_configs import DEFAULT_ENTITY
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState, OperationState, Targets
from schemas.lease_holder import LeaseHolder
from schemas.rows import Change, Key, Operation
from schemas.znode_codecs import MalformedZnodeError, decode_config


@dataclass(frozen=True, slots=True)
class ZooKeeperReader:
    """Reads by one client."""

    zookeeper_client: KazooClient

    def sync(self) -> None:
        sync(self.zookeeper_client)

    def read_cluster(self) -> ClusterState:
        return read_cluster(self.zookeeper_client)

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        return precondition_reader.read_current(self.zookeeper_client, changes)

    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        return precondition_reader.partitions_now(self.zookeeper_client, keys)

    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        return precondition_reader.read_operations(self.zookeeper_client, operations)

    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        return precondition_reader.read_reassignments(self.zookeeper_client, moving)

    def read_requests(self) -> Targets:
        return reassign_requests(self.zookeeper_client) or {}

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the znodes of overrides, and those that exist while the broker is registered or the topic exists."""
        del allow_silent  # no broker is asked
        ordered = sorted(resources)
        self.sync()
        resource_znodes = read_many(self.zookeeper_client, [_resource_path(resource) for resource in ordered])
        configs = read_many(self.zookeeper_client, [_override_path(resource) for resource in ordered])
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
        readings = list(read_topic_rows(self.zookeeper_client, names))
        return TopicReading(
            [row for reading in readings for row in reading.partitions],
            [row for reading in readings for row in reading.topics],
        )

    def read_lease_holder(self) -> LeaseHolder | None:
        return current_holder(self.zookeeper_client)

    def read_resident_controller(self) -> LeaseHolder | None:
        return read_resident_controller(self.zookeeper_client)


class ZooKeeperConnection(ZooKeeperSession):
    """The session of a command with ZooKeeper."""

    @property
    def batch_unavailable_reason(self) -> None:
        return None

    @property
    def elects_uncleanly(self) -> bool:
        return False  # batch mode makes every election that a plan has

    @contextmanager
    def reading(self) -> Iterator[ZooKeeperReader]:
        with self.connected() as client:
            yield ZooKeeperReader(client)

    def withdraw_requests(self, keys: Collection[Key], lease: Lease) -> None:
        with self.connected() as client:
            lease.refuse_lost()
            withdraw(client, keys)

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

    @property
    def source(self) -> ZooKeeperSource:
        return ZooKeeperSource(self)

    @property
    def zookeeper_session(self) -> ZooKeeperSession:
        return self


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
