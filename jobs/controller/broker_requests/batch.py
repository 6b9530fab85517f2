"""Puts the resident controller's requests into the queues of brokers: changes, current states and deletions.

Corresponds to `ControllerBrokerRequestBatch` and its callers: `sendUpdateMetadataRequest`, `onBrokerStartup`,
`ReplicaStateMachine` and `TopicDeletionManager`. A queue sends a request until its response arrives, so each request is
put there once for each registration of a broker, and again if the response is an error.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.advertised_endpoints import AdvertisedEndpoints
from jobs.controller.broker_requests.retries import RetryBatch, key_of
from jobs.controller.controller_context import ControllerContext, full_state_for, partition_notification
from jobs.controller.controller_endpoints import controller_node
from jobs.controller.decision_engine import Decisions
from planner.broker_requests import notices_for
from planner.rules.decisions import Decision
from planner.rules.topic_deletion import DeletionStep
from schemas.enums import LEADER_DURING_DELETE, RejectionCode
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.partition_info import PartitionInfo
from schemas.rows import Broker, Change, Key

Registered = frozenset[tuple[int, int]]
"""Brokers with their broker epochs."""


@dataclass(slots=True)
class BrokerRequestBatch:
    """Sends requests to the brokers under one controllership."""

    control: Controllership
    context: ControllerContext
    channels: ChannelManager
    endpoints: AdvertisedEndpoints
    drained_brokers: frozenset[int] = frozenset()
    """Brokers whose replicas a drain has stopped.

    They are sent LeaderAndIsr only for partitions whose ISR they are in.
    """
    _stop_requests: dict[tuple[Key, int], tuple[int, int]] = field(default_factory=dict)
    """By partition and broker, the leader epoch and broker epoch at which a leaving replica was sent StopReplica."""
    _sent_deletions: dict[str, tuple[Registered, int]] = field(default_factory=dict)
    """Topics whose deletion was sent, with the brokers and the number of partitions it was sent for.

    Partitions may still be added while a topic is being deleted.
    """

    def send(
        self, notices: Sequence[Notice], live_brokers_to: Collection[int] = (), starting: Collection[int] = ()
    ) -> None:
        """Queue notices for their brokers.

        `live_brokers_to`: brokers that must be sent the list of live brokers even if no notice is for them. `starting`:
        brokers that start, which are sent all metadata before the states of their replicas.
        """
        live_brokers = [row for row in self.context.brokers.values() if row.understood]
        if notices or live_brokers_to:
            self.channels.send(self.batch_of(live_brokers, notices), live_brokers_to, starting)
        else:
            self.channels.retain(live_brokers)  # the last broker may have failed, which leaves no recipients

    def batch_of(self, live_brokers: Sequence[Broker], notices: Sequence[Notice]) -> ControlBatch:
        """Return notices as a batch of this controllership."""
        endpoints = self.endpoints.announced
        node = controller_node(self.control.controller_id, endpoints, live_brokers) if endpoints else None
        return ControlBatch(self.control.controller_id, self.control.epoch, live_brokers, notices, node)

    def send_changes(self, changes: Sequence[Change]) -> None:
        """Send the changes that were just written."""
        self.send(notices_for(changes, self.context.live))

    def send_full_state(self, broker_ids: Collection[int], *, have_started: bool = True) -> None:
        """Send these brokers the full state, and all other brokers the list of live brokers.

        `have_started`: the brokers have no metadata yet and already serve clients, so all metadata is sent first.
        """
        notices = full_state_for(self.context, broker_ids, sorted(self.context.partitions)) if broker_ids else ()
        self.send([*notices], live_brokers_to=self.context.live, starting=broker_ids if have_started else ())

    def send_metadata(self, keys: Iterable[Key]) -> None:
        """Send all live brokers the current metadata of these partitions."""
        self.send(self._metadata_notices(keys))

    def resend(self, keys: Collection[Key]) -> None:
        """Send the current state of partitions for which it is unknown whether it was sent.

        A broker that already has it responds so.
        """
        notices = self._metadata_notices(keys)
        for broker in self.context.live if keys else ():
            notices += self._leader_and_isr_notices(broker, self.context.of_broker(broker).intersection(keys))
        self.send(notices)

    def resend_to_followers_of(self, leaders: Collection[int]) -> None:
        """Send the partitions that these brokers lead to their replicas again.

        A follower ignores a leader that is not live by its metadata.
        """
        self.resend({key for broker in leaders for key in self.context.led_by(broker)})

    def resend_current(self, changes: Sequence[Change]) -> None:
        """Send the current state of partitions that have changed again since these changes were written.

        Replicas that these changes stop are still stopped.
        """
        self.resend({change.key for change in changes})
        stops = [notice for notice in notices_for(changes, self.context.live) if notice.api == STOP_REPLICA]
        rows = [self.context.partitions[notice.topic, notice.partition] for notice in stops]
        pairs = zip(rows, stops, strict=True)
        self.send([partition_notification(row, stop.topic_id, STOP_REPLICA, stop.brokers) for row, stop in pairs])

    def send_retry(self, batch: RetryBatch) -> set[Key]:
        """Send a broker the current state for what it did not accept; return partitions to be decided on for it.

        Replicas that leave, and topics that are being deleted, are decided on again, which determines the replicas to
        be stopped at present.
        """
        broker = batch.broker
        by_api: dict[str, list[Notice]] = {LEADER_AND_ISR: [], STOP_REPLICA: [], UPDATE_METADATA: []}
        for notice in batch.notices:
            by_api[notice.api].append(notice)
        metadata = by_api[UPDATE_METADATA]
        current = self.context.partitions if batch.needs_full_state else [key_of(notice) for notice in metadata]
        notices = self._metadata_notices(current, [broker])
        refused_keys = {key_of(notice) for notice in by_api[LEADER_AND_ISR]}
        partitions = self.context.of_broker(broker)
        new = {key_of(notice) for notice in by_api[LEADER_AND_ISR] if notice.is_new}
        states = self._leader_and_isr_notices(
            broker, partitions if batch.needs_full_state else partitions & refused_keys
        )
        # a new replica counts as new until the broker accepts it
        notices += [replace(notice, is_new=key_of(notice) in new) for notice in states]
        # metadata of a deleted topic is sent as before, because the topic may no longer exist
        deleted_metadata = [n for n in metadata if n.leader == LEADER_DURING_DELETE and not self._is_kept(n.topic)]
        notices += [replace(notice, brokers=(broker,)) for notice in deleted_metadata]
        self.send(notices, live_brokers_to=[broker] if batch.needs_full_state else ())
        return self._retry_stops(broker, by_api[STOP_REPLICA])

    def _retry_stops(self, broker: int, notices: Sequence[Notice]) -> set[Key]:
        """Forget that these StopReplica were sent; resend the StopReplica of a drained broker immediately."""
        drained = []
        for notice in notices:
            key = key_of(notice)
            row = self.context.partitions.get(key)
            self._stop_requests.pop((key, broker), None)
            self._sent_deletions.pop(notice.topic, None)
            if row is None or notice.delete_partition or notice.leader_epoch < 0:
                continue
            if broker in self.drained_brokers and broker not in (row.isr or ()):
                drained.append(partition_notification(row, self.context.topic_id(row.topic), STOP_REPLICA, (broker,)))
        self.send(drained)
        return {*map(key_of, notices)}

    def stop_replicas(self, broker: int) -> None:
        """Send a broker that shuts down StopReplica for the replicas that follow; their logs are kept."""
        rows = (self.context.partitions[key] for key in sorted(self.context.of_broker(broker)))
        self.send(
            [
                partition_notification(row, self.context.topic_id(row.topic), STOP_REPLICA, (broker,))
                for row in rows
                if broker in row.replicas
                and row.has_decoded_state
                and row.leader != broker
                and broker not in (row.isr or ())
                and not self.context.is_being_deleted(row)
            ]
        )

    def ask_for_log_dirs(self, broker: int) -> None:
        """Send a broker the states of its replicas again; its response has an error for those whose log dir failed."""
        if broker in self.context.brokers:
            self.send(self._leader_and_isr_notices(broker, self.context.of_broker(broker)))

    def _leader_and_isr_notices(self, broker: int, keys: Iterable[Key]) -> list[Notice]:
        """Return LeaderAndIsr notices for a broker's replicas, except for those that are stopped or being deleted."""
        rows = (self.context.partitions[key] for key in keys)
        partitions = [
            row.key
            for row in rows
            if broker in row.replicas and not (self.context.is_being_deleted(row) or self._is_stopping(row, broker))
        ]
        if broker in self.drained_brokers:
            partitions = [key for key in partitions if broker in (self.context.partitions[key].isr or ())]
        return self._current_state(partitions, LEADER_AND_ISR, [broker])

    def send_stops(self, decisions: Iterable[Decision]) -> None:
        """Send StopReplica with deletion to replicas that leave, once for each leader epoch and broker epoch."""
        waiting = [decision for decision in decisions if decision.code is RejectionCode.WAITS_FOR_STOP]
        self.send([notice for decision in waiting if (notice := self._stop_notice(decision)) is not None])

    def _is_stopping(self, row: PartitionInfo, broker: int) -> bool:
        """Return whether StopReplica was sent for a replica at its current epochs; a LeaderAndIsr would restart it."""
        return self._stop_requests.get((row.key, broker)) == (row.leader_epoch, self.epoch_of(broker))

    def _stop_notice(self, decision: Decision) -> Notice | None:
        key, row = decision.key, self.context.partitions[decision.key]
        epochs = {broker: (row.leader_epoch or 0, self.epoch_of(broker)) for broker in decision.stop_replica_to}
        recipients = tuple(
            broker
            for broker, epochs_of_request in epochs.items()
            if self._stop_requests.get((key, broker)) != epochs_of_request
        )
        if not recipients:
            return None
        self._stop_requests |= {(key, broker): epochs[broker] for broker in recipients}
        notice = partition_notification(row, self.context.topic_id(row.topic), STOP_REPLICA, recipients)
        return replace(notice, delete_partition=True)

    def send_deletions(self, decisions: Decisions) -> None:
        """Send the deletion of topics, unless the present brokers were already sent it for all present partitions."""
        registered: Registered = frozenset((broker, self.epoch_of(broker)) for broker in self.context.live)
        topics = [deletion.topic for deletion in decisions.deletions if deletion.step is DeletionStep.DELETE]
        deletions = {topic: (registered, len(self.context.of_topic(topic))) for topic in topics}
        new_deletions = {
            topic: delivery for topic, delivery in deletions.items() if self._sent_deletions.get(topic) != delivery
        }
        for notices in decisions.deletion_batches:
            self.send([notice for notice in notices if notice.topic in new_deletions])
        self._sent_deletions |= new_deletions

    def resend_topics(self, topics: Collection[str]) -> None:
        """Send the state of topics whose deletion was refused or withdrawn.

        Brokers that registered while the topic was queued for deletion have no state of it.
        """
        for topic in topics:
            self.forget_topic(topic)
        self.resend({key for topic in topics for key in self.context.of_topic(topic)})

    def forget_topic(self, topic: str) -> None:
        """Forget the requests sent for a topic: a topic that is created again under the same name is a new one."""
        self._sent_deletions.pop(topic, None)
        self._stop_requests = {
            place: epochs_of_request for place, epochs_of_request in self._stop_requests.items() if place[0][0] != topic
        }

    def epoch_of(self, broker: int) -> int:
        return self.context.brokers[broker].zk_broker_epoch

    def _is_kept(self, topic: str) -> bool:
        return topic in self.context.topics and not self.context.is_queued(topic)

    def _metadata_notices(self, keys: Iterable[Key], recipients: Sequence[int] | None = None) -> list[Notice]:
        """Return UpdateMetadata notices, by default for all live brokers.

        Topics that are queued for deletion are left out, because brokers that have removed them from their metadata
        must not add them again.
        """
        kept_keys = [key for key in keys if not self.context.is_queued(key[0])]
        return self._current_state(kept_keys, UPDATE_METADATA, self.context.live if recipients is None else recipients)

    def _current_state(self, keys: Iterable[Key], api: str, broker_ids: Sequence[int]) -> list[Notice]:
        partitions = (self.context.partitions[key] for key in sorted(keys) if key in self.context.partitions)
        with_leader = (row for row in partitions if row.has_decoded_state)
        return [
            partition_notification(row, self.context.topic_id(row.topic), api, tuple(broker_ids)) for row in with_leader
        ]
