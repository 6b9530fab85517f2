"""The resident controller: it holds the controllership and does in cycles all work that is due, until it is stopped.

Corresponds to `KafkaController` as a whole: `onControllerFailover` at the take-over, its event handlers afterwards, and
`onControllerResignation` at the end. Watches and broker responses wake it; without them a cycle starts every few
seconds. Each cycle reads what has changed, decides by `planner.rules`, writes under the fence, and queues the
control requests that follow. No state must survive the process: the next controller reads ZooKeeper, and sends all
brokers the full state.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field, replace
from itertools import chain

from kazoo.exceptions import SessionExpiredError

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.listeners import PLAINTEXT_LISTENER
from jobs.adapters.request_server.listen_config import Security
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import SESSION_OVER, Controllership, SessionLostError
from jobs.controller.admin_apis.requests import AdminApiContext
from jobs.controller.admin_request_removal import AdminRequestRemover
from jobs.controller.advertised_endpoints import AdvertisedEndpoints
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.bounced_brokers import BouncedBrokers
from jobs.controller.broker_apis.controlled_shutdowns import ControlledShutdowns
from jobs.controller.broker_apis.isr_changes import IsrChanges
from jobs.controller.broker_config_poller import BrokerConfigPoller, admin_config_reader
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.broker_requests.broker_startup import BrokerStartup
from jobs.controller.broker_requests.responses import ResponseHandler, SilentBrokers
from jobs.controller.broker_requests.retries import RetryQueue
from jobs.controller.broker_requests.zk_notifications import NotificationHandler
from jobs.controller.client_logins import with_logins
from jobs.controller.controller_context import ControllerContext
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decision_engine import DecisionEngine, Decisions, released_replicas, restrict_to_in_sync
from jobs.controller.drains import Drains
from jobs.controller.failover_znodes import FailoverZnodes
from jobs.controller.metadata_reader import MetadataReader, Observation
from jobs.controller.pending_work import POLL_INTERVAL_SECONDS, DueWork, PendingWork
from jobs.controller.plan_inbox import PlanInbox
from jobs.controller.replicas_on_controller import PhantomReplicas
from jobs.controller.request_handler import ActiveController, RequestHandler
from jobs.controller.resync import Resync
from jobs.controller.state_writer import StateWriter, Written
from jobs.controller.write_behind import WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.signals import is_interrupted
from jobs.execution.batch.notification import EPOCH_STEPS, raised_line
from jobs.repositories.drained_brokers import carry_over
from jobs.runtime.console import LogLine
from jobs.runtime.settings import Settings
from schemas.rows import Key, Snapshot
from schemas.text import pluralise
from schemas.znode_codecs import Endpoint


def _ignore(_: float) -> None:
    """Discard the duration of a cycle."""


@dataclass
class ResidentController:
    """One controllership, from its take-over to its end."""

    control: Controllership
    engine: DecisionEngine
    log: WriteBehindLog
    snapshot: Snapshot
    log_line: LogLine
    settings: Settings | None = None
    """Settings of the command.

    Without them no submitted plans are carried out, and brokers are connected in plain text.
    """
    context: ControllerContext = field(default_factory=ControllerContext)
    """Empty at first, except for `lost_states`, which come from the recorded history."""
    request_handler: RequestHandler | None = None
    """Handlers of brokers' requests; None if they are not served."""
    served: InitVar[Sequence[Endpoint]] = ()
    """As `AdvertisedEndpoints.served`."""
    logins: InitVar[Mapping[str, Security] | None] = None
    """As `AdvertisedEndpoints.logins`."""
    configured_epochs: Mapping[int, int] = field(default_factory=dict)
    """By broker, the broker epoch before its settings in `engine` were read; none for one that is known to have them.
    """
    on_cycle: Callable[[float], None] = _ignore
    """Called with the duration of each cycle in seconds."""
    reader_type: type[MetadataReader] = MetadataReader
    _resuming: set[Key] = field(default_factory=set)
    """Partitions that were moving at the take-over, until they have been decided on."""
    _epoch_steps: Iterator[int] = field(default_factory=lambda: iter(EPOCH_STEPS))
    """By how much our epoch is raised each time that a broker refuses it."""

    def __post_init__(self, served: Sequence[Endpoint], logins: Mapping[str, Security] | None) -> None:
        control, context, engine, log, log_line = self.control, self.context, self.engine, self.log, self.log_line
        pending = self.pending = PendingWork(requests_due=True)
        summary = self.summary = CycleSummary(log_line)
        watches = self.watches = ZkWatches(control.client)
        reader = self.reader = self.reader_type(control.client, watches, context)
        self.retries = RetryQueue(context, log_line)
        self.silent_brokers = SilentBrokers(log_line)
        self.responses = ResponseHandler(context, watches, log, self.retries)
        self.endpoints = AdvertisedEndpoints(context, log_line, served, logins or {})
        listener = self.settings.listener if self.settings else PLAINTEXT_LISTENER
        channels = ChannelManager(str(control.controller_id), self.responses.receive, listener)
        broker_requests = self.broker_requests = BrokerRequestBatch(control, context, channels, self.endpoints)
        self.writer = StateWriter(control, context, self.snapshot, reader, broker_requests, log, summary, pending)
        self.notifications = NotificationHandler(control, context, reader, broker_requests, self.responses)
        self.requests = AdminRequestRemover(control, context, reader, broker_requests, log, summary, pending, log_line)
        self.bounced = BouncedBrokers(context, reader, broker_requests, pending)
        self.drains = Drains(engine, context, broker_requests, log, log_line)
        self.drains.refresh()
        shared = control, context, reader, pending, broker_requests, self.drains.refresh, log_line
        self.plan_inbox = PlanInbox(self.settings, *shared) if self.settings else None
        self.resync = Resync(reader, context)
        self.config_poller = (
            BrokerConfigPoller(
                admin_config_reader(control.client, self.settings, with_logins(self.endpoints.logins)),
                engine.broker_configs,
                log_line,
                watches.signal,
                self.request_handler is not None,
                {**self.configured_epochs},
            )
            if self.settings
            else None
        )
        self.auto_rebalance = AutoLeaderRebalance.of(engine.broker_configs)
        self.startup = BrokerStartup(control, context, channels, broker_requests.batch_of, self.bounced.is_failing)
        self.phantoms = PhantomReplicas(control, context, reader, log_line)
        self.isr_changes = IsrChanges(
            control, context, engine, reader, broker_requests, self.bounced, pending, self.plan_inbox, log_line
        )
        self.shutdowns = ControlledShutdowns(
            context, engine, self.isr_changes, self.drains, self.writer, broker_requests, watches.signal, log_line
        )
        self.failover_znodes = FailoverZnodes(control, context, engine, reader, broker_requests)

    def initialize(self) -> None:
        """Read all of the cluster, and send the full state to all live brokers, the list of live brokers first."""
        started = time.monotonic()
        if self.plan_inbox:
            self.plan_inbox.announce()
        if self.request_handler:  # until brokers know us, they ask the former controller
            self.reader.load_brokers()
            self.endpoints.refresh(self.engine.broker_configs)
            self.broker_requests.send((), live_brokers_to=self.context.live)
        self.notifications.delete_all()
        self.reader.load_all()
        if self.request_handler:
            self.failover_znodes.complete()
            self.phantoms.replace_all()
            self.request_handler.open(
                ActiveController(
                    self.control,
                    self.context,
                    self.isr_changes.writer,
                    self.shutdowns,
                    AdminApiContext(
                        self.control,
                        self.context,
                        lambda: self.engine.broker_configs,
                        lambda: self.failover_znodes.protocol,
                        self.watches.signal,
                        cluster_id=self.snapshot.cluster_id,
                    ),
                    self.endpoints,
                )
            )
        self.pending.partitions = {*self.context.partitions}
        self._resuming = set(self.context.moving)
        self.broker_requests.send_full_state(
            self.context.live, have_started=False
        )  # as at Kafka's failover, the live brokers come first
        unread = self.context.brokers.keys() - {row.broker_id for row in self.engine.broker_configs}
        unread |= {
            broker
            for broker, row in self.context.brokers.items()
            if self.configured_epochs.get(broker, row.zk_broker_epoch) != row.zk_broker_epoch
        }
        self._request_broker_configs(self.context.brokers if self.request_handler else unread)
        brokers, partitions = len(self.context.brokers), len(self.context.partitions)
        self.log_line(
            f"  read {pluralise(brokers, 'broker')} and {pluralise(partitions, 'partition')} in "
            f"{time.monotonic() - started:.1f} s"
        )

    def run(self, *, until_quiet: bool = False) -> None:
        """Run cycles until a signal arrives, or with `until_quiet` until nothing is due.

        Raise FencedError once another controller has taken over, and SessionLostError once the session has ended.
        """
        self.startup.start()
        while not is_interrupted():
            try:
                self._run_resync()
                busy = self.cycle()
            except SessionExpiredError:
                raise SessionLostError(SESSION_OVER) from None
            except LOST:  # the resync reads the results of requests in flight
                self.control.await_reconnect()
                self.resync.begin_at_once()
                # the interrupted cycle may not have done its work
                self.pending.partitions, self.pending.requests_due = {*self.context.partitions}, True
                continue
            if until_quiet and not busy and self._is_quiet:
                return
            if not busy:
                self._idle()
            elif self.pending.failed_attempts:
                time.sleep(self.pending.retry_delay)

    def _idle(self) -> None:
        """Wait to be woken, for the poll interval at most."""
        if not (self.watches.wakeup.is_set() or self.resync.is_under_way):
            self.watches.wakeup.wait(self.retries.next_delay(POLL_INTERVAL_SECONDS))

    def _run_resync(self) -> None:
        """Read the next part of the cluster again when a resync is due, and decide on partitions that differ."""
        begins, changes = not self.resync.is_under_way, self.resync.read_next_part()
        if changes is None:
            return
        if begins:
            self._request_broker_configs(self.context.brokers)
            self.isr_changes.warn_if_no_requests()
        self._on_broker_changes()
        self.broker_requests.send_metadata(changes.partitions)  # of notifications that were lost
        self.pending.add(changes.partitions, requests_due=changes.requests_due or not self.resync.is_under_way)

    def stop(self) -> None:
        """Stop responding to requests of brokers, and sending them requests."""
        if self.request_handler:
            self.request_handler.close()
        self.startup.stop()
        if self.plan_inbox:
            self.plan_inbox.close()
        self.broker_requests.channels.stop()

    @property
    def _is_quiet(self) -> bool:
        """Whether all brokers have responded, nothing moves, and neither a plan nor a resync is in progress."""
        if self.resync.is_under_way or (self.plan_inbox and self.plan_inbox.is_busy):
            return False
        moving = self.context.moving - self.retries.exhausted_partitions
        return (
            not self.broker_requests.channels.busy and self.responses.is_quiet and self.retries.is_quiet and not moving
        )

    def cycle(self) -> bool:
        """Observe, decide, write and publish; return whether something was done or is due immediately."""
        started = time.monotonic()
        self.summary.cycles += 1
        try:
            self._observe()
            due = self.pending.pop_all()
            leaderless = self._leaderless(due.partitions)
            first = self._decide_and_write(DueWork(leaderless))
            due.partitions -= leaderless
            rest = self._decide_and_write(due, self.auto_rebalance.due(self.context))
            self._publish(first, rest)
            return bool(first.outcomes or rest.decided.changes or self.pending.is_due)
        finally:
            self.on_cycle(time.monotonic() - started)

    def _observe(self) -> None:
        """Read what has changed, and collect from all sources what is to be decided on."""
        idle = self.broker_requests.channels.idle
        self.silent_brokers.report(self.broker_requests.channels.backlog()[1])
        effects = self.responses.drain()
        self.reader.observed.started_brokers |= effects.bounced_brokers
        changes = self.reader.refresh(self.resync.next_topics(self.watches.drain()))
        self.control.refuse_lost()
        self._raise_epoch_if_refused(effects.refused_epochs)
        self._on_broker_changes()
        self._apply_broker_configs()
        if self.request_handler:
            for source in (self.phantoms.replace_all, self.isr_changes.publish, self.failover_znodes.assign_topic_ids):
                self.pending.add(source())
            self.shutdowns.carry_out()
        self.pending.add(self.notifications.isr_changes())
        self.notifications.log_dirs()
        for batch in self.retries.due_retries(idle):  # each broker after its own delay
            stopping = self.broker_requests.send_retry(batch)
            self.pending.add(stopping, requests_due=bool(stopping))
        expired = self.writer.expired_backoffs()
        self.pending.add(expired, requests_due=bool(expired))
        self.pending.add(self.reader.refresh_partitions(self.context.moving))
        for found in (changes, effects):
            self.pending.add(found.partitions, requests_due=found.requests_due)

    def _raise_epoch_if_refused(self, refused_epochs: Mapping[int, int]) -> None:
        """Raise our epoch above those in partition states and those that brokers know.

        Corresponds to `KafkaZkClient.registerControllerAndIncrementControllerEpoch`, which Kafka calls at a take-over
        only. Kafka never overwrites a state of a later controller epoch, and brokers refuse a controller with an
        earlier epoch. /controller_epoch may have been deleted or set back before we took over. A plan that is being
        written uses the present epoch. `refused_epochs`: our epoch by broker that refused it.
        """
        epoch, latest = self.control.epoch, self.context.latest_epoch
        brokers = sorted(broker for broker, refused in refused_epochs.items() if refused == epoch)
        if (self.plan_inbox and self.plan_inbox.is_busy) or not (brokers or latest > epoch):
            return
        if brokers:
            latest = max(latest, epoch + next(self._epoch_steps, 0) - 1)
            self.log_line(f"surveyor: {raised_line(brokers, epoch)}", logging.WARNING)
        self.control.raise_above(latest)
        self.log_line(f"surveyor: controller epoch {self.control.epoch}, after {epoch}")
        if self.settings is not None:
            carry_over(self.settings.warehouse, epoch, self.control.epoch)

    def _leaderless(self, due: set[Key]) -> set[Key]:
        """Partitions without a live leader; they are decided on first, and do not wait for thousands of others."""
        serving = self.bounced.serving
        rows = ((key, self.context.partitions.get(key)) for key in due - self.context.requested_partitions)
        return {key for key, row in rows if row is not None and row.leader not in serving}

    def _decide_and_write(self, due: DueWork, balance: AbstractSet[Key] = frozenset()) -> Written:
        """Decide on partitions, on leadership to be balanced and on requests; write the changes and send them."""
        requested = self.context.requested_partitions if due.requests_due else set()
        self.isr_changes.refresh_states(due.partitions | balance | requested)
        written = self.writer.write(self._decide(due, balance))
        changing = {change.key for change in written.decided.changes}
        self._resuming -= due.partitions - (changing - written.applied)
        self.summary.add_cycle(written.outcomes, written.rejections)
        # a partition that changes, for instance because a replica of the target failed, is decided on again first
        self.broker_requests.send_stops(row for row in written.decided.others if row.key not in changing)
        return written

    def _publish(self, first: Written, rest: Written) -> None:
        """Send what waited for the writes, finish requests, and continue with submitted plans.

        Brokers are sent the current state of partitions that a plan has changed and not sent.
        """
        decided = self.requests.without_premature_withdrawals(rest.decided)
        self.bounced.finish_cycle([*first.outcomes, *rest.outcomes])
        self.requests.withdraw(decided, rest.outcomes)
        self.requests.delete_topics(decided)
        if self.plan_inbox:
            unsent = self.plan_inbox.poll()
            self.broker_requests.resend(unsent)
            self.pending.add(unsent)

    def _request_broker_configs(self, broker_ids: Iterable[int]) -> None:
        if self.config_poller:
            self.config_poller.request_configs(
                self.context.brokers[broker] for broker in broker_ids if broker in self.context.brokers
            )

    def _apply_broker_configs(self) -> None:
        """Apply changed broker settings; a partition without a leader may get one by them."""
        configs = self.config_poller.pop_changed(self.context.brokers) if self.config_poller else None
        if configs is None:
            return
        self.engine.set_broker_configs(configs)
        self.auto_rebalance = self.auto_rebalance.with_configs(configs)
        if self.request_handler:  # an upgraded cluster may know topic ids now, and look for us elsewhere
            if self.endpoints.refresh(self.engine.broker_configs):
                self.broker_requests.send((), live_brokers_to=self.context.live)
            self.pending.add(self.failover_znodes.complete())
        leaderless = {key for key, row in self.context.partitions.items() if row.leader not in self.context.brokers}
        self.pending.add(leaderless, requests_due=True)

    def _decide(self, due: DueWork, balance: AbstractSet[Key]) -> Decisions:
        partitions = due.partitions - self.phantoms.pending() if self.request_handler else due.partitions
        if not (partitions or balance or due.requests_due):
            return Decisions()
        bounced = self.bounced.ids
        decisions = self.engine.decide(
            self.context,
            partitions,
            deletions=due.requests_due,
            balance=balance,
            assumed_dead=bounced,
            resuming=self._resuming,
        )
        # a bounced broker still has its log, so its replica stays assigned until it has stopped
        changes = [
            c for c in self.writer.without_backed_off(decisions.changes) if bounced.isdisjoint(released_replicas(c))
        ]
        return replace(
            decisions, changes=[restrict_to_in_sync(change, bounced) for change in changes] if bounced else changes
        )

    def _on_broker_changes(self) -> None:
        """Send the full state to brokers that started, and the list of live brokers to all.

        Corresponds to `KafkaController.onBrokerStartup`. Topics whose deletion was withdrawn, and partitions that have
        become readable, are sent again.
        """
        observed = self.reader.observed
        if observed == Observation():
            return
        started, failed, undeleted = observed.started_brokers, observed.failed_brokers, observed.undeleted_topics
        self.bounced.add_failures(failed)
        if self.request_handler:
            self.endpoints.refresh(self.engine.broker_configs)
        to_refresh = [self.context.of_broker(broker) for broker in started] + [
            self.context.of_topic(topic) for topic in undeleted
        ]
        # a bounced leader may have changed ISRs without a notification, and must not be sent an earlier ISR
        changed = self.reader.refresh_partitions({*chain(*to_refresh)})
        for broker in sorted(failed | started):
            self.log_line(
                f"  broker {broker} {'has registered' if broker in self.context.brokers else 'is no longer registered'}"
            )
        for broker in sorted(observed.brokers_with_new_endpoints - started):
            self.log_line(f"  broker {broker} has written its registration again")
        self.pending.add(changed, requests_due=True)
        self.context.shutting_down -= started | failed
        self.drains.end_finished()
        self._request_broker_configs(started)
        to_send = started - self.bounced.ids
        self.broker_requests.send_full_state([broker for broker in self.context.live if broker in to_send])
        self.broker_requests.send_metadata(changed)
        self.broker_requests.resend_to_followers_of(to_send)
        self.broker_requests.resend_topics(undeleted)
        plan_topics = self.plan_inbox.topics if self.plan_inbox else ()
        self.broker_requests.resend({key for key in observed.newly_readable_partitions if key[0] not in plan_topics})
        self.reader.observed = Observation()
