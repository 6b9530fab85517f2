"""The resident controller's view of the cluster, with indexes of partitions by broker and by topic.

Corresponds to `ControllerContext`. A write is always checked against the versions known here, and partitions that turn
out to be outdated are read again. The failure of a broker concerns only the partitions that it holds, out of perhaps a
million, so partitions are indexed by broker.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from jobs.adapters.zookeeper.cluster_state import EmptyRequest
from schemas.enums import ADMIN_REQUESTS, UNKNOWN_EPOCH, RequestKind
from schemas.notices import LEADER_AND_ISR, UPDATE_METADATA, Notice
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import Broker, Change, Key, ZnodeRequest


@dataclass(slots=True)
class ControllerContext:
    """The state of the cluster, updated row by row."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    partitions: dict[Key, PartitionInfo] = field(default_factory=dict)
    requests: list[ZnodeRequest] = field(default_factory=list)
    forbidden_requests: frozenset[str] = frozenset()
    """Znodes and folders of requests that an ACL forbids reading; what they request waits."""
    not_understood: dict[int, int] = field(default_factory=dict)
    """Registered brokers whose registration cannot be read or decoded, with the broker epoch as read, which may be
    unknown. `brokers` has such a broker as it was understood last, if that was the same start; it is sent requests, and
    is not elected.
    """
    empty_requests: list[EmptyRequest] = field(default_factory=list)
    """Requests and notifications that are empty or cannot be read."""
    failed: dict[Key, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Brokers that reported a failed log dir for a partition (`ControllerContext.replicasOnOfflineDirs`)."""
    stopped: dict[Key, dict[int, int]] = field(default_factory=dict)
    """By partition and broker, the leader epoch at which the broker confirmed that it deleted its replica."""
    moving: set[Key] = field(default_factory=set)
    lost_states: set[Key] = field(default_factory=set)
    """Partitions that had a state and have none now. They are not new, and which replica may lead them is unknown."""
    latest_epoch: int = 0
    """The latest controller epoch in any partition state."""
    shutting_down: set[int] = field(default_factory=set)
    """Registered brokers that are shutting down in a controlled way (`ControllerContext.shuttingDownBrokerIds`)."""
    topics_without_id: set[str] = field(default_factory=set)
    former_topic_ids: dict[str, str] = field(default_factory=dict)
    """Ids of topics whose znode has lost its id, as an older tool writes it: brokers still know the topic by it."""
    _topics_by_id: dict[str, str] = field(default_factory=dict)
    _preferred_counts: Counter[int] = field(default_factory=Counter)
    """By broker, the number of partitions whose preferred replica it is."""
    _not_led_by_preferred: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    """Partitions whose preferred replica is this broker, but which another broker leads, or which have no leader."""
    _partitions_by_broker: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _partitions_by_topic: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def of_broker(self, broker_id: int) -> set[Key]:
        """The partitions that reference a broker."""
        return self._partitions_by_broker[broker_id]

    @property
    def dead_brokers(self) -> list[int]:
        """Unregistered brokers that partitions refer to."""
        by_broker = [*self._partitions_by_broker.items()]
        return [broker for broker, keys in by_broker if keys and broker not in self.brokers]

    def led_by(self, broker_id: int) -> list[Key]:
        """The partitions that a broker leads, in order."""
        return sorted(key for key in self.of_broker(broker_id) if self.partitions[key].leader == broker_id)

    def of_topic(self, topic: str) -> list[Key]:
        return [(topic, partition) for partition in sorted(self._partitions_by_topic[topic])]

    def of_kind(self, kind: RequestKind) -> list[ZnodeRequest]:
        return [row for row in self.requests if row.kind == kind]

    def requested(self, kind: RequestKind) -> dict[Key, list[int]]:
        """Return the partitions that requests of a kind name, with the requested replicas if there are any."""
        return {row.key: row.replicas or [] for row in self.of_kind(kind)}

    @property
    def admin_requests(self) -> list[ZnodeRequest]:
        """Requests for a change, without the notifications, because there may be very many."""
        return [row for row in self.requests if row.kind in ADMIN_REQUESTS]

    @property
    def requested_partitions(self) -> set[Key]:
        """Partitions that requests name."""
        return {row.key for row in self.admin_requests if row.partition is not None}

    @property
    def topics_to_be_deleted(self) -> frozenset[str]:
        """Topics that are queued for deletion."""
        return frozenset(row.key[0] for row in self.of_kind(RequestKind.DELETE_TOPIC))

    def put_topic(self, topic: TopicInfo, partitions: Iterable[PartitionInfo]) -> set[Key]:
        """Store a topic with all its partitions; return those that changed.

        If its settings changed, all of its partitions count as changed.
        """
        name = topic.topic
        config_changed = self.topics.get(name, topic).config != topic.config
        if _is_recreated(self.topics.get(name, topic), topic):
            self.remove_topic(name)  # it is another topic under the same name
        former_id = self.topic_id(name)
        if topic.topic_id is not None:
            self.former_topic_ids.pop(name, None)
        elif former_id is not None:
            self.former_topic_ids[name] = former_id
        before = {key: self.partitions[key] for key in self.of_topic(name)}
        after = {row.key: row for row in partitions}
        self._put_topic_id(name, topic.topic_id)
        (self.topics_without_id.add if topic.topic_id is None else self.topics_without_id.discard)(name)
        self.topics[name] = topic
        for key in before.keys() - after.keys():
            self._remove_partition(key)
        changed = {key for key, row in after.items() if before.get(key) != row}
        for key in changed:
            self.put_partition(after[key])
        if config_changed:
            return {*after}
        return {key for key in changed if before.get(key) != self.partitions[key]}

    def put_partition(self, row: PartitionInfo) -> None:
        """Store a partition.

        A partition that lost its state counts as not understood until it has one again, or its topic is removed.
        """
        key = row.key  # one object for all indexes
        before = self.partitions.get(key)
        if row.leader is not None:
            self.lost_states.discard(key)
        elif row.state_version is None and (key in self.lost_states or (before is not None and before.had_state)):
            self.lost_states.add(key)
            row = replace(row, understood=False)
        brokers_before, brokers_now = before.brokers if before else set(), row.brokers
        for broker in brokers_before - brokers_now:
            self._partitions_by_broker[broker].discard(key)
        for broker in brokers_now - brokers_before:
            self._partitions_by_broker[broker].add(key)
        if row.controller_epoch is not None:
            self.latest_epoch = max(self.latest_epoch, row.controller_epoch)
        self._recount(key, before, row)
        self.partitions[key] = row
        self._partitions_by_topic[row.topic].add(row.partition)
        (self.moving.add if row.is_being_reassigned else self.moving.discard)(key)

    def apply(self, changes: Iterable[Change], controller_epoch: int) -> set[Key]:
        """Store written changes; return their partitions, for which a next step may be due."""
        written = [(change, row) for change in changes if (row := self.partitions.get(change.key)) is not None]
        for change, row in written:  # without those whose topic was removed in the meantime
            self.put_partition(
                replace(
                    row,
                    replicas=change.replicas_after,
                    adding_replicas=change.adding_after,
                    removing_replicas=change.removing_after,
                    leader=change.leader_after,
                    isr=change.isr_after,
                    leader_epoch=change.leader_epoch_after,
                    leader_recovery_state=change.leader_recovery_state_after,
                    controller_epoch=controller_epoch,
                    state_version=change.state_znode_version + 1,
                )
            )
        return {change.key for change, _ in written}

    def mark_lost(self, key: Key) -> None:
        """Note that a partition without a state had one: it is not new."""
        self.lost_states.add(key)
        self.put_partition(self.partitions[key])

    def remove_topic(self, topic: str) -> None:
        """Remove a topic that no longer exists."""
        for key in self.of_topic(topic):
            self._remove_partition(key)
        self._put_topic_id(topic, None)
        self.topics_without_id.discard(topic)
        self.former_topic_ids.pop(topic, None)
        self.topics.pop(topic, None)
        self._partitions_by_topic.pop(topic, None)

    def _put_topic_id(self, topic: str, topic_id: str | None) -> None:
        """Index a topic by its id, and no longer by its former one."""
        former = self.topic_id(topic)
        if former is not None and former != topic_id:
            self._topics_by_id.pop(former, None)
        if topic_id is not None:
            self._topics_by_id[topic_id] = topic

    def _remove_partition(self, key: Key) -> None:
        row = self.partitions.pop(key, None)
        self._recount(key, row, None)
        for broker in row.brokers if row else ():
            self._partitions_by_broker[broker].discard(key)
        self.stopped.pop(key, None)
        self._partitions_by_topic[key[0]].discard(key[1])
        self.lost_states.discard(key)
        self.moving.discard(key)
        self.failed.pop(key, None)

    def _recount(self, key: Key, before: PartitionInfo | None, now: PartitionInfo | None) -> None:
        """Update the counts of the preferred replica."""
        if before is not None and before.replicas:
            self._preferred_counts[before.replicas[0]] -= 1
            self._not_led_by_preferred[before.replicas[0]].discard(key)
        if now is not None and now.replicas:
            self._preferred_counts[now.replicas[0]] += 1
            if now.leader is not None and now.leader != now.replicas[0]:
                self._not_led_by_preferred[now.replicas[0]].add(key)

    def imbalance(self) -> dict[int, tuple[int, set[Key]]]:
        """By broker, the number of partitions that prefer it, and how many of them it does not lead.

        Counted as in `planner.leadership.imbalance`: topics that are queued for deletion do not count, and new
        partitions do not count as led by another broker.
        """
        queued = {key for topic in self.topics_to_be_deleted for key in self.of_topic(topic)}
        queued_counts = Counter(self.partitions[key].replicas[0] for key in queued if self.partitions[key].replicas)
        return {
            broker: (count - queued_counts[broker], self._not_led_by_preferred[broker] - queued)
            for broker, count in self._preferred_counts.items()
            if count > queued_counts[broker]
        }

    def remove_responses(self, broker_id: int) -> None:
        """Forget what a broker reported, after it has registered again or failed.

        Its failed log dirs and its confirmations for replicas that leave by a reassignment are dropped: it is sent
        these requests again. Confirmations for topics that are being deleted are kept, because a broker that has
        deleted a replica is not asked for that again.
        """
        for brokers in self.failed.values():
            brokers.discard(broker_id)
        for key, epochs in list(self.stopped.items()):
            if epochs.get(broker_id, -1) >= 0:
                del epochs[broker_id]
                if not epochs:
                    del self.stopped[key]

    def remove_deleted(self, topic: str) -> None:
        """Forget which replicas of a topic are deleted, once it is no longer queued for deletion."""
        for key in self.of_topic(topic):
            self.stopped.pop(key, None)

    def is_queued(self, topic: str) -> bool:
        """Return whether a topic is queued for deletion."""
        return topic in self.topics and self.topics[topic].deletion_requested

    def is_being_deleted(self, row: PartitionInfo) -> bool:
        """Return whether a partition is being deleted, so that nothing may be sent that starts its replicas."""
        return self.is_queued(row.topic) and not (row.is_being_reassigned and row.had_state)

    def topic_id(self, topic: str) -> str | None:
        info = self.topics.get(topic)
        return None if info is None else info.topic_id

    def topic_of_id(self, topic_id: str) -> str | None:
        """Return the name of the topic with an id, None if there is none."""
        return self._topics_by_id.get(topic_id)

    @property
    def live(self) -> list[int]:
        """Brokers that are registered and understood, ascending: those that can be sent requests."""
        return sorted(broker for broker, row in self.brokers.items() if row.understood)

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker is still in the registration with this epoch."""
        return broker_id in self.brokers and self.brokers[broker_id].broker_epoch == broker_epoch


def _is_recreated(before: TopicInfo, now: TopicInfo) -> bool:
    """Return whether a topic was deleted and created again. An id that appears or disappears does not prove that."""
    created, ids = {before.czxid, now.czxid} - {None, UNKNOWN_EPOCH}, {before.topic_id, now.topic_id} - {None}
    return len(created) > 1 or len(ids) > 1 or (before.topic_version or 0) > (now.topic_version or 0)


def full_state_for(context: ControllerContext, broker_ids: Collection[int], keys: Iterable[Key]) -> Iterator[Notice]:
    """Return the full state for brokers that have none.

    It consists of the metadata of all partitions and the state of the brokers' own replicas. Corresponds to
    `KafkaController.onBrokerStartup`. A topic that is queued for deletion is left out, except for replicas of
    partitions that still move. The deletion waits for the move, and a replica copies only after a LeaderAndIsr.
    """
    recipients, recipient_ids = tuple(sorted(broker_ids)), frozenset(broker_ids)
    for key in keys:
        row = context.partitions[key]
        if not row.has_decoded_state or context.is_being_deleted(row):
            continue
        topic_id, replica_brokers = context.topic_id(row.topic), tuple(sorted(recipient_ids.intersection(row.replicas)))
        if replica_brokers:
            yield partition_notification(row, topic_id, LEADER_AND_ISR, replica_brokers)
        if recipients and not context.is_queued(row.topic):
            yield partition_notification(row, topic_id, UPDATE_METADATA, recipients)


def partition_notification(row: PartitionInfo, topic_id: str | None, api: str, brokers: tuple[int, ...]) -> Notice:
    """Make the notice of a partition's current state."""
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
