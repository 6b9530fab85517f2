"""The resident controller: it holds the controllership and does in cycles all work that is due, until it is stopped.

Corresponds to `KafkaController` as a whole: `onControllerFailover` at the take-over, its event handlers afterwards, and
`onControllerResignation` at the end. Watches and broker responses wake it; without them a cycle starts every few
seconds. Each cycle reads what has changed, decides by `planner.rules`, writes under the fence, and queues the
control requests that follow. No state must survive the process: the next controller reads ZooKeeper, and sends all
brokers the full state.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from kazoo.exceptions import SessionExpiredError

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.listeners import PLAIN
from jobs.adapters.request_server.listen_config import Security
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import SESSION_OVER, Controllership, SessionLostError
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.controller.admin_apis.requests import AdminApiContext
from jobs.controller.admin_request_removal import AdminRequestRemover
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.broker_apis.apis import ActiveController, BrokerApis
from jobs.controller.broker_apis.isr_writer import IsrWriter
from jobs.controller.broker_apis.shutdowns import (
    BROKER_NOT_AVAILABLE,
    UNCHECKED_EPOCH,
    ShutdownQueue,
    ShutdownRequest,
    ShutdownResponse,
)
from jobs.controller.broker_config_poller import BrokerConfigPoller, admin_config_reader
from jobs.controller.broker_protocols import ALTER_ISR_SINCE, earliest_protocol
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.broker_requests.broker_startup import BrokerStartup
from jobs.controller.broker_requests.responses import ResponseHandler
from jobs.controller.broker_requests.retries import RetryQueue
from jobs.controller.broker_requests.silent_brokers import SilentBrokers
from jobs.controller.broker_requests.zk_notifications import NotificationHandler
from jobs.controller.context import ControllerContext
from jobs.controller.controller_node import (
    authorizer_of,
    broker_endpoints,
    served_listeners,
    with_logins,
)
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decision_engine import DecisionEngine, Decisions, released_replicas, restrict_to_in_sync
from jobs.controller.failover_znodes import assign_topic_ids, enable_features, uses_topic_ids
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.phantom_replicas import PhantomReplicas
from jobs.controller.plan_inbox import PlanInbox
from jobs.controller.resync import Resync
from jobs.controller.state_writer import StateWriter
from jobs.controller.write_behind import CycleRecord, EndedDrains, WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.errors import RefusedError
from jobs.core.signals import interrupted
from jobs.execution.batch.notify import EPOCH_STEPS, raised_line
from jobs.repositories.drained_brokers import carry_over
from jobs.repositories.plans.commit_rows import RowOutcome
from jobs.runtime.console import LogLine
from jobs.runtime.settings import Settings
from planner.rules.alter_partition import IsrCandidates
from planner.rules.topic_deletion import DeletionStep
from schemas.broker_protocol import Protocol
from schemas.enums import DrainMode, OperationKind, Outcome, RejectionCode
from schemas.response_codes import NONE, STALE_BROKER_EPOCH
from schemas.rows import Change, Key, RejectionRecord, Snapshot
from schemas.text import partition_name, pluralise, with_others
from schemas.znodes import Endpoint

POLL_INTERVAL_SECONDS: Final = 2.0
"""Seconds after which a cycle starts, although nothing woke the controller."""

MAX_FAILURE_CYCLES: Final = 3
"""Cycles in which a broker's failure is written.

After the last one, the broker is sent the full state if it is back.
"""

FIRST_RETRY_SECONDS: Final = 0.05
"""Seconds to wait after a cycle in which every write was refused.

The pause doubles with each further such cycle, up to the poll interval.
"""

MAX_SHUTDOWN_ATTEMPTS: Final = 3
"""Attempts to write the changes of a controlled shutdown; the broker asks again for what remains."""

MAX_DOUBLINGS: Final = 6
"""Limit for the number of times that this pause is doubled."""


def _ignore(_: float) -> None:
    """Discard the duration of a cycle."""


@dataclass(slots=True)
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
    apis: BrokerApis | None = None
    """Where brokers' requests arrive; None if they are not served."""
    served: Sequence[Endpoint] = ()
    """The endpoints that receive them; one for the clients of a listener has its name, the others have none."""
    logins: Mapping[str, Security] = field(default_factory=dict)
    """How the clients of listeners log in at these endpoints, by listener."""
    served_listeners: frozenset[str | None] = frozenset()
    """The listeners whose clients are served, as `ActiveController.served_listeners`."""
    configured_epochs: Mapping[int, int] = field(default_factory=dict)
    """By broker, the broker epoch before its settings in `engine` were read; none for one that is known to have them.
    """
    summary: CycleSummary = field(init=False)
    watches: ZkWatches = field(init=False)
    reader: MetadataReader = field(init=False)
    retries: RetryQueue = field(init=False)
    silent_brokers: SilentBrokers = field(init=False)
    responses: ResponseHandler = field(init=False)
    broker_requests: BrokerRequestBatch = field(init=False)
    notifications: NotificationHandler = field(init=False)
    writer: StateWriter = field(init=False)
    requests: AdminRequestRemover = field(init=False)
    plan_inbox: PlanInbox | None = field(init=False)
    auto_rebalance: AutoLeaderRebalance = field(init=False)
    resync: Resync = field(init=False)
    config_poller: BrokerConfigPoller | None = field(init=False)
    startup: BrokerStartup = field(init=False)
    phantoms: PhantomReplicas = field(init=False)
    isr_writer: IsrWriter = field(init=False)
    shutdowns: ShutdownQueue = field(init=False)
    on_cycle: Callable[[float], None] = _ignore
    """Called with the duration of each cycle in seconds."""
    _dirty_partitions: set[Key] = field(default_factory=set)
    """Partitions to be decided on in the next cycle."""
    _unhandled_failures: dict[int, int] = field(default_factory=dict)
    """Failed brokers whose partitions have not all been updated yet, with the number of cycles to keep retrying.

    A broker may have re-registered in the meantime. After the last retry it is sent the full state anyway, so that a
    partition that cannot be written does not keep the broker from starting.
    """
    _resuming: set[Key] = field(default_factory=set)
    """Partitions that were moving at the take-over, until they have been decided on."""
    _requests_due: bool = True
    _has_warned_of_silence: bool = False
    _endpoint_warnings: frozenset[str] = frozenset()
    """Why some endpoints are not served now; each reason is logged once."""
    _epoch_steps: Iterator[int] = field(default_factory=lambda: iter(EPOCH_STEPS))
    """By how much our epoch is raised each time that a broker refuses it."""

    def __post_init__(self) -> None:
        self.summary = CycleSummary(self.log_line)
        self.watches = ZkWatches(self.control.client)
        self.reader = MetadataReader(self.control.client, self.watches, self.context)
        self.retries = RetryQueue(self.context, self.log_line)
        self.silent_brokers = SilentBrokers(self.log_line)
        self.responses = ResponseHandler(self.context, self.watches, self.log, self.retries)
        listener = self.settings.listener if self.settings else PLAIN
        channels = ChannelManager(str(self.control.controller_id), self.responses.receive, listener)
        self.broker_requests = BrokerRequestBatch(self.control, self.context, channels)
        self.writer = StateWriter(self.control, self.context, self.reader, self.watches)
        self.notifications = NotificationHandler(
            self.control, self.context, self.reader, self.broker_requests, self.responses
        )
        self.requests = AdminRequestRemover(self.control, self.context, self.log, self.log_line)
        shared = self.control, self.reader, self.writer, self.broker_requests, self._refresh_drained, self.log_line
        self.plan_inbox = PlanInbox(self.settings, *shared) if self.settings else None
        self._refresh_drained()
        self.resync = Resync(self.reader, self.context)
        self.config_poller = None
        if self.settings:
            read_configs = admin_config_reader(self.control.client, self.settings, with_logins(self.logins))
            self.config_poller = BrokerConfigPoller(
                read_configs,
                self.engine.broker_configs,
                self.log_line,
                self.watches.signal,
                self.apis is not None,
                {**self.configured_epochs},
            )
        self.auto_rebalance = AutoLeaderRebalance.of(self.engine.broker_configs)
        self.startup = BrokerStartup(
            self.control, self.context, channels, self.broker_requests.batch_of, self._is_failing
        )
        self.phantoms = PhantomReplicas(self.control, self.context, self.reader, self.log_line)
        self.isr_writer = IsrWriter(self.control, self.context, self._isr_candidates, self.watches.signal)
        self.shutdowns = ShutdownQueue(self.watches.signal)

    def initialize(self) -> None:
        """Read all of the cluster, and send the full state to all live brokers, the list of live brokers first."""
        started = time.monotonic()
        if self.plan_inbox:
            self.plan_inbox.announce()
        if self.apis:  # until brokers know us, they ask the former controller
            self.reader.load_brokers()
            self._refresh_endpoints()
            self.broker_requests.send((), live_brokers_to=self.context.live)
        self.notifications.delete_all()
        self.reader.load_all()
        if self.apis:
            self._complete_znodes()
            self.phantoms.replace_all()
            self.apis.open(
                ActiveController(
                    self.control,
                    self.context,
                    self.isr_writer,
                    self.shutdowns,
                    AdminApiContext(
                        self.control,
                        self.context,
                        lambda: self.engine.broker_configs,
                        self._protocol,
                        self.watches.signal,
                        cluster_id=self.snapshot.cluster_id,
                    ),
                    lambda: self.broker_requests.endpoints,
                    lambda: authorizer_of(self.engine.broker_configs),
                    {endpoint.listener for endpoint in self.served if endpoint.listener is not None},
                    lambda: self.served_listeners,
                )
            )
        self._dirty_partitions = set(self.context.partitions)
        self._resuming = set(self.context.moving)
        self.broker_requests.send_full_state(
            self.context.live, have_started=False
        )  # as at Kafka's fail-over, the live brokers come first
        unread = self.context.brokers.keys() - {row.broker_id for row in self.engine.broker_configs}
        unread |= {
            broker
            for broker, row in self.context.brokers.items()
            if self.configured_epochs.get(broker, row.czxid) != row.czxid
        }
        self._request_broker_configs(self.context.brokers if self.apis else unread)
        brokers, partitions = len(self.context.brokers), len(self.context.partitions)
        self.log_line(
            f"  read {pluralise(brokers, 'broker')} and {pluralise(partitions, 'partition')} in "
            f"{time.monotonic() - started:.1f} s"
        )

    def run(self, *, until_quiet: bool = False) -> None:
        """Run cycles until a signal arrives, or with `until_quiet` until nothing is due.

        Raises FencedError once another controller has taken over, and SessionLostError once the session has ended.
        """
        self.startup.start()
        while not interrupted():
            try:
                self._run_resync()
                busy = self.cycle()
            except SessionExpiredError:
                raise SessionLostError(SESSION_OVER) from None
            except LOST:  # the resync reads the results of requests in flight
                self.control.await_reconnect()
                self.resync.begin_at_once()
                # the interrupted cycle may not have done its work
                self._dirty_partitions, self._requests_due = {*self.context.partitions}, True
                continue
            if until_quiet and not busy and self._is_quiet:
                return
            if not busy:
                self._idle()
            elif self.writer.failed_attempts:
                time.sleep(
                    min(
                        POLL_INTERVAL_SECONDS,
                        FIRST_RETRY_SECONDS * 2 ** min(self.writer.failed_attempts, MAX_DOUBLINGS),
                    )
                )

    def _idle(self) -> None:
        """Wait to be woken, for the poll interval at most."""
        if not (self.watches.wakeup.is_set() or self.resync.is_under_way):
            self.watches.wakeup.wait(self.retries.next_delay(POLL_INTERVAL_SECONDS))

    def _run_resync(self) -> None:
        """Read the next part of the cluster again when a resync is due; partitions that differ are decided on."""
        begins, changes = not self.resync.is_under_way, self.resync.read_next_part()
        if changes is None:
            return
        if begins:
            self._request_broker_configs(self.context.brokers)
            self._warn_if_no_requests()
        self._on_broker_changes()
        self.broker_requests.send_metadata(changes.partitions)  # of notifications that were lost
        self._dirty_partitions |= changes.partitions
        self._requests_due |= changes.requests or not self.resync.is_under_way

    def _warn_if_no_requests(self) -> None:
        """Warn once if live replicas are not in sync and no leader asks for an ISR: brokers may not reach us."""
        if not self._leaders_ask or self.isr_writer.has_received_requests or self._has_warned_of_silence:
            return
        able = {*self.context.live} - self.context.shutting_down - self.broker_requests.drained_brokers
        waiting = [
            partition_name(row.topic, row.partition)
            for row in self.context.partitions.values()
            if row.leader in able
            and able.intersection(row.replicas) - {*(row.isr or ())} - self.context.failed.get(row.key, set())
        ]
        if waiting:
            self._has_warned_of_silence = True
            addresses = sorted({f"{endpoint.host}:{endpoint.port}" for endpoint in self.broker_requests.endpoints})
            self.log_line(
                f"surveyor: warning: {with_others(waiting[0], len(waiting))}: live replicas are not in sync, and since "
                "the take-over no broker has asked for an ISR. Make sure that brokers can connect to "
                f"{', '.join(addresses)} (--advertise)",
                logging.WARNING,
            )

    def stop(self) -> None:
        """Stop answering requests of brokers, and sending them requests."""
        if self.apis:
            self.apis.close()
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
        """Read, decide, write and send; return whether something was done or is due immediately."""
        started = time.monotonic()
        try:
            return self._cycle()
        finally:
            self.on_cycle(time.monotonic() - started)

    def _cycle(self) -> bool:
        self.summary.cycles += 1
        idle = self.broker_requests.channels.idle
        self.silent_brokers.report(self.broker_requests.channels.backlog()[1])
        effects = self.responses.drain()
        self.reader.started_brokers |= effects.bounced_brokers
        changes = self.reader.refresh(self.resync.next_topics(self.watches.drain()))
        self.control.refuse_lost()
        self._raise_epoch_if_refused(effects.refused_epochs)
        self._on_broker_changes()
        self._apply_broker_configs()
        if self.apis:
            self._dirty_partitions |= self.phantoms.replace_all() | self._take_isr_changes()
            self._assign_topic_ids()
            self._shut_down()
        self._dirty_partitions |= self.notifications.isr_changes()
        self.notifications.log_dirs()
        self._send_retries(idle)
        expired = self.writer.expired_backoffs()
        self._dirty_partitions |= expired
        if self.context.moving:
            self._dirty_partitions |= self.reader.refresh_partitions(self.context.moving)
        dirty, self._dirty_partitions = self._dirty_partitions | changes.partitions | effects.partitions, set()
        requests_due = self._requests_due or changes.requests or effects.has_stopped_replicas or bool(expired)
        self._requests_due = False
        leaderless = self._leaderless(dirty)
        first_outcomes = self._decide_and_write(leaderless)[1]
        decided, outcomes = self._decide_and_write(
            dirty - leaderless, self.auto_rebalance.due(self.context), requests_due=requests_due
        )
        decided = self._without_premature_withdrawals(decided)
        self._on_bounced_brokers_handled([*first_outcomes, *outcomes])
        self._withdraw(decided, outcomes)
        self._delete(decided)
        self._poll_plans()
        return bool(first_outcomes or decided.changes or self._dirty_partitions or self._requests_due)

    def _raise_epoch_if_refused(self, refused_epochs: Mapping[int, int]) -> None:
        """Raise our epoch above those in partition states and those that brokers know.

        Kafka never overwrites a state of a later controller epoch, and brokers refuse a controller with an earlier
        epoch. /controller_epoch may have been deleted or set back before we took over. While a plan is being written,
        it uses the present epoch, so nothing is raised.
        """
        epoch = self.control.epoch
        brokers = sorted(broker for broker, refused in refused_epochs.items() if refused == epoch)
        if (self.plan_inbox and self.plan_inbox.is_busy) or not (brokers or self.context.latest_epoch > epoch):
            return
        latest = self.context.latest_epoch
        if brokers:
            latest = max(latest, epoch + next(self._epoch_steps, 0) - 1)
            self.log_line(f"surveyor: {raised_line(brokers, epoch)}", logging.WARNING)
        self.control.raise_above(latest)
        self.log_line(f"surveyor: controller epoch {self.control.epoch}, after {epoch}")
        if self.settings:
            carry_over(self.settings.warehouse, epoch, self.control.epoch)

    def _leaderless(self, due: set[Key]) -> set[Key]:
        """Partitions without a live leader; they are decided on first, and do not wait for thousands of others."""
        serving = {*self.context.live} - self._bounced
        rows = ((key, self.context.partitions.get(key)) for key in due - self.context.requested_partitions)
        return {key for key, row in rows if row is not None and row.leader not in serving}

    def _decide_and_write(
        self, due: set[Key], balance: AbstractSet[Key] = frozenset(), *, requests_due: bool = False
    ) -> tuple[Decisions, list[RowOutcome]]:
        """Decide on partitions, on leadership to be balanced and on requests; write the changes and send them."""
        self._refresh_states(due | balance | (self.context.requested_partitions if requests_due else set()))
        decided = self._decide(due, balance, requests_due=requests_due)
        record = self._record_cycle(decided)
        outcomes = self._write(decided, record)
        written = {outcome.change.key for outcome in outcomes if outcome.outcome is Outcome.APPLIED}
        self._resuming -= due - {change.key for change in decided.changes if change.key not in written}
        self.summary.add_cycle(outcomes, () if record is None else record.rejections)
        # a partition that changes, for instance because a replica of the target failed, is decided on again first
        changing = {change.key for change in decided.changes}
        self.broker_requests.send_stops(decision for decision in decided.others if decision.key not in changing)
        return decided, outcomes

    def _refresh_states(self, keys: Collection[Key]) -> None:
        """Bring the context up to date on these partitions, right before they are decided on.

        Where leaders leave ISRs to this process, it writes all states itself: only what the ISR writer has written
        since is missing. If another client has changed a state, the multi is refused by its version, and
        the state is read. Otherwise leaders write ISRs themselves and notify seconds later. The states that a plan
        writes arrive batch by batch.
        """
        if self._leaders_ask and not (self.plan_inbox and self.plan_inbox.is_busy):
            self._dirty_partitions |= self._take_isr_changes()
        else:
            self.reader.refresh_partitions(keys)

    def _poll_plans(self) -> None:
        """Continue with submitted plans.

        Brokers are sent the current state of partitions that a plan has changed and not sent.
        """
        if self.plan_inbox is None:
            return
        unsent = self.plan_inbox.poll()
        self.broker_requests.resend(unsent)
        self._dirty_partitions |= unsent | self.writer.drain_dirty()

    def _refresh_drained(self) -> None:
        """Read which brokers are drained.

        A broker whose replicas a plan has stopped is sent nothing that would start them.
        """
        self.engine.refresh_drained()
        self._end_drains()

    def _end_drains(self) -> None:
        """End the resident drains of brokers that have registered again.

        Such a broker is sent the full state, as any other.
        """
        ended = self.engine.end_drains(
            {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        )
        for mark in ended:
            self.log_line(f"  broker {mark.broker_id} is no longer drained: it has registered again")
        if ended:
            self.log.record(EndedDrains(ended))
        self._note_stopped_brokers()

    def _note_stopped_brokers(self) -> None:
        """Note which brokers are not to be sent what would start replicas that a drain or a shutdown has stopped."""
        self.context.shutting_down &= self.context.brokers.keys()
        drained = {row.broker_id for row in self.engine.drained if row.mode == DrainMode.RESIDENT}
        self.broker_requests.drained_brokers = frozenset(drained | self.context.shutting_down)

    def _request_broker_configs(self, broker_ids: Iterable[int]) -> None:
        if self.config_poller:
            self.config_poller.request_configs(
                self.context.brokers[broker] for broker in broker_ids if broker in self.context.brokers
            )

    def _apply_broker_configs(self) -> None:
        """Apply changed broker settings; a partition without a leader may get one by them."""
        configs = self.config_poller.take_changed(self.context.brokers) if self.config_poller else None
        if configs is None:
            return
        self.engine.set_broker_configs(configs)
        self.auto_rebalance = self.auto_rebalance.with_configs(configs)
        if self.apis:  # an upgraded cluster may know topic ids now, and look for us elsewhere
            if self._refresh_endpoints():
                self.broker_requests.send((), live_brokers_to=self.context.live)
            self._complete_znodes()
        leaderless = (key for key, row in self.context.partitions.items() if row.leader not in self.context.brokers)
        self._dirty_partitions, self._requests_due = self._dirty_partitions.union(leaderless), True

    def _decide(self, due: set[Key], balance: AbstractSet[Key], *, requests_due: bool) -> Decisions:
        if self.apis:
            due = due - self.phantoms.pending()
        if not (due or balance or requests_due):
            return Decisions()
        bounced = self._bounced
        decisions = self.engine.decide(
            self.context,
            due,
            deletions=requests_due,
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
        started, failed, with_new_endpoints, undeleted = (
            self.reader.started_brokers,
            self.reader.failed_brokers,
            self.reader.brokers_with_new_endpoints,
            self.reader.undeleted_topics,
        )
        if not (started or failed or with_new_endpoints or undeleted or self.reader.newly_readable_partitions):
            return
        self._unhandled_failures |= dict.fromkeys(failed, MAX_FAILURE_CYCLES)
        if self.apis:
            self._refresh_endpoints()
        to_refresh = [self.context.of_broker(broker) for broker in started] + [
            self.context.of_topic(topic) for topic in undeleted
        ]
        # a bounced leader may have changed ISRs without a notification, and must not be sent an earlier ISR
        changed = self.reader.refresh_partitions({*chain(*to_refresh)})
        for broker in sorted(failed | started):
            self.log_line(
                f"  broker {broker} {'has registered' if broker in self.context.brokers else 'is no longer registered'}"
            )
        for broker in sorted(with_new_endpoints - started):
            self.log_line(f"  broker {broker} has written its registration again")
        self._dirty_partitions, self._requests_due = self._dirty_partitions | changed, True
        self.context.shutting_down -= started | failed
        self._end_drains()
        self._request_broker_configs(started)
        to_send = started - self._bounced
        self.broker_requests.send_full_state([broker for broker in self.context.live if broker in to_send])
        self.broker_requests.send_metadata(changed)
        self._resend_to_followers_of(to_send)
        self.broker_requests.resend_topics(undeleted)
        plan_topics = self.plan_inbox.topics if self.plan_inbox else ()
        self.broker_requests.resend({key for key in self.reader.newly_readable_partitions if key[0] not in plan_topics})
        self.reader.acknowledge()

    def _isr_candidates(self) -> IsrCandidates:
        """Return which brokers may be in an ISR; called in the thread of the ISR writer."""
        absent = self.context.shutting_down | self._bounced
        epochs = {row.broker_id: row.czxid for row in [*self.context.brokers.values()]}
        return IsrCandidates(
            {broker: epoch for broker, epoch in epochs.items() if broker not in absent},
            self.broker_requests.drained_brokers,
        )

    def _take_isr_changes(self) -> set[Key]:
        """Send brokers the ISRs that leaders have changed; return the partitions to be decided on.

        A change of an ISR makes the next step of a reassignment or of a request due, or the removal of a member that
        has failed since the change was written. The failure was decided on without it.
        """
        asked, outdated = self.isr_writer.drain_written()
        if not (asked or outdated):
            return set()
        changed = self.reader.refresh_partitions(outdated)
        self.broker_requests.send_metadata(asked | outdated)
        due = self.context.moving | self.context.requested_partitions
        serving = {*self.context.live} - self._bounced
        rows = ((key, self.context.partitions.get(key)) for key in asked)
        with_failed = {key for key, row in rows if row is not None and not serving.issuperset(row.isr or ())}
        return changed | (asked & due) | with_failed

    def _shut_down(self) -> None:
        """Carry out the controlled shutdowns that brokers ask for, and answer them.

        What a broker leads is moved first; clients of the other partitions notice nothing.
        """
        requests = self.shutdowns.take()
        due = list[ShutdownRequest]()
        for request in requests:
            error = self._shutdown_error(request)
            if error:
                request.response.set_result(ShutdownResponse(error))
            else:
                due.append(request)
        if not due:
            return
        brokers = frozenset(request.broker_id for request in due)
        for broker in sorted(brokers - self.context.shutting_down):
            self.log_line(f"  broker {broker} is shutting down")
        self.context.shutting_down |= brokers
        self._note_stopped_brokers()
        self._move_leaders(brokers, {key for broker in brokers for key in self.context.led_by(broker)})
        self._move_leaders(brokers, {key for broker in brokers for key in self.context.of_broker(broker)})
        for broker in brokers:
            self.broker_requests.stop_replicas(broker)
        for request in due:
            led = self.context.led_by(request.broker_id)
            remaining = [key for key in led if len(self.context.partitions[key].replicas) > 1]
            request.response.set_result(ShutdownResponse(NONE, remaining))

    def _move_leaders(self, brokers: frozenset[int], keys: set[Key]) -> None:
        """Let others lead these partitions, and take the brokers that shut down out of their ISRs."""
        for _ in range(MAX_SHUTDOWN_ATTEMPTS):
            self._refresh_states(keys)
            decided = self.engine.shut_down(self.context, keys, brokers)
            outcomes = self._write(decided, self._record_cycle(decided))
            self.summary.add_cycle(outcomes, ())
            if all(outcome.outcome is Outcome.APPLIED for outcome in outcomes):
                break

    def _shutdown_error(self, request: ShutdownRequest) -> int:
        """Return the error code of a shutdown that is not carried out, 0 if it is."""
        broker = self.context.brokers.get(request.broker_id)
        if broker is None:
            return BROKER_NOT_AVAILABLE
        is_outdated = request.broker_epoch not in {UNCHECKED_EPOCH, broker.broker_epoch}
        return STALE_BROKER_EPOCH if is_outdated else NONE

    @property
    def _leaders_ask(self) -> bool:
        """Whether all leaders leave changes of ISRs to this process."""
        protocol = self._protocol()
        return self.apis is not None and protocol is not None and protocol >= ALTER_ISR_SINCE

    def _protocol(self) -> Protocol | None:
        """Return the earliest protocol version of the brokers, None if that of a broker is unknown."""
        return earliest_protocol(self.engine.broker_configs, self.context.brokers.keys())

    def _refresh_endpoints(self) -> bool:
        """Name the endpoints as the brokers' listeners are named; return whether that differs from before.

        The former ones for brokers are kept if a listener of them is not served. Clients are no longer served, and no
        longer see us, at a listener at which a broker has another security than our address. Until a broker is
        registered, there is nothing to compare, and nothing changes.
        """
        configs, brokers = self.engine.broker_configs, [*self.context.brokers.values()]
        for_clients = [endpoint for endpoint in self.served if endpoint.listener is not None]
        former = self.broker_requests.endpoints
        endpoints = [endpoint for endpoint in former if endpoint not in for_clients]
        warnings, listeners = list[str](), self.served_listeners
        try:
            endpoints = broker_endpoints(configs, brokers, self.served)
        except RefusedError as error:
            warnings.append(str(error))
        if any(broker.endpoints for broker in brokers):
            listeners, reasons = served_listeners(self.served, endpoints, configs, brokers, self.logins)
            warnings += reasons
        for warning in dict.fromkeys(warnings):
            if warning not in self._endpoint_warnings:
                self.log_line(f"surveyor: warning: {warning}", logging.WARNING)
        for name in listeners - self.served_listeners if former else ():
            where = f"of listener {name}" if name else "at the plain-text address of brokers"
            self.log_line(f"surveyor: clients {where} are served again")
        self._endpoint_warnings, self.served_listeners = frozenset(warnings), listeners
        endpoints += [endpoint for endpoint in for_clients if endpoint.listener in listeners]
        self.broker_requests.endpoints = endpoints
        return [*former] != endpoints

    def _complete_znodes(self) -> None:
        """Write what Kafka's fail-over writes at the earliest protocol version of the brokers."""
        protocol = self._protocol()
        if protocol is not None:
            enable_features(self.control, protocol)
        self._assign_topic_ids()

    def _assign_topic_ids(self) -> None:
        """Give ids to topics without one, if all brokers know ids, and send them to the brokers.

        A follower that knows an id cannot fetch from a leader that does not. A topic that is new has no state to be
        sent: it gets its id before its first state, unless it was created while the cycle had begun. One that changed
        since it was read fails the multi of the others, which get their ids in the next cycle.
        """
        if not (self.context.topics_without_id and uses_topic_ids(self._protocol())):
            return
        topics = (self.context.topics[name] for name in self.context.topics_without_id)
        due = {info.topic for info in topics if info.understood and not info.deletion_requested}
        if not due:
            return
        assign_topic_ids(self.control, self.context, due)
        self._dirty_partitions |= self.reader.refresh_topics(due)
        self.broker_requests.resend_topics({name for name in due if self.context.topic_id(name) is not None})

    def _send_retries(self, idle: Collection[int]) -> None:
        """Send again what brokers answered with an error, each broker after its own delay."""
        for batch in self.retries.due_retries(idle):
            stopping = self.broker_requests.send_retry(batch)
            self._dirty_partitions, self._requests_due = (
                self._dirty_partitions | stopping,
                self._requests_due or bool(stopping),
            )

    def _resend_to_followers_of(self, broker_ids: Collection[int]) -> None:
        """Send the partitions that these brokers lead to their replicas again.

        A follower ignores a leader that is not alive by its metadata.
        """
        partitions = ((key, broker) for broker in broker_ids for key in self.context.of_broker(broker))
        self.broker_requests.resend(
            {key for key, broker in partitions if self.context.partitions[key].leader == broker}
        )

    def _is_failing(self, broker: int) -> bool:
        return broker in self._unhandled_failures or broker in self.reader.failed_brokers

    @property
    def _bounced(self) -> set[int]:
        """Brokers that registered again before their failure was written."""
        return self._unhandled_failures.keys() & {*self.context.live}

    def _on_bounced_brokers_handled(self, outcomes: Sequence[RowOutcome]) -> None:
        """Send bounced brokers the full state, once their partitions are written as after a failure."""
        if any(outcome.outcome is Outcome.SKIPPED for outcome in outcomes):
            return  # the next cycle continues
        bounced, written = self._bounced, all(outcome.outcome is Outcome.APPLIED for outcome in outcomes)
        self._unhandled_failures = (
            {} if written else {broker: left - 1 for broker, left in self._unhandled_failures.items() if left > 1}
        )
        back = sorted(bounced - self._unhandled_failures.keys())
        if back:
            self.broker_requests.send_full_state(back)
            self._requests_due = True  # a deletion may have waited for them
            self._dirty_partitions |= {key for broker in back for key in self.context.of_broker(broker)}

    def _write(self, decided: Decisions, record: CycleRecord | None) -> list[RowOutcome]:
        """Write the decided changes, and send those of each multi as soon as it is written."""
        outcomes: list[RowOutcome] = []
        try:
            for judged, written in self.writer.write(decided.changes) if decided.changes else ():
                outcomes += judged
                self.broker_requests.send_changes(written)
                self.summary.by_action.update(change.action for change in written)
        finally:
            if record is not None:
                self.log.finish(record, outcomes)
        self._dirty_partitions |= self.writer.drain_dirty()
        self._requests_due |= bool(outcomes) and bool(self.context.requests)
        return outcomes

    def _without_premature_withdrawals(self, decided: Decisions) -> Decisions:
        """Leave out refusals of requests whose topics or partitions were created during the cycle.

        A request may be read before the topic that it names. Such a request is decided on in the next cycle instead of
        being withdrawn.
        """
        topics = {decision.topic for decision in decided.withdrawn if decision.code is RejectionCode.UNKNOWN_PARTITION}
        topics |= {deletion.topic for deletion in decided.deletions if deletion.code is RejectionCode.UNKNOWN_TOPIC}
        if not topics:
            return decided
        appeared = self.reader.refresh_topics(topics)
        self._dirty_partitions |= appeared
        self._requests_due |= bool(appeared) or not topics.isdisjoint(self.context.topics)
        return replace(
            decided,
            withdrawn=[decision for decision in decided.withdrawn if decision.key not in appeared],
            others=[decision for decision in decided.others if decision.key not in appeared],
            deletions=[
                deletion
                for deletion in decided.deletions
                if deletion.code is not RejectionCode.UNKNOWN_TOPIC or deletion.topic not in self.context.topics
            ],
        )

    def _withdraw(self, decided: Decisions, outcomes: Sequence[RowOutcome]) -> None:
        """Withdraw requests that are fulfilled, that cannot be fulfilled, or that are empty."""
        for refused in chain(self.requests.withdraw(decided, outcomes), self.requests.remove_empty()):
            self._handle_refusal(refused)

    def _handle_refusal(self, refused: MultiFailure | None) -> bool:
        """Return whether ZooKeeper let the requests be removed.

        If it refused, the requests are decided on again in the next cycle, after a pause.
        """
        if refused is None:
            self.writer.failed_attempts = 0
            return True
        self.log_line(f"surveyor: {refused}; retrying", logging.WARNING)
        self.writer.failed_attempts += 1
        self._requests_due = True
        return False

    def _delete(self, decided: Decisions) -> None:
        """Send the requests that delete topics to brokers, and remove the topics that are deleted everywhere."""
        self.broker_requests.send_deletions(decided)
        deadline = time.monotonic() + POLL_INTERVAL_SECONDS
        for deletion in decided.deletions:
            if time.monotonic() > deadline:
                self._requests_due = True
                return  # the next cycle continues, so that other work does not wait for a thousand topics
            if deletion.step is DeletionStep.REMOVE:
                self._remove(deletion.topic)
            elif deletion.step is DeletionStep.REFUSE:
                self._handle_refusal(self.requests.refuse_deletion(deletion.topic, deletion.reason or ""))

    def _remove(self, topic: str) -> None:
        if self._handle_refusal(self.requests.remove_topic(topic)):
            self._requests_due = True
            self.context.remove_topic(topic)
            self.broker_requests.forget_topic(topic)
            self.summary.by_action[OperationKind.DELETE_TOPIC] += 1
            self.log_line(f"  topic {topic} is deleted")

    def _record_cycle(self, decided: Decisions) -> CycleRecord | None:
        """Record the changes and the new rejections of a cycle before any of it is written."""
        rejections = self.summary.new_rejections(decided.others)
        if not (decided.changes or rejections):
            return None
        record = self.cycle_record(decided.changes, rejections)
        self.log.record(record)
        return record

    def cycle_record(
        self,
        changes: Sequence[Change] = (),
        rejections: Sequence[RejectionRecord] = (),
        outcomes: Sequence[RowOutcome] | None = None,
    ) -> CycleRecord:
        """Make the record of a cycle, with the current broker epochs and controller epoch."""
        epochs = {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        ids = self.snapshot.snapshot_id, self.snapshot.cluster_id
        return CycleRecord(*ids, epochs, self.control.epoch, changes, rejections, outcomes)
