"""A KRaft cluster, by requests of the Admin API: any of its brokers forwards requests to the controller.

The lease is in the warehouse. Brokers report no versions. A change therefore depends on the whole state of its
partition, read from a broker that has caught up with the quorum.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest

from jobs.adapters.brokers.admin_client import bootstrap, read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.clusters.interface import (
    Cluster,
    ClusterMetadata,
    ConfigDefaults,
    CurrentOverrides,
    DriverReading,
    LiveReading,
    ReadingEnd,
    ResourceName,
    Rows,
    Shares,
    TopicReading,
)
from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import WarehouseLease, current_holder, leased
from jobs.adapters.kraft import precondition_reader
from jobs.adapters.kraft.acls_and_quotas import read_security
from jobs.adapters.kraft.cluster import (
    Reassignments,
    RefusedReadError,
    read_cluster,
    read_default_settings,
    read_last_applied,
    read_metadata_version,
    read_moves,
    refused,
    request_rows,
)
from jobs.adapters.kraft.fresh_reads import FreshReads, appended_end, await_applied, catch_up
from jobs.adapters.kraft.session import BrokerSession, describe_quorum, read_from_broker
from jobs.adapters.kraft.topics import (
    KRaftTopicReading,
    has_at_most,
    list_topics,
    listed_moves,
    read_named_topics,
    read_share,
    read_topics,
    torn_between,
)
from jobs.core.errors import UnreadableError, UsageError
from jobs.core.option_sources import BOOTSTRAP_SERVERS, option_name
from jobs.core.properties import on_executor
from schemas.broker_config_defaults import KAFKA_DEFAULTS, KRAFT_DEFAULTS
from schemas.broker_config_names import AUTHORIZER, DEFAULT_ENTITY
from schemas.current_state import CurrentPartition, CurrentReassignments, CurrentState, OperationState, Targets
from schemas.enums import NO_CONTROLLER
from schemas.internal_topics import METADATA_TOPIC
from schemas.lease_holder import LeaseHolder
from schemas.metadata_names import IN_KRAFT
from schemas.partition_info import TopicInfo
from schemas.response_codes import NO_ERROR
from schemas.rows import HIDDEN_TOPICS, Broker, Change, Key, Operation, QuarantinedZnode
from schemas.text import abbreviate, by_reason
from schemas.topic_configs import FOLLOWER_RATE, LEADER_RATE

T = TypeVar("T")

QUORUM: Final = "DescribeQuorum"
"""The request that stands for the controller's znode in `quarantine`."""

RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
RATES_SECONDS: Final = 3.0
"""Time limit for the throttle rates of all brokers; short, because a user waits for the result."""

CAUGHT_UP_SECONDS: Final = 15.0
"""Time limit for all brokers together to catch up with the quorum."""

LOG_DIRS_SECONDS: Final = 30.0
"""Time limit for the log dirs of all brokers."""

BROKERS_SECONDS: Final = 10.0
"""Seconds for all brokers together to report their overrides."""


class NoQuorumError(UnreadableError):
    """No broker has contact with the quorum's leader."""


@dataclass(slots=True)
class KRaftCluster(Cluster):
    """The brokers of a KRaft cluster, HOST:PORT[,...], and the warehouse that has the lease."""

    bootstrap_servers: str
    warehouse: Warehouse
    command_config: Path | None = None
    _reads: FreshReads | None = field(default=None, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return self.bootstrap_servers

    @property
    def medium(self) -> str:
        return "the brokers"

    def read_driver_metadata(self, small_partitions: int) -> DriverReading:
        """Read brokers, quorum, requests and dynamic settings of all brokers.

        Raise NoQuorumError if no broker has contact with the quorum's leader.
        """

        def read(session: BrokerSession) -> DriverReading:
            if not session.has_controller:
                raise NoQuorumError(
                    f"{session.quorum_fault}: the state that brokers report may be old, and no partition would be "
                    "known; `surveyor doctor` examines the quorum"
                )
            metadata = self._metadata(session, _running(session))
            is_small = has_at_most(session, small_partitions)
            return DriverReading(metadata=metadata, is_small=is_small, settings=_config_defaults(session))

        try:
            return self.read(read)
        except NoQuorumError:  # an election of the quorum takes seconds
            return self.read(read)

    def read_brokers(self) -> tuple[str | None, list[Broker]]:
        """Read the cluster's id and the registered brokers."""
        return self.read(lambda session: read_cluster(session, self._protocol))

    def read_broker_settings(self) -> tuple[list[Broker], ConfigDefaults]:
        """Read the registered brokers and the dynamic settings of all brokers."""
        return self.read(lambda session: (read_cluster(session, self._protocol)[1], _config_defaults(session)))

    def read_rows(self) -> list[Rows]:
        """Read all topics and partitions."""
        started = time.perf_counter()
        return [_rows(self.read(self._topics), started)]

    def shares(self, count: int) -> "KRaftShares":
        """List the topics, the reassignments and the live brokers.

        Brokers that do not catch up with the quorum are left out.
        """
        sent = replace(self, command_config=self.command_config and self.command_config.absolute())

        def read(session: BrokerSession) -> KRaftShares:
            quarantine: list[QuarantinedZnode] = []
            names, is_complete = list_topics(session)
            brokers = self._live_brokers(session)
            moves = listed_moves(session, quarantine)
            end = None if session.quorum is None else appended_end(session)
            if end is not None:
                brokers = self._caught_up(brokers, end)
            if not is_complete:
                hidden, faults = topics_in_log_dirs(brokers, self._settings)
                names = sorted(hidden.union(names))
                quarantine.extend(faults)
            size = max(1, -(-len(names) // count))
            shares = [names[start : start + size] for start in range(0, len(names), size)]
            return KRaftShares(sent, shares, moves, bootstrap(brokers, self._settings), end, quarantine)

        return self.read(read)

    def read_live(self, topic: str | None, columns: Sequence[str]) -> LiveReading:
        """Read the live state of all topics or one."""

        def read(session: BrokerSession) -> tuple[ClusterMetadata, KRaftTopicReading, dict[str, str] | str]:
            reading = self._topics(session, topic)
            return self._metadata(session, reading.moves), reading, _default_rates(session)

        metadata, reading, defaults = self.read(read)
        rates, unread = self._read_rates(metadata.live_brokers)
        if isinstance(defaults, str):
            unread[DEFAULT_ENTITY] = defaults
        elif defaults:
            rates[DEFAULT_ENTITY] = defaults
        configs = reading.topics.select(["topic", "config"]).to_pylist(maps_as_pydicts="strict")
        return LiveReading(
            metadata=metadata,
            configs={row["topic"]: row["config"] for row in configs},
            partitions=reading.partitions.select(schema_of("partitions", *columns).names),
            quarantine=[*metadata.quarantine, *reading.quarantine],
            throttle_rates=rates,
            unread_broker_configs=unread,
        )

    def read_end(self) -> ReadingEnd:
        """Read the quorum's high watermark, and ACLs and the like."""
        quorum, security = self.read(lambda session: (describe_quorum(session), read_security(session)))
        return ReadingEnd(position=None if quorum is None else quorum.high_watermark, security=security)

    def sync(self) -> None:
        self.reads.sync()

    def read_cluster(self) -> ClusterMetadata:
        """Read the live brokers, and the one that requests are sent to; there is no controller epoch of ZooKeeper."""
        self.sync()
        cluster_id, brokers = self.reads.read(lambda session: read_cluster(session, self._protocol))
        broker = self.reads.broker
        return ClusterMetadata(
            controller_id=None,
            controller_epoch=None,
            position=None,
            cluster_id=cluster_id,
            brokers=[row for row in brokers if row.is_live],
            controller_broker=NO_CONTROLLER if broker is None else broker.broker_id,
            names=IN_KRAFT,
        )

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        keys = [change.key for change in changes]

        def read(session: BrokerSession) -> CurrentState:
            live = frozenset(row.broker_id for row in self._live_brokers(session))
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
                session, [row.broker_id for row in self._live_brokers(session)]
            )
        )

    def read_overrides(self, resources: Iterable[ResourceName], *, allow_silent: bool = False) -> CurrentOverrides:
        """Read the dynamic settings of topics from one broker, and each broker's settings from the broker itself."""
        ordered = sorted(resources)
        topics = [name for kind, name in ordered if kind == "topic"]
        broker_ids = {int(name) for kind, name in ordered if kind == "broker" and name != DEFAULT_ENTITY}
        self.sync()

        def read(session: BrokerSession) -> tuple[list[Broker], int, dict[str, dict[str, str] | None]]:
            brokers = [row for row in self._live_brokers(session) if row.broker_id in broker_ids]
            return brokers, read_last_applied(session.ask), precondition_reader.read_topic_overrides(session, topics)

        brokers, applied, of_topics = self.reads.read(read)
        ask_current = partial(_current_rates, applied + 1)
        of_brokers, reasons = ask_brokers(brokers, self._settings, BROKERS_SECONDS, ask_current)
        if reasons and not allow_silent:
            listed = "; ".join(by_reason(dict(sorted(reasons.items()))))
            raise UnreadableError(f"the configs of brokers cannot be read: {listed}")
        overrides: dict[ResourceName, Mapping[str, str] | None] = {}
        for kind, name in ordered:
            if name == DEFAULT_ENTITY:
                rates = self.reads.read(_default_rates)
                overrides[kind, name] = rates if isinstance(rates, dict) else None
            else:
                overrides[kind, name] = of_topics.get(name) if kind == "topic" else of_brokers.get(int(name))
        return overrides

    def read_topics(self, names: Sequence[str]) -> TopicReading:
        topics = self.reads.read(lambda session: read_named_topics(session, names))
        return TopicReading(
            [partition for topic in topics.values() for partition in topic.partitions],
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

    @contextmanager
    def lease(
        self, holder: LeaseHolder, timeout_seconds: float | None, notify: Callable[[str], None]
    ) -> Iterator[WarehouseLease]:
        """Hold the lease in the warehouse, where a commit writes anyway."""
        with leased(self.warehouse, holder, timeout_seconds, notify) as lease:
            yield lease

    @property
    def reads(self) -> FreshReads:
        """What reads for changes, which must not be made on an old state."""
        if self._reads is None:
            self._reads = FreshReads(bootstrap_addresses(self.bootstrap_servers), self._settings)
        return self._reads

    @property
    def _settings(self) -> dict[str, str]:
        return read_properties(self.command_config)

    @property
    def _protocol(self) -> str:
        return self._settings.get("security_protocol", "PLAINTEXT")

    def read(self, read: Callable[[BrokerSession], T]) -> T:
        """Return the result of `read` for a broker that knows everything committed before this call.

        If no broker at the given addresses catches up in time, a broker that lags behind is read. Like a broker without
        contact to the quorum's leader, it reports as unknown whatever may have changed.
        """

        def read_current(session: BrokerSession) -> T:
            if session.quorum is not None:
                catch_up(session)
            return read(session)

        return read_from_broker(bootstrap_addresses(self.bootstrap_servers), self._settings, read_current)

    def _live_brokers(self, session: BrokerSession) -> list[Broker]:
        return [row for row in read_cluster(session, self._protocol)[1] if row.is_live]

    def _caught_up(self, brokers: Sequence[Broker], end: int) -> list[Broker]:
        """Return the brokers that apply the metadata log before the offset `end` in time."""
        answers, _ = ask_brokers(brokers, self._settings, CAUGHT_UP_SECONDS, lambda ask, _: await_applied(ask, end))
        return [row for row in brokers if row.broker_id in answers]

    def _topics(self, session: BrokerSession, topic: str | None = None) -> KRaftTopicReading:
        """Read topics, and name those that this client may not describe."""
        hidden: list[QuarantinedZnode] = []

        def existing() -> frozenset[str]:
            brokers = self._live_brokers(session)
            names, faults = topics_in_log_dirs(brokers, self._settings)
            hidden.extend(faults)
            return names

        reading = read_topics(session, None if topic is None else [topic], existing)
        reading.quarantine.extend(hidden)
        return reading

    def _metadata(self, session: BrokerSession, moves: Reassignments) -> ClusterMetadata:
        cluster_id, brokers = read_cluster(session, self._protocol)
        quorum = session.quorum
        fault = session.quorum_fault
        return ClusterMetadata(
            controller_id=None if quorum is None else quorum.leader_id,
            controller_epoch=None if quorum is None else quorum.leader_epoch,
            position=None if quorum is None else quorum.high_watermark,
            cluster_id=cluster_id,
            brokers=brokers,
            requests=request_rows(moves),
            quarantine=[] if fault is None else [QuarantinedZnode(path=QUORUM, reason=fault)],
            metadata_version=read_metadata_version(session),
            voters=None if quorum is None else [*quorum.voters],
            names=IN_KRAFT,
        )

    def _read_rates(self, brokers: Sequence[Broker]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """Return the throttle rates of brokers, and why others are unknown, by broker id."""
        answers, reasons = ask_brokers(brokers, self._settings, RATES_SECONDS, read_throttle_rates)
        rates = {str(broker): own for broker, own in answers.items() if own}
        return rates, {f"broker {broker}": reason for broker, reason in reasons.items()}


@dataclass(slots=True)
class KRaftShares(Shares):
    """The topics of a large cluster in shares, and what else their readers need."""

    cluster: KRaftCluster
    """The cluster for processes in other folders, with an absolute path of client.properties."""
    topics: Sequence[Sequence[str]]
    moves: Reassignments | None
    """The reassignments before the reading, None if they are not listed."""
    addresses: Sequence[str]
    """Of the live brokers."""
    end: int | None
    """The offset before which brokers must have applied the metadata log, None if it is unknown."""
    quarantine: Sequence[QuarantinedZnode] = ()

    def read(self, number: int) -> list[Rows]:
        """Read one share from a live broker, from another one if that does not answer.

        `number` determines the broker to ask first, so that the shares are spread over all brokers.
        """
        started = time.perf_counter()
        names = self.topics[number]
        ours = {*names}
        moves = None if self.moves is None else {key: move for key, move in self.moves.items() if key[0] in ours}
        first = number % max(1, len(self.addresses))
        addresses = [
            *self.addresses[first:],
            *self.addresses[:first],
            *bootstrap_addresses(self.cluster.bootstrap_servers),
        ]

        def read(session: BrokerSession) -> KRaftTopicReading:
            if session.has_controller and self.end is not None:
                await_applied(session.ask, self.end)
            return read_share(session, names, moves if session.has_controller else None)

        settings = read_properties(on_executor(self.cluster.command_config))
        return [_rows(read_from_broker(addresses, settings, read), started)]

    def read_again(self, torn: Collection[str]) -> Rows | None:
        """Read topics once more that are `torn`, or whose reassignments have changed since the list."""
        started = time.perf_counter()

        def read(session: BrokerSession) -> Rows | None:
            after = None if self.moves is None else _running(session)
            listed = {name for names in self.topics for name in names}
            again = sorted(torn_between(self.moves, after).intersection(listed).union(torn))
            return replace(_rows(read_topics(session, again), started), torn=again) if again else None

        return self.cluster.read(read)


def _rows(reading: KRaftTopicReading, started: float) -> Rows:
    return Rows(
        topics=reading.topics,
        partitions=reading.partitions,
        quarantine=reading.quarantine,
        read_seconds=time.perf_counter() - started,
        decode_seconds=0.0,
        torn=reading.torn,
    )


def bootstrap_addresses(text: str) -> list[str]:
    """Split HOST:PORT[,...]; raise UsageError for an address without a port.

    >>> bootstrap_addresses("kafka1:9092, [::1]:9093")
    ['kafka1:9092', '[::1]:9093']
    """
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    wrong = [
        address for address in addresses if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit()
    ]
    if wrong or not addresses:
        raise UsageError(f"{option_name(BOOTSTRAP_SERVERS)} is {text!r}; expected HOST:PORT[,...] of brokers")
    return addresses


def _running(session: BrokerSession) -> Reassignments:
    """Return the running reassignments; none if they are not listed, which the reading of topics reports."""
    try:
        return read_moves(session)
    except RefusedReadError:
        return {}


def _config_defaults(session: BrokerSession) -> ConfigDefaults:
    """Return the dynamic settings of all brokers; without them, what brokers do not report themselves is assumed."""
    try:
        settings = read_default_settings(session, [*KAFKA_DEFAULTS])
    except RefusedReadError:
        settings = {}
    return ConfigDefaults(defaults=KRAFT_DEFAULTS, overrides={None: settings})


def _default_rates(session: BrokerSession) -> dict[str, str] | str:
    """Return the throttle rates that are set for all brokers, or why this client may not read them."""
    try:
        values = read_default_settings(session, [*RATES])
    except RefusedReadError as error:
        return str(error)
    return {name: value for name, value in values.items() if value is not None}


def read_throttle_rates(ask: Ask, broker: Broker) -> dict[str, str]:
    """Return the throttle rates that are set for one broker only."""
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.BROKER, str(broker.broker_id), [*RATES])])
    (result,) = ask(request).results
    if result.error_code != NO_ERROR:
        raise refused(result.error_code, "cluster", "DESCRIBE_CONFIGS")
    return {row.name: row.value for row in result.configs if row.config_source == _OF_BROKER and row.value is not None}


_OF_BROKER: Final = 2
"""`config_source` of a dynamic setting of one broker (DYNAMIC_BROKER_CONFIG)."""


def topics_in_log_dirs(
    brokers: Sequence[Broker], settings: dict[str, str]
) -> tuple[frozenset[str], list[QuarantinedZnode]]:
    """Return the topics in the log dirs of brokers that have an authorizer, and a row if some may be left out.

    A request for all topics omits, without an error, those for which the client lacks DESCRIBE. Without this check they
    would look deleted. For log dirs, DESCRIBE on the cluster is enough.
    """
    answers, faults = ask_brokers(brokers, settings, LOG_DIRS_SECONDS, _topics_of)
    guarded = any(answer is not None for answer in answers.values())
    refused = [f"broker {broker}: {fault}" for broker, fault in faults.items()]
    names = frozenset[str]().union(*(answer or () for answer in answers.values())) - {METADATA_TOPIC}
    if not refused or (answers and not guarded):
        return names, []
    reason = f"topics that this client may not describe may be left out: {abbreviate(refused)}"
    return names, [QuarantinedZnode(path=HIDDEN_TOPICS, reason=reason)]


def _topics_of(ask: Ask, broker: Broker) -> Collection[str] | None:
    """Return the topics in a broker's log dirs; None if it has no authorizer, so that nothing is left out."""
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.BROKER, str(broker.broker_id), [AUTHORIZER])])
    (result,) = ask(request).results
    if result.error_code == NO_ERROR and not any(row.value for row in result.configs):
        return None
    response = ask(DescribeLogDirsRequest(topics=None))
    if response.error_code != NO_ERROR:
        raise RefusedReadError(refusal(response.error_code, "cluster"))
    if not response.results:  # before version 3 a refusal has no error code
        raise RefusedReadError("this client needs the permission DESCRIBE on the cluster")
    return {topic.name for log_dir in response.results for topic in log_dir.topics}


def _current_rates(end: int, ask: Ask, broker: Broker) -> dict[str, str]:
    """Return the rates of a broker once it has applied the metadata log before the offset `end`."""
    await_applied(ask, end, BROKERS_SECONDS / 2)
    return read_throttle_rates(ask, broker)
