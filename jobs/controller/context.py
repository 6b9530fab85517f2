"""The last survey of a controller that stays: what it knows of the cluster, and which partitions a broker concerns.

Corresponds to `ControllerContext`. Nothing is decided by it alone: what is written is checked against the versions
known here, and what turns out to be out of date is read again. Of a million partitions a broker's failure concerns
those it holds, and only these are looked at; so brokers know their partitions. In: rows as `adapters.zookeeper` reads
them. Out: rows of the tables that `planner.reconciliation` takes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import EmptyRequest
from schemas.enums import RequestKind
from schemas.notices import LEADER_AND_ISR, UPDATE_METADATA, Notice
from schemas.rows import Key

FAILED: Final = "failed_replicas"

_ADMIN_REQUESTS: Final = frozenset({RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION, RequestKind.DELETE_TOPIC})


class PartitionInfo(Struct, frozen=True, kw_only=True, gc=False):
    """One partition as ZooKeeper has it; the columns of PARTITIONS that are read, not derived."""

    topic: str
    partition: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    topic_version: int
    understood: bool
    leader: int | None = None
    isr: list[int] | None = None
    leader_epoch: int | None = None
    controller_epoch: int | None = None
    state_version: int | None = None
    leader_recovery_state: int | None = None

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def brokers(self) -> set[int]:
        """Whom it names."""
        leader = () if self.leader is None or self.leader < 0 else (self.leader,)
        return {*self.replicas, *(self.isr or ()), *leader}

    @property
    def had_state(self) -> bool:
        """Whether there was a state znode when it was read, legible or not."""
        return self.leader is not None or self.state_version is not None

    @property
    def is_legible(self) -> bool:
        """Whether there is a state that was understood: one that brokers can be told."""
        return self.understood and self.leader is not None

    @property
    def is_moving(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass(slots=True)
class ControllerContext:
    """All that is known, kept up to date row by row."""

    brokers: dict[int, Row] = field(default_factory=dict)
    topics: dict[str, Row] = field(default_factory=dict)
    partitions: dict[Key, PartitionInfo] = field(default_factory=dict)
    requests: list[Row] = field(default_factory=list)
    empty_requests: list[EmptyRequest] = field(default_factory=list)
    """Requests and notifications that ask for nothing."""
    failed: dict[Key, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Brokers whose log dir failed for a partition, as they answered (`replicasOnOfflineDirs`)."""
    stopped: dict[Key, dict[int, int]] = field(default_factory=dict)
    """The leader epoch at which a broker said that it had stopped a replica and deleted its log, by broker."""
    moving: set[Key] = field(default_factory=set)
    dirty_brokers: set[int] = field(default_factory=set)
    """Brokers whose partitions have changed; whoever looks after that takes them out again."""
    lost_states: set[Key] = field(default_factory=set)
    """Partitions that had a state and have none now: they are not new, and nobody knows who may lead them."""
    latest_epoch: int = 0
    """The latest controller epoch that a state has carried."""
    _preferred_counts: Counter[int] = field(default_factory=Counter)
    """How many partitions each broker is the preferred replica of."""
    _not_led_by_preferred: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    """Which of them others lead, or nobody."""
    _partitions_by_broker: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _partitions_by_topic: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def of_broker(self, broker_id: int) -> set[Key]:
        """The partitions that name a broker."""
        return self._partitions_by_broker[broker_id]

    def of_topic(self, topic: str) -> list[Key]:
        return [(topic, partition) for partition in sorted(self._partitions_by_topic[topic])]

    def of_kind(self, kind: RequestKind) -> list[Row]:
        return [row for row in self.requests if row["kind"] == kind]

    @property
    def admin_requests(self) -> list[Row]:
        """Requests to do something: not the notifications, of which there may be very many."""
        return [row for row in self.requests if row["kind"] in _ADMIN_REQUESTS]

    @property
    def requested_partitions(self) -> set[Key]:
        """Partitions that these name."""
        return {(row["topic"], row["partition"]) for row in self.admin_requests if row.get("partition") is not None}

    @property
    def topics_to_be_deleted(self) -> set[str]:
        """Topics that are queued for deletion."""
        return {row["topic"] for row in self.of_kind(RequestKind.DELETE_TOPIC)}

    def put_topic(self, topic: Row, partitions: Iterable[PartitionInfo]) -> set[Key]:
        """Take in a topic as a whole; return the partitions that are not what they were, all where its settings are."""
        name = topic["topic"]
        is_set_otherwise = self.topics.get(name, topic).get("config") != topic.get("config")
        if _is_another(self.topics.get(name, topic), topic):
            self.remove_topic(name)  # nothing that is known of the former one holds
        before = {key: self.partitions[key] for key in self.of_topic(name)}
        after = {row.key: row for row in partitions}
        self.topics[name] = topic
        for key in before.keys() - after.keys():
            self._remove_partition(key)
        changed = {key for key, row in after.items() if before.get(key) != row}
        for key in changed:
            self.put_partition(after[key])
        if is_set_otherwise:
            return {*after}
        return {key for key in changed if before.get(key) != self.partitions[key]}

    def put_partition(self, row: PartitionInfo) -> None:
        """Take in a partition; one that lost its state is not understood until it has one, or its topic goes."""
        before = self.partitions.get(row.key)
        if row.leader is not None:
            self.lost_states.discard(row.key)
        elif row.state_version is None and (row.key in self.lost_states or (before is not None and before.had_state)):
            self.lost_states.add(row.key)
            row = replace(row, understood=False)
        named, now_named = before.brokers if before else set(), row.brokers
        for broker in named - now_named:
            self._partitions_by_broker[broker].discard(row.key)
        for broker in now_named - named:
            self._partitions_by_broker[broker].add(row.key)
        self.dirty_brokers |= now_named
        self.latest_epoch = max(self.latest_epoch, row.controller_epoch or 0)
        self._recount(before, row)
        self.partitions[row.key] = row
        self._partitions_by_topic[row.topic].add(row.partition)
        (self.moving.add if row.is_moving else self.moving.discard)(row.key)

    def remove_topic(self, topic: str) -> None:
        """Let go of a topic that is no longer there."""
        for key in self.of_topic(topic):
            self._remove_partition(key)
        self.topics.pop(topic, None)
        self._partitions_by_topic.pop(topic, None)

    def _remove_partition(self, key: Key) -> None:
        row = self.partitions.pop(key, None)
        self._recount(row, None)
        for broker in row.brokers if row else ():
            self._partitions_by_broker[broker].discard(key)
        self.stopped.pop(key, None)
        self._partitions_by_topic[key[0]].discard(key[1])
        self.lost_states.discard(key)
        self.moving.discard(key)
        self.failed.pop(key, None)

    def _recount(self, before: PartitionInfo | None, now: PartitionInfo | None) -> None:
        """Count a partition for its preferred replica."""
        if before is not None and before.replicas:
            self._preferred_counts[before.replicas[0]] -= 1
            self._not_led_by_preferred[before.replicas[0]].discard(before.key)
        if now is not None and now.replicas:
            self._preferred_counts[now.replicas[0]] += 1
            if now.leader is not None and now.leader != now.replicas[0]:
                self._not_led_by_preferred[now.replicas[0]].add(now.key)

    def imbalance(self) -> dict[int, tuple[int, set[Key]]]:
        """Of each broker, how many partitions prefer it, and which of them it does not lead.

        As `planner.leadership.imbalance` counts: without topics that are queued for deletion, and new partitions lead
        nowhere else.
        """
        queued = {key for topic in self.topics_to_be_deleted for key in self.of_topic(topic)}
        left = Counter(self.partitions[key].replicas[0] for key in queued if self.partitions[key].replicas)
        return {
            broker: (count - left[broker], self._not_led_by_preferred[broker] - queued)
            for broker, count in self._preferred_counts.items()
            if count > left[broker]
        }

    def remove_answers(self, broker_id: int) -> None:
        """A broker that has registered anew, or is gone, begins anew with its log dirs, and with replicas that leave.

        These it is told of as of all others; who deleted a replica of a topic that goes is not told of that again.
        """
        for brokers in self.failed.values():
            brokers.discard(broker_id)
        for key, epochs in list(self.stopped.items()):
            if epochs.get(broker_id, -1) >= 0:
                del epochs[broker_id]
                if not epochs:
                    del self.stopped[key]

    def remove_deleted(self, topic: str) -> None:
        """A topic that is no longer queued for deletion begins anew with its replicas."""
        for key in self.of_topic(topic):
            self.stopped.pop(key, None)

    def is_queued(self, topic: str) -> bool:
        """Whether a topic is queued for deletion."""
        return bool(self.topics.get(topic, {}).get("deletion_requested"))

    def is_being_deleted(self, row: PartitionInfo) -> bool:
        """Whether a partition is to be deleted, or is already: its replicas are told nothing that would start them."""
        return self.is_queued(row.topic) and not (row.is_moving and row.had_state)

    def topic_id(self, topic: str) -> str | None:
        topic_id: str | None = self.topics.get(topic, {}).get("topic_id")
        return topic_id

    @property
    def live(self) -> list[int]:
        """Brokers that are registered and understood, ascending: those that can be told."""
        return sorted(broker for broker, row in self.brokers.items() if row["understood"])

    def rows_of(self, keys: Collection[Key]) -> list[Any]:
        """Partitions, as rows of PARTITIONS with FAILED."""
        rows: list[Any] = [self.partitions[key] for key in sorted(keys) if key in self.partitions]
        if not any(self.failed.values()):
            return rows
        return [asdict(row) | {FAILED: sorted(self.failed.get(row.key, ()))} for row in rows]

    def topics_of(self, keys: Collection[Key]) -> list[Row]:
        """The topics of these partitions and of requests, as rows of TOPICS."""
        names = {topic for topic, _ in keys} | {row["topic"] for row in self.admin_requests}
        return [self.topics[name] for name in sorted(names) if name in self.topics]


def _is_another(before: Row, now: Row) -> bool:
    """Tell whether a topic was made anew under its name; an id that comes or goes is no sign of that."""
    ids = {before["topic_id"], now["topic_id"]} - {None}
    return len(ids) > 1 or before["topic_version"] > now["topic_version"]


def full_state_for(memory: ControllerContext, broker_ids: Collection[int], keys: Iterable[Key]) -> Iterator[Notice]:
    """What brokers are told that know nothing: all metadata, and of their replicas the state.

    Corresponds to `KafkaController.onBrokerStartup`. A topic that is queued for deletion is left out, but for replicas
    of what still moves: the deletion waits for that, and nobody copies who was not told to.
    """
    to = tuple(sorted(broker_ids))
    for key in keys:
        row = memory.partitions[key]
        if not row.is_legible or memory.is_being_deleted(row):
            continue
        holders = tuple(broker for broker in to if broker in row.replicas)
        for api, brokers in ((LEADER_AND_ISR, holders), (UPDATE_METADATA, () if memory.is_queued(row.topic) else to)):
            if brokers:
                yield partition_notification(row, memory.topic_id(row.topic), api, brokers)


def partition_notification(row: PartitionInfo, topic_id: str | None, api: str, brokers: tuple[int, ...]) -> Notice:
    """What is told of a partition as it is."""
    return Notice(
        api=api,
        topic=row.topic,
        topic_id=topic_id,
        partition=row.partition,
        brokers=brokers,
        delete_partition=False,
        leader=row.leader if row.leader is not None else -1,
        leader_epoch=row.leader_epoch or 0,
        isr=row.isr or [],
        replicas=row.replicas,
        adding_replicas=row.adding_replicas,
        removing_replicas=row.removing_replicas,
        is_new=False,
        leader_recovery_state=row.leader_recovery_state or 0,
        state_version=row.state_version or 0,
    )
