"""What a controller that stays reads of ZooKeeper: everything once, then what something has happened to.

Each reading goes into the memory, and says which partitions are not what they were. A topic is read whole where it is
new or was assigned anew, else the states alone that are in question. In: paths that watches named. Out: keys of
partitions to look at.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from kazoo.client import KazooClient
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import (
    BROKER_IDS,
    CONFIG_CHANGES,
    CONFIGS,
    TOPICS,
    read_brokers,
    read_requests,
)
from jobs.adapters.zookeeper.connection import children
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.topics import read_topic_rows
from jobs.controller.context import ControllerContext, PartitionInfo
from jobs.controller.zk_watches import ZkWatches
from schemas.rows import Key
from schemas.znodes import MalformedZnodeError, State, decode_state, read_config

_OF_TOPIC: Final = f"{TOPICS}/"


@dataclass(slots=True)
class MetadataChanges:
    """What a look has found to be other than before."""

    partitions: set[Key] = field(default_factory=set)
    requests: bool = False


@dataclass(slots=True)
class MetadataReader:
    """Reads into the memory."""

    client: KazooClient
    watches: ZkWatches
    context: ControllerContext
    started_brokers: set[int] = field(default_factory=set)
    """Brokers that started or bounced, kept until `noted`: what is read meanwhile may be lost, they must not be."""
    failed_brokers: set[int] = field(default_factory=set)
    """Brokers whose registration is no longer there, kept as long; one that bounced is among them."""
    brokers_with_new_endpoints: set[int] = field(default_factory=set)
    """Brokers whose registration was written again, as with other endpoints, kept as long."""
    undeleted_topics: set[str] = field(default_factory=set)
    """Topics that are no longer queued for deletion, kept as long."""
    newly_readable_partitions: set[Key] = field(default_factory=set)
    """Partitions whose state is legible and was not, or was not there, kept as long: who just started is told anew."""
    _watched: set[int] = field(default_factory=set)
    """Brokers whose registrations are watched: a watch of the parent does not fire when a child's data changes."""

    def load_all(self) -> MetadataChanges:
        """Read all there is, as at a take-over; who takes over introduces everybody."""
        seen = MetadataChanges()
        self.watches.watch_all()
        self._brokers(seen)
        self._topics(seen, reread=list(self.context.topics))
        self._requests(seen)
        self.acknowledge()
        return seen

    def acknowledge(self) -> None:
        """Forget who came and went, what is kept and what appeared: the caller has dealt with it."""
        (
            self.started_brokers,
            self.failed_brokers,
            self.brokers_with_new_endpoints,
            self.undeleted_topics,
            self.newly_readable_partitions,
        ) = set(), set(), set(), set(), set()

    def refresh(self, fired: Collection[str]) -> MetadataChanges:
        """Read what these paths name; requests in any case, as they are few and cheap."""
        seen = MetadataChanges()
        if any(path.startswith(BROKER_IDS) for path in fired):
            self._brokers(seen)
        changed = topics_in_paths(fired)
        if TOPICS in fired or changed:
            self._topics(seen, reread=changed)
        if CONFIG_CHANGES in fired:
            self._configs(seen)
        self._requests(seen)
        return seen

    def refresh_partitions(self, keys: Iterable[Key]) -> set[Key]:
        """Read states again; return those that are not what they were, absent topics forgotten."""
        known = [self.context.partitions[key] for key in sorted(keys) if key in self.context.partitions]
        znodes = read_many(self.client, [f"{TOPICS}/{row.topic}/partitions/{row.partition}/state" for row in known])
        changed = set()
        for row, znode in zip(known, znodes, strict=True):
            now = _with_state(row, znode.version, znode.data)
            if now == row:
                continue
            self.context.put_partition(now)
            if self.context.partitions[row.key] != row:
                changed.add(row.key)
                self._note(row, self.context.partitions[row.key])
        return changed

    def refresh_topics(self, names: Iterable[str]) -> set[Key]:
        """Read topics whole; return the partitions that are not what they were."""
        seen = MetadataChanges()
        self._topics(seen, reread=list(names))
        return seen.partitions

    def _brokers(self, seen: MetadataChanges) -> None:
        now = self._registered()
        before, self.context.brokers = self.context.brokers, now
        for broker, row in now.items():
            if broker not in before or _is_recreated(before[broker], row):
                self.started_brokers.add(broker)
            elif before[broker] != row:
                self.brokers_with_new_endpoints.add(broker)
            if broker not in before or before[broker] != row:
                seen.partitions |= self.context.of_broker(broker)
        kept = {
            broker for broker, row in now.items() if before.get(broker, {}).get("broker_epoch") == row["broker_epoch"]
        }
        gone = before.keys() - kept
        self.failed_brokers |= gone
        for broker in gone:
            self.context.remove_answers(broker)
            seen.partitions |= self.context.of_broker(broker)

    def _registered(self) -> dict[int, Row]:
        """Read registrations; whose is not watched yet is read after it is."""
        now = {row["broker_id"]: row for row in read_brokers(self.client)}
        new = now.keys() - self._watched
        if not new:
            return now
        self.watches.watch(f"{BROKER_IDS}/{broker}" for broker in new)
        self._watched |= new
        return {row["broker_id"]: row for row in read_brokers(self.client)}

    def _topics(self, seen: MetadataChanges, reread: Collection[str]) -> None:
        names = set(children(self.client, TOPICS) or ())
        for topic in self.context.topics.keys() - names:
            self.context.remove_topic(topic)
        anew = sorted((names - self.context.topics.keys()) | (names & set(reread)))
        self.watches.watch(f"{_OF_TOPIC}{name}" for name in anew if name not in self.context.topics)
        queued = self.context.topics_to_be_deleted
        for rows in read_topic_rows(self.client, anew):
            of_topic: dict[str, list[Row]] = {row["topic"]: [] for row in rows.topics}
            for row in rows.partitions:
                of_topic[row["topic"]].append(row)
            for whole in rows.topics:
                partitions = msgspec.convert(of_topic[whole["topic"]], list[PartitionInfo])
                before = {row.key: self.context.partitions.get(row.key) for row in partitions}
                whole["deletion_requested"] = whole["topic"] in queued
                changed = self.context.put_topic(whole, partitions)
                seen.partitions |= changed
                for key in changed:
                    self._note(before[key], self.context.partitions[key])

    def _note(self, before: PartitionInfo | None, now: PartitionInfo) -> None:
        if now.is_legible and not (before and before.is_legible):
            self.newly_readable_partitions.add(now.key)

    def _configs(self, seen: MetadataChanges) -> None:
        """Read the settings of all topics again: one may allow what it did not before."""
        names = sorted(self.context.topics)
        whole = []
        for name, znode in zip(names, read_many(self.client, [f"{CONFIGS}/{name}" for name in names]), strict=True):
            topic = self.context.topics[name]
            config, unread = ({}, []) if znode.data is None else read_config(znode.data)
            if unread or not topic["understood"]:
                whole.append(name)
            elif config != topic["config"]:
                self.context.topics[name] = topic | {"config": config}
                seen.partitions |= set(self.context.of_topic(name))
        if whole:
            self._topics(seen, reread=whole)

    def _requests(self, seen: MetadataChanges) -> None:
        asked_for, before = self.context.requested_partitions, self.context.admin_requests
        self.context.requests, self.context.empty_requests = read_requests(self.client)
        seen.requests = before != self.context.admin_requests
        if not seen.requests:
            return
        # what moves was judged by its request alone, and goes on once that was withdrawn
        seen.partitions |= (asked_for - self.context.requested_partitions) & self.context.moving
        queued = self.context.topics_to_be_deleted
        for name, topic in list(self.context.topics.items()):
            if topic["deletion_requested"] == (name in queued):
                continue
            self.context.topics[name] = topic | {"deletion_requested": name in queued}
            seen.partitions |= set(self.context.of_topic(name))
            if name not in queued:
                self.context.remove_deleted(name)
                self.undeleted_topics.add(name)


def topics_in_paths(paths: Iterable[str]) -> set[str]:
    """Names of the topics whose znodes are among these."""
    return {path.removeprefix(_OF_TOPIC) for path in paths if path.startswith(_OF_TOPIC)}


def _is_recreated(before: Row, now: Row) -> bool:
    """Whether a broker is to be introduced: it registered anew, or could not be told anything before."""
    return before["broker_epoch"] != now["broker_epoch"] or (now["understood"] and not before["understood"])


def _with_state(row: PartitionInfo, version: int | None, data: bytes | None) -> PartitionInfo:
    """A partition with the state that was read; without one, it is new."""
    if version is None:
        return replace(row, **dict.fromkeys((*State.__struct_fields__, "state_version")))
    try:
        state = decode_state(data)
    except MalformedZnodeError:
        return replace(row, understood=False, state_version=version)
    values = {name: getattr(state, name) for name in State.__struct_fields__}
    return replace(row, understood=bool(row.replicas), state_version=version, **values)
