"""The small part of a cluster's state, read by the driver: brokers, controller, epoch, /admin requests, migration.

Corresponds to what `KafkaController.initializeControllerContext` reads besides topics and partitions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import servers_of, sync
from jobs.adapters.zookeeper.multi_read import children_of, read_permitted
from jobs.adapters.zookeeper.znode_reads import Znode, children, read
from jobs.core.errors import UnreadableError
from jobs.core.migration_refusal import MADE_BY_HAND, UNDECODABLE
from jobs.core.option_sources import ZOOKEEPER, option_name
from schemas import znode_paths
from schemas.enums import NO_CONTROLLER, UNKNOWN_EPOCH, RequestKind
from schemas.kafka_decode_failures import ignored_reassignment, impact_of
from schemas.rows import Broker, QuarantinedZnode, ZnodeRequest, topics_queued_for_deletion
from schemas.znode_codecs import (
    FORBIDDEN,
    FORBIDDEN_REASON,
    BrokerRegistration,
    ControllerRegistration,
    MalformedZnodeError,
    TopicPartition,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_migration,
    printable,
    read_partitions,
)

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = znode_paths.BROKER_IDS
TOPICS: Final = znode_paths.TOPICS
CONFIGS: Final = "/config/topics"
CONFIG_CHANGES: Final = "/config/changes"
CLUSTER_ID: Final = "/cluster/id"
MIGRATION: Final = "/migration"
REASSIGN: Final = znode_paths.REASSIGN_PARTITIONS
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
DELETE_TOPICS: Final = "/admin/delete_topics"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"

_UNREADABLE_CONTROLLER: Final = -2
_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_ID: Final = 2**31 - 1

T = TypeVar("T")


@dataclass(slots=True)
class ClusterState:
    """A cluster's small state; `epoch_version` is -1 and `epoch` is 0 before the first controller."""

    controller: ControllerRegistration
    controller_version: int | None
    epoch: int
    epoch_version: int
    cluster_id: str | None
    migration: str | None
    """The sign of a migration to KRaft or of a persistent /controller; see `jobs.core.migration_refusal`."""
    brokers: list[Broker]
    requests: list[ZnodeRequest] = field(default_factory=list)
    quarantine: list[QuarantinedZnode] = field(default_factory=list)
    zxid: int = 0

    @property
    def controller_id(self) -> int | None:
        """Broker id in /controller; None if the znode cannot be decoded."""
        return None if self._is_opaque(CONTROLLER) else self.controller.broker_id

    @property
    def controller_epoch(self) -> int | None:
        """Number in /controller_epoch; None if the znode cannot be decoded."""
        return None if self._is_opaque(CONTROLLER_EPOCH) else self.epoch

    def _is_opaque(self, path: str) -> bool:
        return any(row.path == path for row in self.quarantine)

    @property
    def live(self) -> dict[int, int]:
        """Broker epochs of the registered brokers by broker id, including brokers whose data cannot be decoded."""
        return {row.broker_id: row.zk_broker_epoch for row in self.brokers}

    @property
    def deleting(self) -> frozenset[str]:
        """Topics queued for deletion."""
        return topics_queued_for_deletion(self.requests)


class EmptyRequest(NamedTuple):
    """A request or notification that is empty or cannot be decoded; Kafka treats both as empty."""

    path: str
    version: int
    fault: str | None
    """Reason why it cannot be decoded; None if it is empty."""


_SAFE_TO_DELETE: Final = re.compile(rf"{REASSIGN}|{PREFERRED_ELECTION}|{FEATURE}|({ISR_CHANGES}|{LOG_DIR_EVENTS})/.+")
"""Znodes that Kafka's controller creates again, or whose request can be submitted again."""


def quarantine_row(znode: Znode, reason: str, *, hide_data: bool = False) -> QuarantinedZnode:
    """Return the row of a znode that could not be decoded; its data is hidden if it may contain secrets."""
    effect = impact_of(znode.path, znode.data)
    return QuarantinedZnode(
        path=znode.path,
        data=None if hide_data else printable(znode.data),
        reason=reason,
        blocks=effect and effect.value,
        mend=_remedy(znode) if effect else None,
    )


def _remedy(znode: Znode) -> str | None:
    """Return the zookeeper-shell.sh command that removes a blocking znode without loss, None if an operator must
    decide.

    A registration owned by a session belongs to a running process, which must be stopped first.
    """
    is_held = znode.stat is not None and bool(znode.stat.ephemeralOwner)
    is_leftover = znode.path.startswith(f"{BROKER_IDS}/") and not is_held
    if is_leftover or znode.path == CONTROLLER or _SAFE_TO_DELETE.fullmatch(znode.path):
        return f"delete {quote(znode.path)}"
    return None


class _Quarantine(list[QuarantinedZnode]):
    """Rows of QUARANTINE; `decoded` appends a row for each znode that cannot be decoded."""

    def decoded(self, znode: Znode, decode: Callable[[bytes | None], T], otherwise: T) -> T:
        try:
            return decode(znode.data) if znode.stat is not None else otherwise
        except MalformedZnodeError as error:
            self.append(quarantine_row(znode, str(error)))
            return otherwise


def read_cluster(client: KazooClient) -> ClusterState:
    """Read the whole ClusterState; raise UnreadableError if no cluster stores its metadata there."""
    sync(client)
    zxid = client.last_zxid
    names = children(client, BROKER_IDS)
    if names is None:
        raise UnreadableError(
            f"{BROKER_IDS} does not exist at {servers_of(client)}{client.chroot}: no Kafka cluster keeps its metadata "
            f"there; check the chroot in {option_name(ZOOKEEPER)}, HOST:PORT[,...][/chroot]",
        )
    quarantine = _Quarantine()
    state = _read_controller(client, quarantine)
    state.brokers = [*_brokers(_existing(client, BROKER_IDS, names), quarantine)]
    state.requests = [*_requests(client, quarantine, [])]
    _quarantine_kafka_only(client, quarantine)
    state.quarantine = quarantine
    state.zxid = zxid
    return state


def _quarantine_kafka_only(client: KazooClient, quarantine: _Quarantine) -> None:
    """Quarantine znodes that only Kafka reads, and notifications with invalid names, if they stop its controller."""
    notifications = [
        f"{folder}/{name}"
        for folder in (ISR_CHANGES, LOG_DIR_EVENTS)
        for name in _listed(client, folder, _Quarantine())
    ]
    quarantined_paths = {row.path for row in quarantine}
    for znode in read_permitted(client, [FEATURE, PRODUCER_IDS, REASSIGN, PREFERRED_ELECTION, *notifications]):
        is_new_block = znode.path == PRODUCER_IDS and znode.data is None
        if znode.stat is None or is_new_block or znode.path in quarantined_paths:
            continue
        if impact_of(znode.path, znode.data):
            quarantine.append(quarantine_row(znode, "Kafka's controller cannot read it, or its name"))
    for znode in _quotas_and_credentials(client):
        if impact_of(znode.path, znode.data):
            reason = "Kafka cannot read it: a value under config is not a string"
            quarantine.append(quarantine_row(znode, reason, hide_data=True))


def _quotas_and_credentials(client: KazooClient) -> Iterator[Znode]:
    """Yield the config znodes of users, clients and IP addresses, including the znodes of a user's clients.

    Znodes that only brokers may list or read, as Kafka sets for users, yield nothing or no data.
    """
    folders = [f"/config/{kind}" for kind in ("users", "clients", "ips")]
    paths = _below(client, folders)
    paths += _below(client, [f"{path}/clients" for path in paths])
    return (znode for znode in read_permitted(client, paths) if znode.stat is not None)


def _below(client: KazooClient, folders: Sequence[str]) -> list[str]:
    names_by_folder = zip(folders, children_of(client, folders, permitted=True), strict=True)
    return [f"{folder}/{name}" for folder, names in names_by_folder for name in names]


def read_cluster_id(client: KazooClient) -> str | None:
    """Return the cluster's id, None if it does not exist, or cannot be read or decoded."""
    (znode,) = read_permitted(client, [CLUSTER_ID])
    return _Quarantine().decoded(znode, decode_cluster_id, None)


def read_brokers(client: KazooClient) -> list[Broker]:
    """Return the brokers registered now; children of /brokers/ids that are no broker ids are left out."""
    client.sync_async("/")  # a session's requests are answered in order, so there is no need to wait for this one
    return [*_brokers(_existing(client, BROKER_IDS, children(client, BROKER_IDS) or []), _Quarantine())]


def broker_epochs(client: KazooClient) -> dict[int, int]:
    """Return broker epochs (czxids) of the brokers registered now, including those that cannot be decoded."""
    client.sync_async("/")  # as in `read_brokers`
    return _epochs(_existing(client, BROKER_IDS, map(str, sorted(registered_brokers(client)))))


def _epochs(registrations: Iterable[Znode]) -> dict[int, int]:
    return {int(znode.path.rsplit("/", 1)[1]): znode.stat.czxid for znode in registrations if znode.stat}


def registered_brokers(client: KazooClient) -> frozenset[int]:
    """Return the ids of the brokers registered now, including those that cannot be decoded."""
    return frozenset(int(name) for name in children(client, BROKER_IDS) or () if _is_broker_id(name))


def topics_to_delete(client: KazooClient) -> list[str]:
    """Return the topics queued for deletion; none if an ACL forbids listing them.

    Changing a queued topic is harmless. Code that deletes topics reads the requests.
    """
    return _listed(client, DELETE_TOPICS, _Quarantine())


def brokers_and_deletions(client: KazooClient, broker_ids: Iterable[int]) -> tuple[dict[int, int], list[str]]:
    """Return the broker epochs of the registered brokers among these, and the topics queued for deletion.

    Return what `broker_epochs` and `topics_to_delete` return, and wait for ZooKeeper once instead of three times.
    """
    client.sync_async("/")  # as in `read_brokers`
    deletions = client.get_children_async(DELETE_TOPICS)
    epochs = _epochs(_existing(client, BROKER_IDS, map(str, sorted(broker_ids))))
    return epochs, _listed(client, DELETE_TOPICS, _Quarantine(), deletions)


def _read_controller(client: KazooClient, quarantine: _Quarantine) -> ClusterState:
    """Read the epoch first: a controller that takes over afterwards changes its version, so a multi is refused.

    The version of /controller does not show a take-over: a znode that is created again begins with version 0.
    """
    epoch = read(client, CONTROLLER_EPOCH)
    controller = read(client, CONTROLLER)
    cluster_id, migration = read_permitted(client, [CLUSTER_ID, MIGRATION])
    registered = quarantine.decoded(controller, decode_controller, ControllerRegistration(NO_CONTROLLER, -1))
    return ClusterState(
        controller=registered,
        controller_version=controller.version,
        epoch=quarantine.decoded(epoch, decode_epoch, 0),
        epoch_version=-1 if epoch.version is None else epoch.version,
        cluster_id=quarantine.decoded(cluster_id, decode_cluster_id, None),
        migration=_migration(controller, registered, _kraft_controller(migration, quarantine)),
        brokers=[],
    )


def _kraft_controller(migration: Znode, quarantine: _Quarantine) -> int:
    """Return the KRaft controller in /migration, or a sentinel if /migration cannot be decoded and may contain one."""
    return quarantine.decoded(migration, decode_migration, -1 if migration.stat is None else _UNREADABLE_CONTROLLER)


def _migration(controller: Znode, registered: ControllerRegistration, kraft_controller: int) -> str | None:
    """Describe the sign of a migration to KRaft, None if there is none."""
    if kraft_controller == _UNREADABLE_CONTROLLER:
        return f"{MIGRATION} {UNDECODABLE}"
    if kraft_controller >= 0:
        return f"{MIGRATION} names KRaft controller {kraft_controller}"
    if registered.kraft_controller_epoch > 0:
        return f"{CONTROLLER} carries kraftControllerEpoch {registered.kraft_controller_epoch}"
    if controller.stat and not controller.stat.ephemeralOwner:
        return f"{CONTROLLER} {MADE_BY_HAND}"
    return None


def _listed(
    client: KazooClient,
    folder: str,
    quarantine: _Quarantine,
    pending: Any = None,  # noqa: ANN401 - kazoo's IAsyncResult is untyped
) -> list[str]:
    """Return the names in a folder; one that an ACL forbids listing is quarantined."""
    try:
        return children(client, folder, pending) or []
    except UnreadableError:
        quarantine.append(QuarantinedZnode(path=folder, reason=FORBIDDEN_REASON))
        return []


def _existing(client: KazooClient, parent: str, names: Iterable[str]) -> Iterator[Znode]:
    """Yield the znodes of these names that still exist; one may be deleted between listing and reading."""
    znodes = read_permitted(client, [f"{parent}/{name}" for name in names])
    return (znode for znode in znodes if znode.stat is not None)


def _brokers(znodes: Iterable[Znode], quarantine: _Quarantine) -> Iterator[Broker]:
    """Yield one row per broker; a child whose name is not a broker id in Kafka's form is only quarantined."""
    for znode in znodes:
        name = znode.path.rsplit("/", 1)[1]
        if _is_broker_id(name):
            yield _broker(int(name), znode, quarantine)
        else:
            reason = f"{name[:300]!r} is no broker id: a number up to {_LARGEST_ID} was expected"
            quarantine.append(quarantine_row(znode, reason))


def _is_broker_id(name: str) -> bool:
    return bool(_BROKER_ID.fullmatch(name)) and int(name) <= _LARGEST_ID


def _broker(broker_id: int, znode: Znode, quarantine: _Quarantine) -> Broker:
    registered: BrokerRegistration | None = quarantine.decoded(znode, decode_broker, None)
    epoch = znode.stat.czxid if znode.stat else UNKNOWN_EPOCH
    if registered is None:
        return Broker(broker_id=broker_id, broker_epoch=epoch, state_version=znode.version, understood=False)
    return Broker(
        broker_id=broker_id,
        broker_epoch=epoch,
        state_version=znode.version,
        host=registered.host,
        port=registered.port,
        endpoints=[*registered.endpoints],
        rack=registered.rack,
        understood=True,
    )


def _requests(client: KazooClient, quarantine: _Quarantine, empty: list[EmptyRequest]) -> Iterator[ZnodeRequest]:
    """Yield the requests; append empty requests to `empty`."""
    # all lists are on their way before the first one is awaited
    lists = {path: client.get_children_async(path) for path in (DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS)}
    deletions, isr_changes, log_dir_events = (
        _listed(client, path, quarantine, pending) for path, pending in lists.items()
    )
    reassign, election = read_permitted(client, [REASSIGN, PREFERRED_ELECTION])
    yield from _partition_requests(reassign, RequestKind.REASSIGN, quarantine, empty)
    yield from _partition_requests(election, RequestKind.PREFERRED_ELECTION, quarantine, empty)
    for topic in deletions:
        yield ZnodeRequest(kind=RequestKind.DELETE_TOPIC.value, topic=topic, path=f"{DELETE_TOPICS}/{topic}")
    for znode in _existing(client, ISR_CHANGES, isr_changes):
        yield from _partition_requests(znode, RequestKind.ISR_CHANGE, quarantine, empty)
    for znode in _existing(client, LOG_DIR_EVENTS, log_dir_events):
        event = quarantine.decoded(znode, decode_log_dir_event, None)
        if event is None and znode.data is not FORBIDDEN:
            empty.append(_empty_requests(znode, quarantine))
        elif event is not None:
            yield ZnodeRequest(kind=RequestKind.LOG_DIR.value, broker_id=event.broker, path=znode.path)


def _empty_requests(znode: Znode, quarantine: _Quarantine) -> EmptyRequest:
    faults = (row.reason for row in quarantine if row.path == znode.path)
    return EmptyRequest(znode.path, znode.stat.version if znode.stat else -1, next(faults, None))


class ReadRequests(NamedTuple):
    """The requests in /admin and in the notification znodes."""

    requests: list[ZnodeRequest]
    empty: list[EmptyRequest]
    """Znodes without a request, or that cannot be decoded."""
    forbidden: frozenset[str]
    """Znodes and folders that an ACL forbids reading: the requests in them are unknown."""


def read_requests(client: KazooClient) -> ReadRequests:
    """Read the requests in /admin and in the notification znodes."""
    empty: list[EmptyRequest] = []
    quarantine = _Quarantine()
    requests = [*_requests(client, quarantine, empty)]
    return ReadRequests(requests, empty, frozenset(row.path for row in quarantine if row.reason == FORBIDDEN_REASON))


def ignored_by_kafka(reason: str) -> str:
    """Return the message that Kafka's controller carries out no entry of /admin/reassign_partitions, and why."""
    return f"Kafka's controller ignores the whole request: {reason}"


def ignored_request(client: KazooClient) -> str | None:
    """Return why the controller ignores /admin/reassign_partitions; None if it reads it, or is not a broker."""
    controller, (request,) = read(client, CONTROLLER), read_permitted(client, [REASSIGN])
    is_read = request.stat is not None and request.data is not FORBIDDEN
    reason = ignored_reassignment(request.data) if is_read else None
    if reason is None or controller.stat is None:
        return None
    try:
        broker = decode_controller(controller.data).broker_id
    except MalformedZnodeError:
        return None
    return ignored_by_kafka(reason) if broker in broker_epochs(client) else None


def reassign_requests(client: KazooClient) -> dict[tuple[str, int], list[int]] | None:
    """Return the targets in /admin/reassign_partitions by topic and partition, None if it cannot be decoded."""
    (znode,) = read_permitted(client, [REASSIGN])
    try:
        orders, _ = read_partitions(znode.data) if znode.stat is not None else ([], [])
    except MalformedZnodeError:
        return None
    return {(order.topic, order.partition): order.replicas or [] for order in orders}


def _partition_requests(
    znode: Znode, kind: RequestKind, quarantine: _Quarantine, empty: list[EmptyRequest]
) -> Iterator[ZnodeRequest]:
    nothing: tuple[list[TopicPartition], list[str]] = ([], [])
    requests, unread = quarantine.decoded(znode, read_partitions, nothing)
    reason = ignored_reassignment(znode.data) if kind is RequestKind.REASSIGN and requests else None
    if reason or unread:
        quarantine.append(quarantine_row(znode, "; ".join([*([ignored_by_kafka(reason)] if reason else []), *unread])))
    if znode.stat is not None and not requests and znode.data is not FORBIDDEN:
        empty.append(_empty_requests(znode, quarantine))
    for request in requests:
        yield ZnodeRequest(
            kind=kind.value,
            topic=request.topic,
            partition=request.partition,
            replicas=request.replicas or ([] if kind is RequestKind.REASSIGN else None),
            path=znode.path,
        )
