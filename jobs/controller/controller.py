"""A controller that stays: it holds the controllership and does in cycles whatever is due, until it is told to stop.

Corresponds to `KafkaController` as a whole: `onControllerFailover` at the take-over, its events afterwards, and
`onControllerResignation` at the end. Woken by watches and by answers of brokers, at the latest every few seconds, each
cycle looks at what has changed, decides by `planner.reconciliation`, writes under the fence, and queues what is due to
be told. Nothing that matters is remembered: the next controller finds out from ZooKeeper, and tells everybody
everything.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from kazoo.exceptions import SessionExpiredError

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.listeners import PLAIN
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import SESSION_OVER, Controllership, SessionLostError, await_reconnect
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.controller.admin_requests import AdminRequestRemover
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.broker_config_poller import BrokerConfigPoller, by_admin
from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.broker_requests.broker_startup import BrokerStartup
from jobs.controller.broker_requests.responses import ResponseHandler
from jobs.controller.broker_requests.retries import RetryQueue
from jobs.controller.broker_requests.zk_notifications import NotificationHandler
from jobs.controller.context import ControllerContext
from jobs.controller.cycle_summary import CycleSummary
from jobs.controller.decisions.engine import DecisionEngine, Decisions, released_replicas, restrict_to_in_sync
from jobs.controller.decisions.precompute import FailurePrecomputer
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.plan_inbox import PlanInbox
from jobs.controller.resync import Resync
from jobs.controller.state_writer import StateWriter
from jobs.controller.write_behind import CycleRecord, EndedDrains, WriteBehindLog
from jobs.controller.zk_watches import ZkWatches
from jobs.core.signals import interrupted
from jobs.execution.batch.notify import EPOCH_STEPS, raised_line
from jobs.repositories.drained_brokers import carry_over
from jobs.repositories.plans.commit_log import RowOutcome
from jobs.runtime.settings import Settings
from planner.reconciliation.topic_deletion import DeletionStep
from planner.text import pluralise
from schemas.enums import DrainMode, OperationKind, Outcome, RejectionCode
from schemas.rows import Change, Key

POLL_INTERVAL_SECONDS: Final = 2.0
"""Seconds after which the cluster is looked at, though nothing woke the controller."""

MAX_FAILURE_CYCLES: Final = 3
"""Cycles in which a broker's failure is written; then it is told everything that stands, if it is back."""

FIRST_RETRY_SECONDS: Final = 0.05
"""Seconds after a cycle whose changes were all refused; twice as many after each further one, up to a tick."""

_DOUBLED: Final = 6
"""Times that the pause is doubled, at most."""


@dataclass(slots=True)
class ResidentController:
    """One controllership, from its take-over to its end."""

    control: Controllership
    engine: DecisionEngine
    log: WriteBehindLog
    snapshot: Row
    log_line: Callable[[str], None]
    settings: Settings | None = None
    """Of the command; without them no plans are carried out, and brokers are spoken to in plain text."""
    context: ControllerContext = field(default_factory=ControllerContext)
    """Empty but for what history knows to have `vanished`."""
    summary: CycleSummary = field(init=False)
    watches: ZkWatches = field(init=False)
    reader: MetadataReader = field(init=False)
    retries: RetryQueue = field(init=False)
    responses: ResponseHandler = field(init=False)
    broker_requests: BrokerRequestBatch = field(init=False)
    notifications: NotificationHandler = field(init=False)
    writer: StateWriter = field(init=False)
    requests: AdminRequestRemover = field(init=False)
    plan_inbox: PlanInbox | None = field(init=False)
    balance: AutoLeaderRebalance = field(init=False)
    resync: Resync = field(init=False)
    config_poller: BrokerConfigPoller | None = field(init=False)
    startup: BrokerStartup = field(init=False)
    precomputer: FailurePrecomputer | None = field(init=False)
    """Where there is none, each failure is decided on when it is there."""
    _due: set[Key] = field(default_factory=set)
    """Partitions to be looked at in the next cycle."""
    _unhandled_failures: dict[int, int] = field(default_factory=dict)
    """Brokers that were gone, and whose failure is not written as a whole; some may have registered anew since.

    With the cycles left that wait for it: what cannot be written keeps nobody from being introduced.
    """
    _requests_due: bool = True
    _raised_by: Iterator[int] = field(default_factory=lambda: iter(EPOCH_STEPS))
    """How far our epoch is raised the next time that a broker refuses it."""

    def __post_init__(self) -> None:
        self.summary = CycleSummary(self.log_line)
        self.watches = ZkWatches(self.control.client)
        self.reader = MetadataReader(self.control.client, self.watches, self.context)
        self.retries = RetryQueue(self.context, self.log_line)
        self.responses = ResponseHandler(self.context, self.watches, self.log, self.retries)
        listener = self.settings.listener if self.settings else PLAIN
        queues = ChannelManager(str(self.control.controller_id), self.responses.receive, listener)
        self.broker_requests = BrokerRequestBatch(self.control, self.context, queues)
        self.writer = StateWriter(self.control, self.context, self.reader, self.watches)
        self.notifications = NotificationHandler(
            self.control, self.context, self.reader, self.broker_requests, self.responses
        )
        self.requests = AdminRequestRemover(self.control, self.context, self.log, self.log_line)
        at_hand = self.control, self.reader, self.writer, self.broker_requests, self._refresh_drained, self.log_line
        self.plan_inbox = PlanInbox(self.settings, *at_hand) if self.settings else None
        self._refresh_drained()
        self.resync = Resync(self.reader, self.context)
        self.config_poller = None
        if self.settings:
            ask = by_admin(self.control.client, self.settings)
            self.config_poller = BrokerConfigPoller(ask, self.engine.broker_configs, self.log_line, self.watches.signal)
        self.balance = AutoLeaderRebalance.of(self.engine.broker_configs)
        self.precomputer = FailurePrecomputer(self.engine, self.context)
        self.startup = BrokerStartup(self.control, self.context, queues, self._is_failing)

    def initialize(self) -> None:
        """Begin: read everything, and tell everybody everything, the brokers alive first."""
        started = time.monotonic()
        if self.plan_inbox:
            self.plan_inbox.announce()
        self.notifications.delete_all()
        self.reader.load_all()
        self._due = set(self.context.partitions)
        self.broker_requests.send_full_state(
            self.context.live, have_started=False
        )  # as Kafka's fail-over: the live brokers come first
        self._request_broker_configs(
            self.context.brokers.keys() - {row["broker_id"] for row in self.engine.broker_configs}
        )
        brokers, partitions = len(self.context.brokers), len(self.context.partitions)
        self.log_line(
            f"  read {pluralise(brokers, 'broker')} and {pluralise(partitions, 'partition')} in "
            f"{time.monotonic() - started:.1f} s"
        )

    def run(self, *, until_quiet: bool = False) -> None:
        """Cycle until a signal comes, or until nothing is due; FencedError once another controller has taken over."""
        self.startup.start()
        while not interrupted():
            try:
                self._audit()
                busy = self.cycle()
            except SessionExpiredError:
                raise SessionLostError(SESSION_OVER) from None
            except LOST:  # what was in flight is read back
                await_reconnect(self.control.client, self.control.session)
                self.resync.begin_at_once()
                # what was due may not have been done
                self._due, self._requests_due = {*self.context.partitions}, True
                continue
            if until_quiet and not busy and self._is_quiet:
                return
            if not busy:
                self._idle()
            elif self.writer.failed_attempts:
                time.sleep(
                    min(POLL_INTERVAL_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self.writer.failed_attempts, _DOUBLED))
                )

    def _idle(self) -> None:
        """Think of what may come, one thing at a time, or wait to be woken."""
        if self.watches.wakeup.is_set() or self.resync.is_under_way:
            return
        if self.precomputer is None or not self.precomputer.run_next():
            self.watches.wakeup.wait(self.retries.next_delay(POLL_INTERVAL_SECONDS))

    def _audit(self) -> None:
        """Read a part of everything again where that is due; what is not as it was known is looked at."""
        begins, seen = not self.resync.is_under_way, self.resync.proceed()
        if seen is None:
            return
        if begins:
            self._request_broker_configs(self.context.brokers)
        self._on_broker_changes()
        self.broker_requests.send_metadata(seen.partitions)  # of notifications that were lost
        self._due |= seen.partitions
        self._requests_due |= seen.requests or not self.resync.is_under_way

    def stop(self) -> None:
        """Tell nobody anything any more."""
        self.startup.stop()
        if self.plan_inbox:
            self.plan_inbox.close()
        self.broker_requests.queues.stop()

    @property
    def _is_quiet(self) -> bool:
        """Whether everybody has answered, nothing moves, and no plan is being carried out, nor all read again."""
        if self.resync.is_under_way or (self.plan_inbox and self.plan_inbox.is_busy):
            return False
        moving = self.context.moving - self.retries.exhausted_partitions
        return not self.broker_requests.queues.busy and self.responses.is_quiet and self.retries.is_quiet and not moving

    def cycle(self) -> bool:
        """Look, decide, write, tell; return whether something was done or is due at once."""
        self.summary.cycles += 1
        idle = self.broker_requests.queues.idle
        heard = self.responses.drain()
        self.reader.started_brokers |= heard.untold
        seen = self.reader.refresh(self.resync.next_topics(self.watches.drain()))
        self.control.refuse_lost()
        self._stay_latest(heard.of_later_epoch)
        self._on_broker_changes()
        self._apply_broker_configs()
        self._due |= self.notifications.isr_changes()
        self.notifications.log_dirs()
        self._send_retries(idle)
        again = self.writer.expired_backoffs()
        self._due |= again
        if self.context.moving:
            self._due |= self.reader.refresh_partitions(self.context.moving)
        due, self._due = self._due | seen.partitions | heard.partitions, set()
        requests_due = self._requests_due or seen.requests or heard.stopped or bool(again)
        self._requests_due = False
        first = self._leaderless(due)
        verdicts = self._decide_and_write(first)[1]
        decided, more = self._decide_and_write(due - first, self.balance.due(self.context), requests_due=requests_due)
        decided = self._without_new_partitions(decided)
        self._on_bounced_brokers_handled([*verdicts, *more])
        self._withdraw(decided, more)
        self._delete(decided)
        self._carry_out_plans()
        return bool(verdicts or decided.changes or self._due or self._requests_due)

    def _stay_latest(self, refusing: Mapping[int, int]) -> None:
        """Move our epoch above what states carry and brokers have heard of, while no plan is written by it.

        Kafka never overwrites a state of a later controller epoch, and brokers refuse a controller of an earlier one;
        /controller_epoch may have been deleted or set back before we took over.
        """
        before = self.control.epoch
        brokers = sorted(broker for broker, epoch in refusing.items() if epoch == before)
        if (self.plan_inbox and self.plan_inbox.is_busy) or not (brokers or self.context.latest_epoch > before):
            return
        latest = self.context.latest_epoch
        if brokers:
            latest = max(latest, before + next(self._raised_by, 0) - 1)
            self.log_line(f"surveyor: {raised_line(brokers, before)}")
        self.control.raise_above(latest)
        self.log_line(f"surveyor: controller epoch {self.control.epoch}, after {before}")
        if self.settings:
            carry_over(self.settings.lake, before, self.control.epoch)

    def _leaderless(self, due: set[Key]) -> set[Key]:
        """Partitions that nobody leads: they do not wait until thousands of others are read and decided on."""
        there = {*self.context.live} - self._bounced
        rows = ((key, self.context.partitions.get(key)) for key in due - self.context.requested_partitions)
        return {key for key, row in rows if row is not None and row.leader not in there}

    def _decide_and_write(
        self, due: set[Key], balance: AbstractSet[Key] = frozenset(), *, requests_due: bool = False
    ) -> tuple[Decisions, list[RowOutcome]]:
        """Decide on partitions, on what balance asks for and on requests, and write and tell it."""
        # leaders that write ISRs themselves say so seconds later: what is decided on is read right before
        self.reader.refresh_partitions(due | balance | (self.context.requested_partitions if requests_due else set()))
        decided = self._decide(due, balance, requests_due=requests_due)
        episode = self._record_cycle(decided)
        verdicts = self._write(decided, episode)
        self.summary.add_cycle(verdicts, () if episode is None else episode.rejections)
        self.broker_requests.stop(decided.others)
        return decided, verdicts

    def _carry_out_plans(self) -> None:
        """Go on with plans that commits have handed in; what they wrote and did not tell is told now."""
        if self.plan_inbox is None:
            return
        untold = self.plan_inbox.poll()
        self.broker_requests.resend(untold)
        self._due |= untold | self.writer.drain_dirty()

    def _refresh_drained(self) -> None:
        """Know which brokers are drained; one whose replicas a plan has stopped is sent nothing that starts them."""
        self.engine.refresh_drained()
        self._end_drains()

    def _end_drains(self) -> None:
        """End the resident drains of brokers that have registered again: they are sent everything, like all others."""
        ended = self.engine.end_drains(
            {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        )
        for mark in ended:
            self.log_line(f"  broker {mark['broker_id']} is drained no more: it has registered again")
        if ended:
            self.log.record(EndedDrains(ended))
        self.broker_requests.drained_brokers = frozenset(
            row["broker_id"] for row in self.engine.drained if row["mode"] == DrainMode.RESIDENT
        )

    def _request_broker_configs(self, broker_ids: Iterable[int]) -> None:
        if self.config_poller:
            self.config_poller.ask(
                self.context.brokers[broker] for broker in broker_ids if broker in self.context.brokers
            )

    def _apply_broker_configs(self) -> None:
        """Go by what brokers say of their settings now; who has no leader may get one by them."""
        configs = self.config_poller.take(self.context.brokers) if self.config_poller else None
        if configs is None:
            return
        self.engine.set_broker_configs(configs)
        self.balance = self.balance.by(configs)
        if self.precomputer:
            self.precomputer.restart()
        unled = (key for key, row in self.context.partitions.items() if row.leader not in self.context.brokers)
        self._due, self._requests_due = self._due.union(unled), True

    def _decide(self, due: set[Key], balance: AbstractSet[Key], *, requests_due: bool) -> Decisions:
        if not (due or balance or requests_due):
            return Decisions()
        away = self._bounced
        decided = self.engine.decide(self.context, due, deletions=requests_due, balance=balance, away=away)
        # who bounced is back, and has its log yet: it is not forgotten before it has stopped
        changes = [c for c in self.writer.without_backed_off(decided.changes) if away.isdisjoint(released_replicas(c))]
        return replace(decided, changes=[restrict_to_in_sync(change, away) for change in changes] if away else changes)

    def _on_broker_changes(self) -> None:
        """Introduce brokers that are new, and topics that are kept; tell who is there now (`onBrokerStartup`)."""
        joined, gone, moved, kept = (
            self.reader.started_brokers,
            self.reader.failed_brokers,
            self.reader.brokers_with_new_endpoints,
            self.reader.undeleted_topics,
        )
        if not (joined or gone or moved or kept or self.reader.newly_readable_partitions):
            return
        self._unhandled_failures |= dict.fromkeys(gone, MAX_FAILURE_CYCLES)
        anew = [self.context.of_broker(broker) for broker in joined] + [self.context.of_topic(topic) for topic in kept]
        # a leader that bounced may have changed ISRs and not notified: told of an earlier ISR it would go by that
        changed = self.reader.refresh_partitions({*chain(*anew)})
        for broker in sorted(gone | joined):
            self.log_line(f"  broker {broker} {'has registered' if broker in self.context.brokers else 'is gone'}")
        for broker in sorted(moved - joined):
            self.log_line(f"  broker {broker} has written its registration again")
        self._due, self._requests_due = self._due | changed, True
        self._end_drains()
        self._request_broker_configs(joined)
        new = joined - self._bounced
        self.broker_requests.send_full_state([broker for broker in self.context.live if broker in new])
        self.broker_requests.send_metadata(changed)
        self._resend_to_followers_of(new)
        self.broker_requests.resend_topics(kept)
        at_hand = self.plan_inbox.topics if self.plan_inbox else ()
        self.broker_requests.resend({key for key in self.reader.newly_readable_partitions if key[0] not in at_hand})
        self.reader.acknowledge()

    def _send_retries(self, idle: Collection[int]) -> None:
        """Tell brokers again what they answered with an error, each after a pause."""
        for untaken in self.retries.due_retries(idle):
            stopping = self.broker_requests.send_retry(untaken)
            self._due, self._requests_due = self._due | stopping, self._requests_due or bool(stopping)

    def _resend_to_followers_of(self, broker_ids: Collection[int]) -> None:
        """Tell the replicas of what these lead once more: a follower ignores a leader that is not alive."""
        known = ((key, broker) for broker in broker_ids for key in self.context.of_broker(broker))
        self.broker_requests.resend({key for key, broker in known if self.context.partitions[key].leader == broker})

    def _is_failing(self, broker: int) -> bool:
        return broker in self._unhandled_failures or broker in self.reader.failed_brokers

    @property
    def _bounced(self) -> set[int]:
        """Brokers that registered anew before their failure was written."""
        return self._unhandled_failures.keys() & {*self.context.live}

    def _on_bounced_brokers_handled(self, verdicts: Sequence[RowOutcome]) -> None:
        """Introduce brokers that bounced, once all that they led and followed is written as after a failure."""
        if any(verdict.outcome is Outcome.SKIPPED for verdict in verdicts):
            return  # the next cycle goes on with it
        bounced, written = self._bounced, all(verdict.outcome is Outcome.APPLIED for verdict in verdicts)
        self._unhandled_failures = (
            {} if written else {broker: left - 1 for broker, left in self._unhandled_failures.items() if left > 1}
        )
        back = sorted(bounced - self._unhandled_failures.keys())
        if back:
            self.broker_requests.send_full_state(back)
            self._due |= {key for broker in back for key in self.context.of_broker(broker)}

    def _write(self, decided: Decisions, episode: CycleRecord | None) -> list[RowOutcome]:
        """Write what was decided, and tell each multi's part of it at once."""
        verdicts: list[RowOutcome] = []
        try:
            for judged, written in self.writer.write(decided.changes) if decided.changes else ():
                verdicts += judged
                self.broker_requests.send_changes(written)
                self.summary.by_action.update(change.action for change in written)
        finally:
            if episode is not None:
                self.log.finish(episode, verdicts)
        self._due |= self.writer.drain_dirty()
        self._requests_due |= bool(verdicts) and bool(self.context.requests)
        return verdicts

    def _without_new_partitions(self, decided: Decisions) -> Decisions:
        """Leave out requests for topics and partitions that came to be after they were looked for.

        A request may be read before the topic that it names; it is decided on in the next cycle, and not taken away.
        """
        named = {row["topic"] for row in decided.withdrawn if row["code"] == RejectionCode.UNKNOWN_PARTITION}
        named |= {row["topic"] for row in decided.deletions if row["code"] == RejectionCode.UNKNOWN_TOPIC}
        if not named:
            return decided
        appeared = self.reader.refresh_topics(named)
        self._due |= appeared
        self._requests_due |= bool(appeared) or not named.isdisjoint(self.context.topics)
        return replace(
            decided,
            withdrawn=[row for row in decided.withdrawn if (row["topic"], row["partition"]) not in appeared],
            others=[row for row in decided.others if (row["topic"], row["partition"]) not in appeared],
            deletions=[
                row
                for row in decided.deletions
                if row["code"] != RejectionCode.UNKNOWN_TOPIC or row["topic"] not in self.context.topics
            ],
        )

    def _withdraw(self, decided: Decisions, verdicts: Sequence[RowOutcome]) -> None:
        """Take requests away that are carried out, cannot be, or ask for nothing."""
        for refused in chain(self.requests.withdraw(decided, verdicts), self.requests.remove_empty()):
            self._handle_refusal(refused)

    def _handle_refusal(self, refused: MultiFailure | None) -> bool:
        """Look at the requests again where one could not be taken away, after a pause; return whether it was."""
        if refused is None:
            self.writer.failed_attempts = 0
            return True
        self.log_line(f"surveyor: {refused}; it is tried again")
        self.writer.failed_attempts += 1
        self._requests_due = True
        return False

    def _delete(self, decided: Decisions) -> None:
        """Tell brokers of topics that are deleted, and remove those that are."""
        self.broker_requests.deletions(decided)
        until = time.monotonic() + POLL_INTERVAL_SECONDS
        for row in decided.deletions:
            topic = row["topic"]
            if time.monotonic() > until:
                self._requests_due = True
                return  # the next cycle goes on: others do not wait until a thousand topics are removed
            if row["step"] == DeletionStep.REMOVE:
                self._remove(topic)
            elif row["step"] == DeletionStep.REFUSE:
                self._handle_refusal(self.requests.refuse_deletion(topic, row["reason"]))

    def _remove(self, topic: str) -> None:
        if self._handle_refusal(self.requests.remove_topic(topic)):
            self._requests_due = True
            self.context.remove_topic(topic)
            self.broker_requests.forget_topic(topic)
            self.summary.by_action[OperationKind.DELETE_TOPIC] += 1
            self.log_line(f"  topic {topic} is deleted")

    def _record_cycle(self, decided: Decisions) -> CycleRecord | None:
        """Record what a cycle is about to do, and what it says that is new, before anything of it is written."""
        news = self.summary.new_rejections(decided.others)
        if not (decided.changes or news):
            return None
        episode = self.cycle_record(decided.changes, news)
        self.log.record(episode)
        return episode

    def cycle_record(
        self,
        changes: Sequence[Change] = (),
        rejections: Sequence[Row] = (),
        verdicts: Sequence[RowOutcome] | None = None,
    ) -> CycleRecord:
        """What a cycle does, by what is known of the cluster."""
        epochs = {broker: self.broker_requests.epoch_of(broker) for broker in self.context.brokers}
        ids = self.snapshot["snapshot_id"], self.snapshot["cluster_id"]
        return CycleRecord(*ids, epochs, self.control.epoch, changes, rejections, verdicts)
