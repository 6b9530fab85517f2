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

from jobs.adapters.brokers.channel_manager import Queues
from jobs.adapters.brokers.listeners import PLAIN
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import SESSION_OVER, Controllership, SessionLostError, settled
from jobs.adapters.zookeeper.multi_failure import Refusal
from jobs.controller.admin_requests import Requests
from jobs.controller.auto_rebalance import Balance
from jobs.controller.broker_config_poller import Asking, by_admin
from jobs.controller.broker_requests.batch import Teller
from jobs.controller.broker_requests.broker_startup import BrokerStartup
from jobs.controller.broker_requests.responses import Ears
from jobs.controller.broker_requests.retries import Retelling
from jobs.controller.broker_requests.zk_notifications import Notifications
from jobs.controller.context import Memory
from jobs.controller.cycle_summary import Report
from jobs.controller.decisions.engine import Decided, Decider, as_bounced, forgotten
from jobs.controller.decisions.precompute import Foresight
from jobs.controller.metadata_reader import Look
from jobs.controller.plan_inbox import Desk
from jobs.controller.resync import Audit
from jobs.controller.state_writer import Writer
from jobs.controller.write_behind import Behind, EndedDrains, Episode
from jobs.controller.zk_watches import Watches
from jobs.core.signals import interrupted
from jobs.execution.batch.notify import RAISED_BY, raised_line
from jobs.repositories.drained_brokers import carry_over
from jobs.repositories.plans.commit_log import Verdict
from jobs.runtime.settings import Settings
from planner.reconciliation.topic_deletion import DeletionStep
from planner.text import counted
from schemas.enums import DrainMode, OperationKind, Outcome, RejectionCode
from schemas.rows import Change, Key

TICK: Final = 2.0
"""Seconds after which the cluster is looked at, though nothing woke the controller."""

TRIES: Final = 3
"""Cycles in which a broker's failure is written; then it is told everything that stands, if it is back."""

FIRST_PAUSE: Final = 0.05
"""Seconds after a cycle whose changes were all refused; twice as many after each further one, up to a tick."""

_DOUBLED: Final = 6
"""Times that the pause is doubled, at most."""


@dataclass(slots=True)
class Controller:
    """One controllership, from its take-over to its end."""

    control: Controllership
    decider: Decider
    behind: Behind
    snapshot: Row
    say: Callable[[str], None]
    settings: Settings | None = None
    """Of the command; without them no plans are carried out, and brokers are spoken to in plain text."""
    memory: Memory = field(default_factory=Memory)
    """Empty but for what history knows to have `vanished`."""
    done: Report = field(init=False)
    watches: Watches = field(init=False)
    look: Look = field(init=False)
    retelling: Retelling = field(init=False)
    ears: Ears = field(init=False)
    teller: Teller = field(init=False)
    notifications: Notifications = field(init=False)
    writer: Writer = field(init=False)
    requests: Requests = field(init=False)
    desk: Desk | None = field(init=False)
    balance: Balance = field(init=False)
    audit: Audit = field(init=False)
    asking: Asking | None = field(init=False)
    startup: BrokerStartup = field(init=False)
    foresight: Foresight | None = field(init=False)
    """Where there is none, each failure is decided on when it is there."""
    _due: set[Key] = field(default_factory=set)
    """Partitions to be looked at in the next cycle."""
    _failed: dict[int, int] = field(default_factory=dict)
    """Brokers that were gone, and whose failure is not written as a whole; some may have registered anew since.

    With the cycles left that wait for it: what cannot be written keeps nobody from being introduced.
    """
    _requests_due: bool = True
    _raised_by: Iterator[int] = field(default_factory=lambda: iter(RAISED_BY))
    """How far our epoch is raised the next time that a broker refuses it."""

    def __post_init__(self) -> None:
        self.done = Report(self.say)
        self.watches = Watches(self.control.client)
        self.look = Look(self.control.client, self.watches, self.memory)
        self.retelling = Retelling(self.memory, self.say)
        self.ears = Ears(self.memory, self.watches, self.behind, self.retelling)
        listener = self.settings.listener if self.settings else PLAIN
        queues = Queues(str(self.control.controller_id), self.ears.hear, listener)
        self.teller = Teller(self.control, self.memory, queues)
        self.writer = Writer(self.control, self.memory, self.look, self.watches)
        self.notifications = Notifications(self.control, self.memory, self.look, self.teller, self.ears)
        self.requests = Requests(self.control, self.memory, self.behind, self.say)
        at_hand = self.control, self.look, self.writer, self.teller, self._know_drained, self.say
        self.desk = Desk(self.settings, *at_hand) if self.settings else None
        self._know_drained()
        self.audit = Audit(self.look, self.memory)
        self.asking = None
        if self.settings:
            ask = by_admin(self.control.client, self.settings)
            self.asking = Asking(ask, self.decider.broker_configs, self.say, self.watches.wake)
        self.balance = Balance.of(self.decider.broker_configs)
        self.foresight = Foresight(self.decider, self.memory)
        self.startup = BrokerStartup(self.control, self.memory, queues, self._is_failing)

    def take_up(self) -> None:
        """Begin: read everything, and tell everybody everything, the brokers alive first."""
        started = time.monotonic()
        if self.desk:
            self.desk.open()
        self.notifications.delete_all()
        self.look.at_everything()
        self._due = set(self.memory.partitions)
        self.teller.introduce(self.memory.live, have_started=False)  # as Kafka's fail-over: the live brokers come first
        self._ask_for_settings(self.memory.brokers.keys() - {row["broker_id"] for row in self.decider.broker_configs})
        brokers, partitions = len(self.memory.brokers), len(self.memory.partitions)
        self.say(
            f"  read {counted(brokers, 'broker')} and {counted(partitions, 'partition')} in "
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
                settled(self.control.client, self.control.session)
                self.audit.begin_at_once()
                # what was due may not have been done
                self._due, self._requests_due = {*self.memory.partitions}, True
                continue
            if until_quiet and not busy and self._is_quiet:
                return
            if not busy:
                self._rest()
            elif self.writer.in_vain:
                time.sleep(min(TICK, FIRST_PAUSE * 2 ** min(self.writer.in_vain, _DOUBLED)))

    def _rest(self) -> None:
        """Think of what may come, one thing at a time, or wait to be woken."""
        if self.watches.woken.is_set() or self.audit.is_under_way:
            return
        if self.foresight is None or not self.foresight.look():
            self.watches.woken.wait(self.retelling.pause(TICK))

    def _audit(self) -> None:
        """Read a part of everything again where that is due; what is not as it was known is looked at."""
        begins, seen = not self.audit.is_under_way, self.audit.go_on()
        if seen is None:
            return
        if begins:
            self._ask_for_settings(self.memory.brokers)
        self._notice_brokers()
        self.teller.metadata(seen.partitions)  # of notifications that were lost
        self._due |= seen.partitions
        self._requests_due |= seen.requests or not self.audit.is_under_way

    def stop(self) -> None:
        """Tell nobody anything any more."""
        self.startup.stop()
        if self.desk:
            self.desk.close()
        self.teller.queues.stop()

    @property
    def _is_quiet(self) -> bool:
        """Whether everybody has answered, nothing moves, and no plan is being carried out, nor all read again."""
        if self.audit.is_under_way or (self.desk and self.desk.is_busy):
            return False
        moving = self.memory.moving - self.retelling.given_up
        return not self.teller.queues.busy and self.ears.is_quiet and self.retelling.is_quiet and not moving

    def cycle(self) -> bool:
        """Look, decide, write, tell; return whether something was done or is due at once."""
        self.done.cycles += 1
        idle = self.teller.queues.idle
        heard = self.ears.take()
        self.look.joined |= heard.untold
        seen = self.look.at(self.audit.take(self.watches.fired()))
        self.control.refuse_lost()
        self._stay_latest(heard.of_later_epoch)
        self._notice_brokers()
        self._know_settings()
        self._due |= self.notifications.isr_changes()
        self.notifications.log_dirs()
        self._tell_again(idle)
        again = self.writer.held_until_now()
        self._due |= again
        if self.memory.moving:
            self._due |= self.look.at_partitions(self.memory.moving)
        due, self._due = self._due | seen.partitions | heard.partitions, set()
        requests_due = self._requests_due or seen.requests or heard.stopped or bool(again)
        self._requests_due = False
        first = self._leaderless(due)
        verdicts = self._carry_out(first)[1]
        decided, more = self._carry_out(due - first, self.balance.due(self.memory), requests_due=requests_due)
        decided = self._without_appeared(decided)
        self._introduce_bounced([*verdicts, *more])
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
        if (self.desk and self.desk.is_busy) or not (brokers or self.memory.latest_epoch > before):
            return
        latest = self.memory.latest_epoch
        if brokers:
            latest = max(latest, before + next(self._raised_by, 0) - 1)
            self.say(f"surveyor: {raised_line(brokers, before)}")
        self.control.raise_above(latest)
        self.say(f"surveyor: controller epoch {self.control.epoch}, after {before}")
        if self.settings:
            carry_over(self.settings.lake, before, self.control.epoch)

    def _leaderless(self, due: set[Key]) -> set[Key]:
        """Partitions that nobody leads: they do not wait until thousands of others are read and decided on."""
        there = {*self.memory.live} - self._bounced
        rows = ((key, self.memory.partitions.get(key)) for key in due - self.memory.asked_for)
        return {key for key, row in rows if row is not None and row.leader not in there}

    def _carry_out(
        self, due: set[Key], balance: AbstractSet[Key] = frozenset(), *, requests_due: bool = False
    ) -> tuple[Decided, list[Verdict]]:
        """Decide on partitions, on what balance asks for and on requests, and write and tell it."""
        # leaders that write ISRs themselves say so seconds later: what is decided on is read right before
        self.look.at_partitions(due | balance | (self.memory.asked_for if requests_due else set()))
        decided = self._decide(due, balance, requests_due=requests_due)
        episode = self._record(decided)
        verdicts = self._write(decided, episode)
        self.done.of_cycle(verdicts, () if episode is None else episode.rejections)
        self.teller.stop(decided.others)
        return decided, verdicts

    def _carry_out_plans(self) -> None:
        """Go on with plans that commits have handed in; what they wrote and did not tell is told now."""
        if self.desk is None:
            return
        untold = self.desk.go_on()
        self.teller.again(untold)
        self._due |= untold | self.writer.taken()

    def _know_drained(self) -> None:
        """Know which brokers are drained; one whose replicas a plan has stopped is sent nothing that starts them."""
        self.decider.look_at_drained()
        self._end_drains()

    def _end_drains(self) -> None:
        """End the resident drains of brokers that have registered again: they are sent everything, like all others."""
        ended = self.decider.end_drains({broker: self.teller.epoch_of(broker) for broker in self.memory.brokers})
        for mark in ended:
            self.say(f"  broker {mark['broker_id']} is drained no more: it has registered again")
        if ended:
            self.behind.put(EndedDrains(ended))
        self.teller.stopped_on = frozenset(
            row["broker_id"] for row in self.decider.drained if row["mode"] == DrainMode.RESIDENT
        )

    def _ask_for_settings(self, broker_ids: Iterable[int]) -> None:
        if self.asking:
            self.asking.ask(self.memory.brokers[broker] for broker in broker_ids if broker in self.memory.brokers)

    def _know_settings(self) -> None:
        """Go by what brokers say of their settings now; who has no leader may get one by them."""
        configs = self.asking.take(self.memory.brokers) if self.asking else None
        if configs is None:
            return
        self.decider.know_settings(configs)
        self.balance = self.balance.by(configs)
        if self.foresight:
            self.foresight.begin_anew()
        unled = (key for key, row in self.memory.partitions.items() if row.leader not in self.memory.brokers)
        self._due, self._requests_due = self._due.union(unled), True

    def _decide(self, due: set[Key], balance: AbstractSet[Key], *, requests_due: bool) -> Decided:
        if not (due or balance or requests_due):
            return Decided()
        away = self._bounced
        decided = self.decider.decide(self.memory, due, deletions=requests_due, balance=balance, away=away)
        # who bounced is back, and has its log yet: it is not forgotten before it has stopped
        changes = [c for c in self.writer.not_held(decided.changes) if away.isdisjoint(forgotten(c))]
        return replace(decided, changes=[as_bounced(change, away) for change in changes] if away else changes)

    def _notice_brokers(self) -> None:
        """Introduce brokers that are new, and topics that are kept; tell who is there now (`onBrokerStartup`)."""
        joined, gone, moved, kept = self.look.joined, self.look.gone, self.look.moved, self.look.kept
        if not (joined or gone or moved or kept or self.look.appeared):
            return
        self._failed |= dict.fromkeys(gone, TRIES)
        anew = [self.memory.of_broker(broker) for broker in joined] + [self.memory.of_topic(topic) for topic in kept]
        # a leader that bounced may have changed ISRs and not notified: told of an earlier ISR it would go by that
        changed = self.look.at_partitions({*chain(*anew)})
        for broker in sorted(gone | joined):
            self.say(f"  broker {broker} {'has registered' if broker in self.memory.brokers else 'is gone'}")
        for broker in sorted(moved - joined):
            self.say(f"  broker {broker} has written its registration again")
        self._due, self._requests_due = self._due | changed, True
        self._end_drains()
        self._ask_for_settings(joined)
        new = joined - self._bounced
        self.teller.introduce([broker for broker in self.memory.live if broker in new])
        self.teller.metadata(changed)
        self._tell_led_by(new)
        self.teller.kept(kept)
        at_hand = self.desk.topics if self.desk else ()
        self.teller.again({key for key in self.look.appeared if key[0] not in at_hand})
        self.look.noted()

    def _tell_again(self, idle: Collection[int]) -> None:
        """Tell brokers again what they answered with an error, each after a pause."""
        for untaken in self.retelling.take(idle):
            stopping = self.teller.untaken(untaken)
            self._due, self._requests_due = self._due | stopping, self._requests_due or bool(stopping)

    def _tell_led_by(self, broker_ids: Collection[int]) -> None:
        """Tell the replicas of what these lead once more: a follower ignores a leader that is not alive."""
        known = ((key, broker) for broker in broker_ids for key in self.memory.of_broker(broker))
        self.teller.again({key for key, broker in known if self.memory.partitions[key].leader == broker})

    def _is_failing(self, broker: int) -> bool:
        return broker in self._failed or broker in self.look.gone

    @property
    def _bounced(self) -> set[int]:
        """Brokers that registered anew before their failure was written."""
        return self._failed.keys() & {*self.memory.live}

    def _introduce_bounced(self, verdicts: Sequence[Verdict]) -> None:
        """Introduce brokers that bounced, once all that they led and followed is written as after a failure."""
        if any(verdict.outcome is Outcome.SKIPPED for verdict in verdicts):
            return  # the next cycle goes on with it
        bounced, written = self._bounced, all(verdict.outcome is Outcome.APPLIED for verdict in verdicts)
        self._failed = {} if written else {broker: left - 1 for broker, left in self._failed.items() if left > 1}
        back = sorted(bounced - self._failed.keys())
        if back:
            self.teller.introduce(back)
            self._due |= {key for broker in back for key in self.memory.of_broker(broker)}

    def _write(self, decided: Decided, episode: Episode | None) -> list[Verdict]:
        """Write what was decided, and tell each multi's part of it at once."""
        verdicts: list[Verdict] = []
        try:
            for judged, written in self.writer.write(decided.changes) if decided.changes else ():
                verdicts += judged
                self.teller.written(written)
                self.done.by_action.update(change.action for change in written)
        finally:
            if episode is not None:
                self.behind.ended(episode, verdicts)
        self._due |= self.writer.taken()
        self._requests_due |= bool(verdicts) and bool(self.memory.requests)
        return verdicts

    def _without_appeared(self, decided: Decided) -> Decided:
        """Leave out requests for topics and partitions that came to be after they were looked for.

        A request may be read before the topic that it names; it is decided on in the next cycle, and not taken away.
        """
        named = {row["topic"] for row in decided.withdrawn if row["code"] == RejectionCode.UNKNOWN_PARTITION}
        named |= {row["topic"] for row in decided.deletions if row["code"] == RejectionCode.UNKNOWN_TOPIC}
        if not named:
            return decided
        appeared = self.look.at_topics(named)
        self._due |= appeared
        self._requests_due |= bool(appeared) or not named.isdisjoint(self.memory.topics)
        return replace(
            decided,
            withdrawn=[row for row in decided.withdrawn if (row["topic"], row["partition"]) not in appeared],
            others=[row for row in decided.others if (row["topic"], row["partition"]) not in appeared],
            deletions=[
                row
                for row in decided.deletions
                if row["code"] != RejectionCode.UNKNOWN_TOPIC or row["topic"] not in self.memory.topics
            ],
        )

    def _withdraw(self, decided: Decided, verdicts: Sequence[Verdict]) -> None:
        """Take requests away that are carried out, cannot be, or ask for nothing."""
        for refused in chain(self.requests.withdraw(decided, verdicts), self.requests.remove_void()):
            self._heed(refused)

    def _heed(self, refused: Refusal | None) -> bool:
        """Look at the requests again where one could not be taken away, after a pause; return whether it was."""
        if refused is None:
            self.writer.in_vain = 0
            return True
        self.say(f"surveyor: {refused}; it is tried again")
        self.writer.in_vain += 1
        self._requests_due = True
        return False

    def _delete(self, decided: Decided) -> None:
        """Tell brokers of topics that are deleted, and remove those that are."""
        self.teller.deletions(decided)
        until = time.monotonic() + TICK
        for row in decided.deletions:
            topic = row["topic"]
            if time.monotonic() > until:
                self._requests_due = True
                return  # the next cycle goes on: others do not wait until a thousand topics are removed
            if row["step"] == DeletionStep.REMOVE:
                self._remove(topic)
            elif row["step"] == DeletionStep.REFUSE:
                self._heed(self.requests.refuse_deletion(topic, row["reason"]))

    def _remove(self, topic: str) -> None:
        if self._heed(self.requests.remove_topic(topic)):
            self._requests_due = True
            self.memory.forget_topic(topic)
            self.teller.forget_topic(topic)
            self.done.by_action[OperationKind.DELETE_TOPIC] += 1
            self.say(f"  topic {topic} is deleted")

    def _record(self, decided: Decided) -> Episode | None:
        """Record what a cycle is about to do, and what it says that is new, before anything of it is written."""
        news = self.done.news(decided.others)
        if not (decided.changes or news):
            return None
        episode = self.episode(decided.changes, news)
        self.behind.put(episode)
        return episode

    def episode(
        self, changes: Sequence[Change] = (), rejections: Sequence[Row] = (), verdicts: Sequence[Verdict] | None = None
    ) -> Episode:
        """What a cycle does, by what is known of the cluster."""
        epochs = {broker: self.teller.epoch_of(broker) for broker in self.memory.brokers}
        ids = self.snapshot["snapshot_id"], self.snapshot["cluster_id"]
        return Episode(*ids, epochs, self.control.epoch, changes, rejections, verdicts)
