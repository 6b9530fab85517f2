"""What a controller that stays puts into the queues of the brokers: what was written, what stands, and what is to go.

Corresponds to `ControllerBrokerRequestBatch` and to who fills it: `sendUpdateMetadataRequest`, `onBrokerStartup`,
`ReplicaStateMachine` and `TopicDeletionManager`. A queue sends until it is answered, so everything is put there once
for each registration of a broker, and again where the answer was an error. In: the memory. Out: notices in queues.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.broker_requests.retries import RetryBatch, key_of
from jobs.controller.context import ControllerContext, PartitionInfo, full_state_for, partition_notification
from jobs.controller.decisions.engine import Decisions
from planner.broker_requests.notices import notices_for as due_of
from planner.reconciliation.topic_deletion import DeletionStep
from schemas.enums import LEADER_DURING_DELETE, RejectionCode
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.rows import Change, Key

Registered = frozenset[tuple[int, int]]
"""Brokers with the epochs of their registrations."""


@dataclass(slots=True)
class BrokerRequestBatch:
    """Tells the brokers of one controllership."""

    control: Controllership
    context: ControllerContext
    queues: ChannelManager
    drained_brokers: frozenset[int] = frozenset()
    """Brokers whose replicas a drain has stopped: only where they are in sync are they told LeaderAndIsr."""
    _asked_to_stop: dict[tuple[Key, int], tuple[int, int]] = field(default_factory=dict)
    """Leader epoch and broker epoch at which a replica that leaves was asked to stop, by partition and broker."""
    _deleting: dict[str, tuple[Registered, int]] = field(default_factory=dict)
    """Topics whose deletion was told, to whom, and of how many partitions: some may be added under way."""

    def send(self, notices: Sequence[Notice], alone: Collection[int] = (), introduced: Collection[int] = ()) -> None:
        """Put notices into the queues; `alone`: brokers to which it is news by itself which brokers are alive.

        `introduced`: brokers that start: all metadata comes before the states of their replicas.
        """
        alive = [row for row in self.context.brokers.values() if row["understood"]]
        if notices or alone:
            announcement = ControlBatch(self.control.controller_id, self.control.epoch, alive, notices)
            self.queues.send(announcement, alone, introduced)
        else:
            self.queues.retain(alive)  # nobody may be left to be told that the last one is gone

    def send_changes(self, changes: Sequence[Change]) -> None:
        """Tell what was just written."""
        self.send(due_of(changes, self.context.live))

    def send_full_state(self, broker_ids: Collection[int], *, have_started: bool = True) -> None:
        """Send these brokers everything, and all others which brokers are alive.

        `have_started`: they know nothing yet and answer clients, so all metadata comes first.
        """
        notices = full_state_for(self.context, broker_ids, sorted(self.context.partitions)) if broker_ids else ()
        self.send([*notices], alone=self.context.live, introduced=broker_ids if have_started else ())

    def send_metadata(self, keys: Iterable[Key]) -> None:
        """Tell everybody what is the state of these partitions now."""
        self.send(self._metadata_notices(keys))

    def resend(self, keys: Collection[Key]) -> None:
        """Tell of partitions what nobody knows whether it was told; who has it says so."""
        notices = self._metadata_notices(keys)
        for broker in self.context.live if keys else ():
            notices += self._to_replicas(broker, self.context.of_broker(broker).intersection(keys))
        self.send(notices)

    def resend_current(self, changes: Sequence[Change]) -> None:
        """Tell of changes that were written and overtaken: as things are now; who was to stop still is."""
        self.resend({change.key for change in changes})
        stops = [notice for notice in due_of(changes, self.context.live) if notice.api == STOP_REPLICA]
        rows = [self.context.partitions[notice.topic, notice.partition] for notice in stops]
        pairs = zip(rows, stops, strict=True)
        self.send([partition_notification(row, stop.topic_id, STOP_REPLICA, stop.brokers) for row, stop in pairs])

    def send_retry(self, untaken: RetryBatch) -> set[Key]:
        """Tell a broker again what it did not take, as it is now; return partitions to be looked at for it.

        Replicas that leave, and topics that are deleted, are decided on once more: that says who is to stop by now.
        """
        broker = untaken.broker
        by_api: dict[str, list[Notice]] = {LEADER_AND_ISR: [], STOP_REPLICA: [], UPDATE_METADATA: []}
        for notice in untaken.notices:
            by_api[notice.api].append(notice)
        metadata = by_api[UPDATE_METADATA]
        told = self.context.partitions if untaken.introduce else [key_of(notice) for notice in metadata]
        notices = self._metadata_notices(told, [broker])
        if untaken.introduce:
            notices += self._to_replicas(broker, self.context.of_broker(broker))
        else:
            notices += self._states_again(broker, by_api[LEADER_AND_ISR])
        # that a topic goes is said as it was: the topic may be gone by now
        goes = [n for n in metadata if n.leader == LEADER_DURING_DELETE and not self._stays(n.topic)]
        notices += [replace(notice, brokers=(broker,)) for notice in goes]
        self.send(notices, alone=[broker] if untaken.introduce else ())
        return self._stops_again(broker, by_api[STOP_REPLICA])

    def _states_again(self, broker: int, notices: Sequence[Notice]) -> list[Notice]:
        """LeaderAndIsr; what was to be new is so until it is taken."""
        new = {key_of(notice) for notice in notices if notice.is_new}
        told = self._to_replicas(broker, {*map(key_of, notices)} & self.context.of_broker(broker))
        return [replace(notice, is_new=key_of(notice) in new) for notice in told]

    def _stops_again(self, broker: int, notices: Sequence[Notice]) -> set[Key]:
        """Forget that replicas were asked to stop; who is drained is asked at once."""
        drained = []
        for notice in notices:
            key = key_of(notice)
            row = self.context.partitions.get(key)
            self._asked_to_stop.pop((key, broker), None)
            self._deleting.pop(notice.topic, None)
            if row is None or notice.delete_partition or notice.leader_epoch < 0:
                continue
            if broker in self.drained_brokers and broker not in (row.isr or ()):
                drained.append(partition_notification(row, self.context.topic_id(row.topic), STOP_REPLICA, (broker,)))
        self.send(drained)
        return {*map(key_of, notices)}

    def ask_for_log_dirs(self, broker: int) -> None:
        """Tell a broker of its replicas what it knows already: those whose log dir failed, it answers otherwise for."""
        if broker in self.context.brokers:
            self.send(self._to_replicas(broker, self.context.of_broker(broker)))

    def _to_replicas(self, broker: int, keys: Iterable[Key]) -> list[Notice]:
        """LeaderAndIsr for a broker's replicas, but for those that are to stay stopped, or are to go."""
        rows = (self.context.partitions[key] for key in keys)
        held = [
            row.key
            for row in rows
            if broker in row.replicas and not (self.context.is_being_deleted(row) or self._leaves(row, broker))
        ]
        if broker in self.drained_brokers:
            held = [key for key in held if broker in (self.context.partitions[key].isr or ())]
        return self._current_state(held, LEADER_AND_ISR, [broker])

    def stop(self, others: Sequence[Row]) -> None:
        """Ask replicas that leave to stop and to delete their logs; once under each leader epoch and registration."""
        waiting = [row for row in others if row["code"] == RejectionCode.WAITS_FOR_STOP]
        self.send([notice for row in waiting if (notice := self._stopping(row)) is not None])

    def _leaves(self, row: PartitionInfo, broker: int) -> bool:
        """Whether a replica was asked to stop as things are: told of its leader, it would begin anew."""
        return self._asked_to_stop.get((row.key, broker)) == (row.leader_epoch, self.epoch_of(broker))

    def _stopping(self, row: Row) -> Notice | None:
        key = row["topic"], row["partition"]
        epochs = {broker: (row["leader_epoch_before"], self.epoch_of(broker)) for broker in row["stop_replica_to"]}
        to = tuple(broker for broker, when in epochs.items() if self._asked_to_stop.get((key, broker)) != when)
        if not to:
            return None
        self._asked_to_stop |= {(key, broker): epochs[broker] for broker in to}
        stands = partition_notification(self.context.partitions[key], row["topic_id"], STOP_REPLICA, to)
        return replace(stands, delete_partition=True)

    def deletions(self, decided: Decisions) -> None:
        """Tell brokers to delete topics, as far as those registered now were not told yet of all that there is."""
        now: Registered = frozenset((broker, self.epoch_of(broker)) for broker in self.context.live)
        topics = [row["topic"] for row in decided.deletions if row["step"] == DeletionStep.DELETE]
        going = {topic: (now, len(self.context.of_topic(topic))) for topic in topics}
        fresh = {topic: whole for topic, whole in going.items() if self._deleting.get(topic) != whole}
        for wave in decided.deletion_waves:
            self.send([notice for notice in wave if notice.topic in fresh])
        self._deleting |= fresh

    def resend_topics(self, topics: Collection[str]) -> None:
        """Tell of topics whose deletion was refused or taken back: who registered meanwhile knows nothing of them."""
        for topic in topics:
            self.forget_topic(topic)
        self.resend({key for topic in topics for key in self.context.of_topic(topic)})

    def forget_topic(self, topic: str) -> None:
        """A topic that is made anew under the name is another one."""
        self._deleting.pop(topic, None)
        self._asked_to_stop = {place: when for place, when in self._asked_to_stop.items() if place[0][0] != topic}

    def epoch_of(self, broker: int) -> int:
        return int(self.context.brokers[broker]["broker_epoch"])

    def _stays(self, topic: str) -> bool:
        return topic in self.context.topics and not self.context.is_queued(topic)

    def _metadata_notices(self, keys: Iterable[Key], to: Sequence[int] | None = None) -> list[Notice]:
        """UpdateMetadata, but for topics that are queued for deletion: who forgot them keeps to it; `to`: everybody."""
        kept = [key for key in keys if not self.context.is_queued(key[0])]
        return self._current_state(kept, UPDATE_METADATA, self.context.live if to is None else to)

    def _current_state(self, keys: Iterable[Key], api: str, broker_ids: Sequence[int]) -> list[Notice]:
        known = (self.context.partitions[key] for key in sorted(keys) if key in self.context.partitions)
        led = (row for row in known if row.is_legible)
        return [partition_notification(row, self.context.topic_id(row.topic), api, tuple(broker_ids)) for row in led]
