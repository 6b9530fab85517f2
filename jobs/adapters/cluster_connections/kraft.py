"""The connection to a KRaft cluster that plans change: any of its brokers forwards requests to the controller.

The lease is in the warehouse. Brokers report no versions. A change therefore depends on the whole state of its
partition, read from a broker that has caught up with the quorum.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Self

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.cluster_connections.interface import CurrentOverrides, Lease, ResourceName, TopicReading
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import WarehouseLease, current_holder, leased
from jobs.adapters.kraft import precondition_reader
from jobs.adapters.kraft.cluster import RefusedReadError, read_cluster, read_default_settings, read_last_applied
from jobs.adapters.kraft.fresh_reads import FreshReads, await_applied
from jobs.adapters.kraft.session import BrokerSession
from jobs.adapters.kraft.topics import KRaftPartition, read_named_topics
from jobs.adapters.sources.kraft import RATES, KRaftSource, bootstrap_addresses, read_throttle_rates
from jobs.core.errors import RefusedError, UnreadableError
from schemas.broker_configs import DEFAULT_ENTITY
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState, OperationState, Targets
from schemas.lease_holder import LeaseHolder
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Broker, Change, Key, Operation
from schemas.text import by_reason

WHY_NO_BATCH: Final = (
    "a KRaft cluster has no controllership in ZooKeeper to take, and its own controller repairs leaders and ISRs"
)
WHY_NO_REQUESTS: Final = "a KRaft cluster has no ZooKeeper, so no requests in /admin"

BROKERS_SECONDS: Final = 10.0
"""Seconds for all brokers together to report their overrides."""


def _refuse(reason: str) -> NoReturn:
    raise RefusedError(f"this command needs ZooKeeper: {reason}; see docs/kraft.md")


def _current_rates(end: int, ask: Ask, broker: Broker) -> dict[str, str]:
    """Return the rates of a broker once it has applied the metadata log before the offset `end`."""
    await_applied(ask, end, BROKERS_SECONDS / 2)
    return read_throttle_rates(ask, broker)


def _rates_of_all_brokers(session: BrokerSession) -> dict[str, str] | None:
    """Return the rates that are set for all brokers, None if this client may not read them."""
    try:
        values = read_default_settings(session, [*RATES])
    except RefusedReadError:
        return None
    return {name: value for name, value in values.items() if value is not None}


def _partition_info(partition: KRaftPartition) -> PartitionInfo:
    return PartitionInfo(
        topic=partition.topic,
        partition=partition.partition,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        topic_version=None,
        understood=partition.understood,
        leader=partition.leader,
        isr=partition.isr,
        leader_epoch=partition.leader_epoch,
    )


@dataclass(frozen=True, slots=True)
class KRaftState:
    """The live brokers of a KRaft cluster, and the one that requests are sent to."""

    cluster_id: str | None
    brokers: list[Broker]
    controller_broker: int
    migration: str | None = None
    controller_epoch: int | None = None
    """There is none of ZooKeeper."""
    deleting: frozenset[str] = frozenset()
    """Deletions are carried out at once."""

    @property
    def live(self) -> dict[int, int | None]:
        return {row.broker_id: row.broker_epoch for row in self.brokers}

    @property
    def zookeeper_state(self) -> NoReturn:
        _refuse(WHY_NO_BATCH)


@dataclass(frozen=True, slots=True)
class KRaftReader:
    """Reads from a broker that has caught up with the quorum."""

    reads: FreshReads
    warehouse: Warehouse

    def sync(self) -> None:
        self.reads.sync()

    def read_cluster(self) -> KRaftState:
        self.sync()
        cluster_id, brokers = self.reads.read(lambda session: read_cluster(session, self.reads.protocol))
        live = [row for row in brokers if row.is_live]
        broker = self.reads.broker
        return KRaftState(cluster_id, live, -1 if broker is None else broker.broker_id)

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        keys = [change.key for change in changes]

        def read(session: BrokerSession) -> CurrentState:
            live = frozenset(row.broker_id for row in self._live(session))
            return CurrentState(precondition_reader.read_partitions(session, keys), {}, live)

        return self.reads.read(read)

    def read_partitions(self, keys: Iterable[Key]) -> dict[Key, CurrentPartition]:
        key_list = list(keys)
        return self.reads.read(lambda session: precondition_reader.read_partitions(session, key_list))

    def read_operations(self, operations: Sequence[Operation]) -> OperationState:
        return self.reads.read(lambda session: precondition_reader.read_operations(session, operations))

    def read_reassignments(self, moving: Targets | None = None) -> CurrentReassignments:
        del moving  # the controller lists them
        return self.reads.read(
            lambda session: precondition_reader.read_reassignments(
                session, [row.broker_id for row in self._live(session)]
            )
        )

    def read_requests(self) -> Targets:
        """Return none: the controller carries out requests at once and stores none."""
        return {}

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the dynamic settings of topics from one broker, and each broker's settings from the broker itself."""
        ordered = sorted(resources)
        topics = [name for kind, name in ordered if kind == "topic"]
        broker_ids = {int(name) for kind, name in ordered if kind == "broker" and name != DEFAULT_ENTITY}
        self.sync()

        def read(session: BrokerSession) -> tuple[list[Broker], int, dict[str, dict[str, str] | None]]:
            brokers = [row for row in self._live(session) if row.broker_id in broker_ids]
            return brokers, read_last_applied(session.ask), precondition_reader.read_topic_overrides(session, topics)

        brokers, applied, of_topics = self.reads.read(read)
        ask_current = partial(_current_rates, applied + 1)
        of_brokers, reasons = ask_brokers(brokers, self.reads.settings, BROKERS_SECONDS, ask_current)
        if reasons and not allow_silent:
            listed = "; ".join(by_reason(dict(sorted(reasons.items()))))
            raise UnreadableError(f"the configs of brokers cannot be read: {listed}")
        overrides: dict[ResourceName, Mapping[str, str] | None] = {}
        for kind, name in ordered:
            if name == DEFAULT_ENTITY:
                overrides[kind, name] = self.reads.read(_rates_of_all_brokers)
            else:
                overrides[kind, name] = of_topics.get(name) if kind == "topic" else of_brokers.get(int(name))
        return overrides

    def read_topics(self, names: Sequence[str]) -> TopicReading:
        topics, _ = self.reads.read(lambda session: read_named_topics(session, names, with_configs=True))
        return TopicReading(
            [_partition_info(partition) for topic in topics.values() for partition in topic.partitions],
            [
                TopicInfo(
                    topic=name,
                    topic_version=None,
                    topic_id=topic.topic_id,
                    config=topic.config,
                    understood=topic.fault is None and topic.config is not None,
                    assignment_understood=topic.fault is None,
                )
                for name, topic in topics.items()
            ],
        )

    def read_lease_holder(self) -> LeaseHolder | None:
        return current_holder(self.warehouse)

    def read_resident_controller(self) -> None:
        """Return none: `surveyor control` is refused there."""

    @property
    def zookeeper_client(self) -> NoReturn:
        _refuse(WHY_NO_REQUESTS)

    def _live(self, session: BrokerSession) -> list[Broker]:
        return [row for row in read_cluster(session, self.reads.protocol)[1] if row.is_live]


@dataclass(slots=True)
class KRaftConnection:
    """The brokers of a KRaft cluster, HOST:PORT[,...], and the warehouse that has the lease."""

    bootstrap_servers: str
    warehouse: Warehouse
    command_config: Path | None = None
    _reads: FreshReads | None = field(default=None, init=False)

    def __str__(self) -> str:
        return self.bootstrap_servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Each reading closes its own connection."""

    @property
    def batch_unavailable_reason(self) -> str:
        return WHY_NO_BATCH

    @property
    def elects_uncleanly(self) -> bool:
        return True

    @contextmanager
    def reading(self) -> Iterator[KRaftReader]:
        if self._reads is None:
            self._reads = FreshReads(bootstrap_addresses(self.bootstrap_servers), read_properties(self.command_config))
        yield KRaftReader(self._reads, self.warehouse)

    def withdraw_requests(self, keys: Collection[Key], lease: Lease) -> None:
        """Do nothing, because no request is stored."""

    @contextmanager
    def lease(
        self, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
    ) -> Iterator[WarehouseLease]:
        with leased(self.warehouse, holder, timeout_seconds, notify) as lease:
            yield lease

    def lease_refusal(self) -> None:
        """Return None: the lease is in the warehouse, where a commit writes anyway."""

    @property
    def source(self) -> KRaftSource:
        return KRaftSource(self.bootstrap_servers, self.command_config)

    @property
    def zookeeper_session(self) -> NoReturn:
        _refuse(WHY_NO_BATCH)
