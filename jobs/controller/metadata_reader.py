"""Reads ZooKeeper into the controller's context: everything once, then what has changed.

Corresponds to `KafkaController.initializeControllerContext`. Each read updates the context and returns the partitions
that changed. A topic is read as a whole if it is new or its assignment changed; otherwise only the states in question
are read.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster_state import (
    BROKER_IDS,
    CONFIG_CHANGES,
    CONFIGS,
    DELETE_TOPICS,
    TOPICS,
    EmptyRequest,
    read_brokers,
    read_requests,
)
from jobs.adapters.zookeeper.multi_read import read_permitted
from jobs.adapters.zookeeper.topics import read_topic_rows, with_state
from jobs.adapters.zookeeper.znode_reads import Znode, children, forbidden
from jobs.controller.controller_context import ControllerContext
from jobs.controller.pending_work import DueWork
from jobs.controller.zk_watches import ZkWatches
from jobs.core.errors import UnreadableError
from jobs.runtime.console import log
from schemas.enums import UNKNOWN_EPOCH, RequestKind
from schemas.partition_info import PartitionInfo
from schemas.rows import Broker, Key, ZnodeRequest
from schemas.znode_codecs import FORBIDDEN_REASON, MalformedZnodeError, State, read_config
from schemas.znode_paths import key_of_state, state_path

_OF_TOPIC: Final = f"{TOPICS}/"

STATE_FIELDS: Final = (*State.__struct_fields__, "state_version")
"""Fields of PartitionInfo that are read from the znode of the state."""


@dataclass(slots=True)
class Observation:
    """What the reads have found for which brokers must be sent more than changed partitions."""

    started_brokers: set[int] = field(default_factory=set)
    """Brokers that started or bounced."""
    failed_brokers: set[int] = field(default_factory=set)
    """Brokers whose registration no longer exists; a broker that bounced is among them."""
    brokers_with_new_endpoints: set[int] = field(default_factory=set)
    """Brokers whose registration was rewritten, for instance with other endpoints."""
    undeleted_topics: set[str] = field(default_factory=set)
    """Topics that are no longer queued for deletion."""
    newly_readable_partitions: set[Key] = field(default_factory=set)
    """Partitions whose state has become readable or has been created; brokers that just started must be sent it."""


@dataclass(slots=True)
class MetadataReader:
    """Reads into the context."""

    client: KazooClient
    watches: ZkWatches
    context: ControllerContext
    observed: Observation = field(default_factory=Observation)
    """Collected until the cycle has handled it and begins a new one, so that nothing is lost if a later read fails."""
    _illegible_states: set[Key] = field(default_factory=set)
    """States that cannot be decoded, and are not watched yet."""
    _deletions_known: bool = False
    """Whether the topics that are queued for deletion were read at least once."""
    _watched_topics: set[str] = field(default_factory=set)
    """Topics whose znodes are watched; the context may know more, from before the take-over."""
    _watched: set[int] = field(default_factory=set)
    """Brokers whose registrations are watched: a watch of the parent does not fire when a child's data changes."""

    def load_all(self) -> DueWork:
        """Read the whole cluster, as at a take-over, after which the caller sends all brokers the full state."""
        changes = DueWork()
        self.watches.watch_all()
        self._brokers(changes)
        self._topics(changes, reread=list(self.context.topics))
        self._requests(changes)
        self._watch_illegible()
        self.observed = Observation()
        return changes

    def load_brokers(self) -> None:
        """Read the brokers before everything else, so that the controller can be announced to them."""
        self._brokers(DueWork())

    def refresh(self, fired: Collection[str]) -> DueWork:
        """Read what these paths name, and the requests, which are always few and cheap."""
        changes = DueWork()
        # a change of an ACL fires no watch
        if self.context.not_understood or any(path.startswith(BROKER_IDS) for path in fired):
            self._brokers(changes)
        changed = topics_in_paths(fired)
        if TOPICS in fired or changed:
            self._topics(changes, reread=changed)
        if CONFIG_CHANGES in fired:
            self._configs(changes)
        self._watch_illegible({key for path in fired if (key := key_of_state(path)) is not None})
        self._requests(changes)
        return changes

    def refresh_partitions(self, keys: Iterable[Key]) -> set[Key]:
        """Read states again; return the partitions that changed. Partitions of unknown topics are ignored."""
        partitions = [self.context.partitions[key] for key in sorted(keys) if key in self.context.partitions]
        znodes = read_permitted(self.client, [state_path(row.key) for row in partitions])
        changed = set()
        for row, znode in zip(partitions, znodes, strict=True):
            current = with_current_state(row, znode)
            if not self._moves_understood(row.topic):
                current = replace(current, understood=False)
            if current == row:
                continue
            self.context.put_partition(current)
            if self.context.partitions[row.key] != row:
                changed.add(row.key)
                self._note_legibility(row, self.context.partitions[row.key])
        self._watch_illegible()
        return changed

    def _moves_understood(self, topic: str) -> bool:
        return topic not in self.context.topics or self.context.topics[topic].moves_understood

    def refresh_topics(self, names: Iterable[str]) -> set[Key]:
        """Read topics as a whole; return the partitions that changed."""
        changes = DueWork()
        self._topics(changes, reread=list(names))
        self._watch_illegible()
        return changes.partitions

    def _brokers(self, changes: DueWork) -> None:
        before = self.context.brokers
        registered, unknown = self._registered(), self.context.not_understood
        if any(broker in registered and registered[broker].understood for broker in unknown):
            self._watched -= unknown.keys()  # changes to what an ACL forbids reading fire no watch
            registered = self._registered()
        self._note_unknown(registered, changes)
        current = {broker: _as_last_understood(before.get(broker), row) for broker, row in registered.items()}
        self.context.brokers = current
        for broker, row in current.items():
            if broker not in before or _has_restarted(before[broker], row):
                self.observed.started_brokers.add(broker)
            elif before[broker] != row:
                self.observed.brokers_with_new_endpoints.add(broker)
            if broker not in before or before[broker] != row:
                changes.partitions |= self.context.of_broker(broker)
        failed = {
            broker
            for broker, row in before.items()
            if not self.context.is_registered(broker, row.zk_broker_epoch)
            and not (row.broker_epoch == UNKNOWN_EPOCH and broker in current)  # it has become readable
        }
        self.observed.failed_brokers |= failed
        for broker in failed:
            self.context.remove_responses(broker)
            changes.partitions |= self.context.of_broker(broker)

    def _note_unknown(self, registered: Mapping[int, Broker], changes: DueWork) -> None:
        """Note which registrations cannot be read or decoded; warn once of each."""
        before = self.context.not_understood
        current = {broker: row.zk_broker_epoch for broker, row in registered.items() if not row.understood}
        for broker in sorted(current.keys() - before.keys()):
            log(
                f"  cannot decode the registration of broker {broker} (see `surveyor status`): it is not "
                "elected, and requests go to its previous endpoints only if it has not restarted",
                logging.WARNING,
            )
        for broker in current.keys() ^ before.keys():
            changes.partitions |= self.context.of_broker(broker)
        self.context.not_understood = current

    def _registered(self) -> dict[int, Broker]:
        """Read the registrations; one that was not watched yet is read again after its watch is set."""
        registered = {row.broker_id: row for row in read_brokers(self.client)}
        new = registered.keys() - self._watched
        if not new:
            return registered
        self.watches.watch(f"{BROKER_IDS}/{broker}" for broker in new)
        self._watched |= new
        return {row.broker_id: row for row in read_brokers(self.client)}

    def _topics(self, changes: DueWork, reread: Collection[str]) -> None:
        names = set(children(self.client, TOPICS) or ())
        for topic in self.context.topics.keys() - names:
            self.context.remove_topic(topic)
        self._watched_topics &= names
        to_read = sorted((names - self.context.topics.keys()) | (names & set(reread)))
        new = [name for name in to_read if name not in self._watched_topics]
        self.watches.watch(f"{_OF_TOPIC}{name}" for name in new)
        self._watched_topics.update(new)
        queued = self.context.topics_to_be_deleted
        for rows in read_topic_rows(self.client, to_read):
            partitions_by_topic: dict[str, list[PartitionInfo]] = {topic.topic: [] for topic in rows.topics}
            for partition in rows.partitions:
                partitions_by_topic[partition.topic].append(partition)
            for row in rows.topics:
                info = replace(row, deletion_requested=row.topic in queued)
                partitions = partitions_by_topic[info.topic]
                before = {partition.key: self.context.partitions.get(partition.key) for partition in partitions}
                changed = self.context.put_topic(info, partitions)
                changes.partitions |= changed
                for key in changed:
                    self._note_legibility(before[key], self.context.partitions[key])

    def _note_legibility(self, before: PartitionInfo | None, now: PartitionInfo) -> None:
        if now.has_decoded_state and not (before and before.has_decoded_state):
            self.observed.newly_readable_partitions.add(now.key)
        elif _is_state_illegible(now):
            self._illegible_states.add(now.key)

    def _watch_illegible(self, fired: Collection[Key] = ()) -> None:
        """Watch the states that cannot be decoded: new ones, and states whose watch has fired.

        Without a watch their repair would be noticed only at the next resync. Each new one is read again after its
        watch is set.
        """
        new, self._illegible_states = self._illegible_states, set()
        again = {key for key in fired if key in self.context.partitions} - new
        again = {key for key in again if _is_state_illegible(self.context.partitions[key])}
        self.watches.watch(state_path(key) for key in new | again)
        for key in new:
            self.watches.signal(state_path(key))

    def _configs(self, changes: DueWork) -> None:
        """Read the settings of all topics again, because one may now allow unclean elections."""
        names = sorted(self.context.topics)
        unreadable = []
        for name, znode in zip(
            names, read_permitted(self.client, [f"{CONFIGS}/{name}" for name in names]), strict=True
        ):
            topic = self.context.topics[name]
            config, unread = read_config(znode.data)
            if unread or not topic.understood:
                unreadable.append(name)
            elif config != topic.config:
                self.context.topics[name] = replace(topic, config=config)
                changes.partitions |= set(self.context.of_topic(name))
        if unreadable:
            self._topics(changes, reread=unreadable)

    def _requests(self, changes: DueWork) -> None:
        asked_for, before = self.context.requested_partitions, self.context.admin_requests
        self.context.requests, self.context.empty_requests = self._read_requests()
        changes.requests_due = before != self.context.admin_requests
        if not changes.requests_due:
            return
        # a moving partition was decided on solely by its request, so its reassignment continues once that is withdrawn
        changes.partitions |= (asked_for - self.context.requested_partitions) & self.context.moving
        queued = self.context.topics_to_be_deleted
        for name, topic in list(self.context.topics.items()):
            if topic.deletion_requested == (name in queued):
                continue
            self.context.topics[name] = replace(topic, deletion_requested=name in queued)
            changes.partitions |= set(self.context.of_topic(name))
            if name not in queued:
                self.context.remove_deleted(name)
                self.observed.undeleted_topics.add(name)

    def _read_requests(self) -> tuple[list[ZnodeRequest], list[EmptyRequest]]:
        """Read the requests; if an ACL forbids that, nothing begins, and a topic that is being deleted stays so.

        Raise UnreadableError if the topics to be deleted were never read: a controller that takes over must not start
        replicas that brokers have deleted.
        """
        requests, empty, forbidden_paths = read_requests(self.client)
        for path in sorted(forbidden_paths - self.context.forbidden_requests):
            log(f"  {path} is not read, and what it requests waits: {FORBIDDEN_REASON}", logging.WARNING)
        self.context.forbidden_requests = forbidden_paths
        if DELETE_TOPICS not in forbidden_paths:
            self._deletions_known = True
        elif self._deletions_known:
            requests += self.context.of_kind(RequestKind.DELETE_TOPIC)
        else:
            raise UnreadableError(forbidden(f"list {DELETE_TOPICS}"))
        return requests, empty


def topics_in_paths(paths: Iterable[str]) -> set[str]:
    """Return the names of the topics that these paths are of."""
    return {path.removeprefix(_OF_TOPIC).partition("/")[0] for path in paths if path.startswith(_OF_TOPIC)}


def _is_state_illegible(row: PartitionInfo) -> bool:
    return row.state_version is not None and not row.understood


def _as_last_understood(before: Broker | None, now: Broker) -> Broker:
    """Return the last decoded registration, if the current one cannot be decoded and may be of the same start."""
    if before is None or now.understood or now.broker_epoch not in {before.broker_epoch, UNKNOWN_EPOCH}:
        return now
    return before


def _has_restarted(before: Broker, now: Broker) -> bool:
    """Return whether a broker has registered again, or its registration could not be decoded before.

    Such a broker must be sent the full state.
    """
    return before.broker_epoch != now.broker_epoch or (now.understood and not before.understood)


def with_current_state(row: PartitionInfo, znode: Znode) -> PartitionInfo:
    """Return a partition with the state that was read, understood if that state is; without a state it is new."""
    if znode.version is None:
        return replace(row, **dict.fromkeys(STATE_FIELDS))
    try:
        return with_state(replace(row, understood=bool(row.replicas)), znode)
    except MalformedZnodeError:
        return replace(row, understood=False, state_version=znode.version)
