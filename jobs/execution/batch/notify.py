"""What a commit in batch mode tells the brokers while it is the controller, and what is found out of it afterwards.

Telling is quicker than Kafka's fail-over, which announces everything after the hand-back: so where telling would take
longer than the controllership may be held, it is left to Kafka, and so is whoever does not answer.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from jobs.adapters.brokers.connection import ConnectionPool
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import read_brokers
from jobs.adapters.zookeeper.connection import LOST, Znode, connected, sync, with_retries
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.core.errors import FencedError, SurveyorError
from jobs.core.signals import interrupted
from jobs.preconditions.changes import state_path, understood
from jobs.runtime.console import log
from schemas.notices import Notice
from schemas.rows import Change

MIN_HOLD_SECONDS: Final = 1.0
"""Seconds that a caller who keeps the controllership tells for at least: no fail-over follows that would."""


EPOCH_STEPS: Final = tuple(2**doubled for doubled in range(17))
"""How far our epoch is raised each time that a broker refuses it: as it does not say which it knows, ever further."""

NoticesFor = Callable[[Collection[int]], Sequence[Notice]]
"""What is due to be told while these brokers are registered."""


@dataclass(frozen=True, slots=True)
class HoldBudget:
    """How long the controllership may be held, and whether it stays with the caller."""

    max_hold: float
    silent: Collection[int] = ()
    """Brokers known not to answer."""
    keeps_controllership: bool = False

    def seconds_left(self, control: Controllership) -> float:
        """Seconds left for telling."""
        seconds = 0.0 if interrupted() else self.max_hold - control.held()
        return max(seconds, MIN_HOLD_SECONDS) if self.keeps_controllership else seconds


@dataclass(frozen=True, slots=True)
class WrittenChange:
    """A change that stands in ZooKeeper, and the version that its state has since."""

    change: Change
    state_version: int
    is_read_back: bool = False
    """Whether it stood so before we wrote it, perhaps under the epoch of who was the controller before us."""


@dataclass(frozen=True, slots=True)
class NotificationResult:
    """What brokers answered, and what had been written before; `late`: there was no time to tell anybody."""

    epoch: int
    written: Sequence[WrittenChange] = ()
    answers: Sequence[BrokerResponse] = ()
    out_of_time: bool = False
    affected_brokers: frozenset[int] = field(default_factory=frozenset)
    """Live brokers that a change concerns: they had to be told of leaders, ISRs or replicas."""
    fenced: FencedError | None = None
    notified_under: int = 0
    """The controller epoch of the last request: later than `epoch` where brokers had heard of one later than that."""

    def combined_with(self, later: "NotificationResult") -> "NotificationResult":
        """Put what was told later beside what was told first."""
        return replace(
            self,
            notified_under=max(self.notified_under, later.notified_under),
            answers=[*self.answers, *later.answers],
            affected_brokers=self.affected_brokers | later.affected_brokers,
            fenced=self.fenced or later.fenced,
        )

    def failure_reason(self, answers: BrokerResponses) -> str | None:
        """Explain why no broker that a change concerns has accepted it; None if one of them has."""
        if self.out_of_time:
            why = "interrupted" if interrupted() else "--max-hold was over"
            return f"{why} before the brokers could be told"
        if not self.affected_brokers or self.affected_brokers & set(answers.accepted):
            return None
        return f"none of brokers {', '.join(map(str, sorted(self.affected_brokers)))} accepted what it was told"

    def summary(self, answers: BrokerResponses) -> str:
        """Say it for the ledger."""
        if not (self.written or self.answers):
            return ""
        missing = sorted(self.affected_brokers - set(answers.accepted))
        left = f"not accepted by {', '.join(map(str, missing))}: left to Kafka's controller" if missing else "accepted"
        return (
            later_epoch_line(answers, self.notified_under)
            or self.failure_reason(answers)
            or f"what was written was {left}"
        )

    def lines(self, answers: BrokerResponses) -> list[str]:
        """Say it to people."""
        if self.out_of_time:
            return []
        apis = list(dict.fromkeys(answer.api for answer in self.answers))
        accepted = ", ".join(map(str, answers.accepted))
        word = "accepted in full" if answers.in_part else "accepted"
        lines = [f"  {', '.join(apis)} {word} by {f'brokers {accepted}' if accepted else 'no broker'}"]
        silent = sorted(set(answers.silent) & self.affected_brokers)
        if silent:
            who = ", ".join(map(str, silent))
            lines.append(f"surveyor: no answer from brokers {who}: Kafka's controller tells them, once there is one")
        return lines + [f"surveyor: {line}" for line in answers.lines()]


def notify(
    control: Controllership, channels: ConnectionPool, brokers: Sequence[Row], due: NoticesFor, hold: HoldBudget
) -> NotificationResult:
    """Tell the brokers what is due, if the hold allows; who does not answer is left to Kafka's controller."""
    left = hold.seconds_left(control)
    if left <= 0:
        return NotificationResult(control.epoch, out_of_time=True)
    epoch, deadline = control.epoch, time.monotonic() + left
    fence: FencedError | None = None
    for step in EPOCH_STEPS:
        announcement = _control_batch(control, brokers, due)
        answers = deliver(announcement, deadline, _refresh_callback(control, announcement, due), hold.silent, channels)
        later = BrokerResponses.of(answers).of_later_epoch
        fence = _check_fence(control)
        if not later or fence is not None or time.monotonic() > deadline:
            break
        fence = _raise_epoch(control, later, step)
        if fence is not None:
            break
    live = frozenset(announcement.named & announcement.live)
    return NotificationResult(
        epoch, answers=answers, affected_brokers=live, fenced=fence, notified_under=announcement.controller_epoch
    )


def _raise_epoch(control: Controllership, brokers: Sequence[int], step: int) -> FencedError | None:
    """Move our epoch above the one that brokers have heard of, which they do not say; return why that was not done."""
    try:
        with suppress(*LOST):
            log(f"  {raised_line(brokers, control.epoch)}")
            control.raise_above(control.epoch + step - 1)
    except FencedError as error:
        return error
    return None


def raised_line(brokers: Sequence[int], epoch: int) -> str:
    """Say why our epoch is raised."""
    return (
        f"{_broker_list(brokers)} refused controller epoch {epoch}, having heard of a later one: "
        "ours is raised above it"
    )


def later_epoch_line(answers: BrokerResponses, epoch: int) -> str | None:
    """Say which brokers refuse every controller until they are restarted, None where none does."""
    brokers = answers.of_later_epoch
    if not brokers:
        return None
    return (
        f"{_broker_list(brokers)} refused controller epoch {epoch} (StaleControllerEpoch), having heard of a later "
        "one, and will refuse the next controller, too: restart them one after the other; a broker that starts "
        "takes any epoch"
    )


def _broker_list(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _control_batch(control: Controllership, brokers: Sequence[Row], due: NoticesFor) -> ControlBatch:
    return ControlBatch(control.controller_id, control.epoch, brokers, due({row["broker_id"] for row in brokers}))


def _check_fence(control: Controllership) -> FencedError | None:
    """Tell whether another controller has taken over meanwhile: brokers heeded it then, not us."""
    try:
        with suppress(*LOST):
            with_retries(control.refuse_fenced)
    except FencedError as error:
        return error
    return None


def _refresh_callback(control: Controllership, known: ControlBatch, due: NoticesFor) -> Callable[[], ControlBatch]:
    """Make what reads who is registered now; those known before, where ZooKeeper does not answer."""

    def renew() -> ControlBatch:
        nonlocal known
        with suppress(*LOST):
            brokers = read_brokers(control.client)
            if brokers != known.brokers:
                known = _control_batch(control, brokers, due)
        return known

    return renew


def verify_written(hosts: str, told: NotificationResult) -> None:
    """Read back what was written, and say whose it is.

    Others may have gone on from it since the hand-back, a leader with its ISR or Kafka's controller: under our epoch or
    a later one, at our version or a later one. A state that is gone belongs to a topic deleted since.
    """
    with connected(hosts) as client:
        sync(client)  # it may be a server that has not heard of all of it yet
        znodes = read_many(client, [state_path(each.change) for each in told.written])
    pairs = zip(told.written, znodes, strict=True)
    others = [znode.path for each, znode in pairs if not _is_ours_or_later(each, znode, told.epoch)]
    count = sum(not each.is_read_back for each in told.written)
    if others:
        raise SurveyorError(
            f"{len(others)} of {len(told.written)} state znodes just written do not carry our controller epoch "
            f"{told.epoch} or a later one, the first is {others[0]}: somebody writes without being the controller; "
            "find out who",
        )
    log(f"  {count} of {count} changed state znodes carry our controller epoch {told.epoch}, or a later one")
    if earlier := len(told.written) - count:
        log(f"  {earlier} more stood so already when we were to write them")


def _is_ours_or_later(written: WrittenChange, znode: Znode, epoch: int) -> bool:
    if znode.version is None:
        return True
    state = understood(znode)
    if state is None or znode.version < written.state_version:
        return False
    return written.is_read_back or state.controller_epoch >= epoch
