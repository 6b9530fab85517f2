"""Events of a running commit or cancellation, and their lines.

Services give each event to a reporter that the command passes in. `log_event` is the one that logs its lines.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from jobs.adapters.brokers.admin_client import error_name
from jobs.console_output.plan_text import pending_summary
from jobs.runtime.console import log
from jobs.runtime.review import warning_lines
from schemas.plan import Plan
from schemas.rows import Key, PlanRow
from schemas.text import join_ids, partition_name, pluralise

LEFT_TO_SUCCESSOR: Final = "the next controller sends them to the brokers; check that a broker becomes the controller"

_MAX_EXAMPLES: Final = 3


class CommitEvent:
    """A step or a finding of a commit or a cancellation."""

    __slots__ = ()
    level: ClassVar[int] = logging.INFO

    @property
    def line(self) -> str:
        """The line of the event."""
        raise NotImplementedError

    @property
    def lines(self) -> Iterator[str]:
        """All lines of the event."""
        yield self.line

    @property
    def fields(self) -> Mapping[str, Any]:
        """Fields of the record in the JSON format."""
        return {}


Report = Callable[[CommitEvent], None]
"""Receives each event when it happens."""


def log_event(event: CommitEvent) -> None:
    """Log the lines of an event."""
    for line in event.lines:
        log(line, event.level, **event.fields)


def _retry_hint(plan_id: str) -> str:
    return f"`surveyor commit {plan_id} --apply` removes it once no replica of the plan moves"


# begin and end


@dataclass(frozen=True, slots=True)
class PlanReused(CommitEvent):
    """The rollback has been planned before, under this name."""

    name: str

    @property
    def line(self) -> str:
        return f"surveyor: {self.name} is this plan already; no new plan was made"


@dataclass(frozen=True, slots=True)
class CommitBegun(CommitEvent):
    """The rows were checked, and those that are pending will be written."""

    mode: str
    reason: str
    plan: Plan
    pending: Sequence[PlanRow]

    @property
    def line(self) -> str:
        return f"  mode {self.mode} ({self.reason}); {pending_summary(self.plan, self.pending)}"


@dataclass(frozen=True, slots=True)
class SubmissionBegun(CommitEvent):
    """A plan will be submitted to the resident controller."""

    mode: str
    reason: str
    due: int

    @property
    def line(self) -> str:
        return f"  mode {self.mode} ({self.reason}); {pluralise(self.due, 'row', 'is', 'are')} due"


@dataclass(frozen=True, slots=True)
class WarningsGiven(CommitEvent):
    """A commit that asks no question begins; these are the warnings that the question would show."""

    warnings: Sequence[str]

    @property
    def lines(self) -> Iterator[str]:
        yield from warning_lines(self.warnings)


@dataclass(frozen=True, slots=True)
class NothingPending(CommitEvent):
    """No row is pending."""

    @property
    def line(self) -> str:
        return "  nothing is due"


@dataclass(frozen=True, slots=True)
class CheckedAgain(CommitEvent):
    """Another controller has taken over before anything was written."""

    cause: str

    @property
    def line(self) -> str:
        return f"  {self.cause}: the pending rows are judged again"


@dataclass(frozen=True, slots=True)
class CommitInterrupted(CommitEvent):
    """A signal has ended the commit."""

    written: int
    left: int

    @property
    def line(self) -> str:
        return f"surveyor: interrupted: {self.written} written, {self.left} left; commit again to continue"


# cycles of reconcile --until-quiet


@dataclass(frozen=True, slots=True)
class ReplicasCopy(CommitEvent):
    """Nothing is due while replicas copy, and the next snapshot is taken after a pause."""

    partitions: int
    first: str
    reason: str | None
    pause_seconds: float

    @property
    def line(self) -> str:
        copying = pluralise(self.partitions, "partition", "copies", "copy")
        return f"surveyor: {copying} ({self.first}: {self.reason}); next snapshot in {self.pause_seconds:g} s"


@dataclass(frozen=True, slots=True)
class CycleDone(CommitEvent):
    """A cycle has committed its plan."""

    cycle: int
    result: str

    @property
    def line(self) -> str:
        return f"surveyor: cycle {self.cycle}: {self.result}"


# requests to Kafka's controller


@dataclass(frozen=True, slots=True)
class WaveRequested(CommitEvent):
    """The changes of a wave were requested."""

    wave: int
    changes: int

    @property
    def line(self) -> str:
        return f"  wave {self.wave}: {pluralise(self.changes, 'change')} requested"


@dataclass(frozen=True, slots=True)
class WavesEnded(CommitEvent):
    """The reassignments of some waves have ended."""

    waves: Sequence[int]
    complete: int
    requested: int

    @property
    def line(self) -> str:
        return f"  complete: {self.complete} of {self.requested} reassignments of wave {join_ids(self.waves)}"


@dataclass(frozen=True, slots=True)
class ChangesAccepted(CommitEvent):
    """The commit ends; counts the accepted changes of the plan."""

    accepted: int
    size: int

    @property
    def line(self) -> str:
        return f"  Kafka's controller accepted {self.accepted} of {self.size}"


@dataclass(frozen=True, slots=True)
class ChangedConcurrently(CommitEvent):
    """A change whose state, read back, differs from the requested state."""

    level: ClassVar[int] = logging.WARNING
    name: str
    reason: str

    @property
    def line(self) -> str:
        return f"surveyor: {self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class MovesUnknown(CommitEvent):
    """The cluster cannot be read at the end of a commit."""

    level: ClassVar[int] = logging.WARNING
    error: str

    @property
    def line(self) -> str:
        return f"surveyor: what moves is unknown: {self.error}"


# throttles


@dataclass(frozen=True, slots=True)
class ThrottleCleared(CommitEvent):
    """The configs from before a plan's throttle are restored."""

    plan_id: str

    @property
    def line(self) -> str:
        return f"  throttle of plan {self.plan_id} cleared"


@dataclass(frozen=True, slots=True)
class ThrottleNotCleared(CommitEvent):
    """The configs of some brokers or topics could not be restored."""

    plan_id: str
    resources: Sequence[str]

    @property
    def line(self) -> str:
        return (
            f"surveyor: the throttle of plan {self.plan_id} is not cleared on {', '.join(self.resources)}; "
            f"`surveyor commit {self.plan_id} --apply` tries again, once they answer"
        )


@dataclass(frozen=True, slots=True)
class ThrottleRefused(CommitEvent):
    """A broker or topic refused to have its configs restored."""

    level: ClassVar[int] = logging.WARNING
    resource: str
    refusal: str

    @property
    def line(self) -> str:
        return f"surveyor: could not remove the throttle from {self.resource}: {self.refusal}"


@dataclass(frozen=True, slots=True)
class ThrottleAltered(CommitEvent):
    """Another client has altered a config since, and its value is kept."""

    level: ClassVar[int] = logging.WARNING
    name: str
    resource: str
    value: str | None

    @property
    def line(self) -> str:
        return f"surveyor: {self.name} of {self.resource} was altered by another client: left at {self.value}"


@dataclass(frozen=True, slots=True)
class ThrottleKept(CommitEvent):
    """Replicas of the plan still move."""

    plan_id: str
    moving: int

    @property
    def line(self) -> str:
        return (
            f"surveyor: the throttle of plan {self.plan_id} stays set while "
            f"{pluralise(self.moving, 'partition', 'is', 'are')} moving; {_retry_hint(self.plan_id)}"
        )


@dataclass(frozen=True, slots=True)
class ThrottleUnreachable(CommitEvent):
    """No broker answers that could remove the throttle."""

    plan_id: str

    @property
    def line(self) -> str:
        return (
            f"surveyor: the throttle of plan {self.plan_id} is still set, the Admin API does not answer; "
            f"{_retry_hint(self.plan_id)}"
        )


@dataclass(frozen=True, slots=True)
class ThrottleUncertain(CommitEvent):
    """An error has ended the removal of the throttle at the end of a commit."""

    level: ClassVar[int] = logging.WARNING
    plan_id: str
    error: str

    @property
    def line(self) -> str:
        return (
            f"surveyor: the throttle of plan {self.plan_id} may still be set ({self.error}); "
            f"{_retry_hint(self.plan_id)}"
        )


@dataclass(frozen=True, slots=True)
class ThrottleStillSet(CommitEvent):
    """An error has prevented the removal of a throttle, while the commit itself was refused."""

    level: ClassVar[int] = logging.WARNING
    plan_id: str
    error: str

    @property
    def line(self) -> str:
        return f"surveyor: the throttle of plan {self.plan_id} is still set: {self.error}"


@dataclass(frozen=True, slots=True)
class ThrottleLeftBehind(CommitEvent):
    """Another plan has left its throttle, which is removed."""

    plan_id: str

    @property
    def line(self) -> str:
        return f"surveyor: plan {self.plan_id} has left its throttle behind, and none of its replicas move"


@dataclass(frozen=True, slots=True)
class OtherThrottleSet(CommitEvent):
    """The throttle of another plan is set."""

    plan_id: str

    @property
    def line(self) -> str:
        return (
            f"  the throttle of plan {self.plan_id} is still set: `surveyor commit {self.plan_id} --apply` removes it, "
            "once none of its replicas move"
        )


@dataclass(frozen=True, slots=True)
class CopiesThrottled(CommitEvent):
    """Replicas of the plan are copied under a throttle that the plan did not set."""

    level: ClassVar[int] = logging.WARNING
    text: str

    @property
    def line(self) -> str:
        return f"surveyor: {self.text}"


@dataclass(frozen=True, slots=True)
class RestUnthrottled(CommitEvent):
    """The throttle was removed, and the plan is not finished."""

    rate: int | None

    @property
    def line(self) -> str:
        return f"  the rest of the plan is not throttled unless --throttle {self.rate} is given again"


# the controllership of batch mode


@dataclass(frozen=True, slots=True)
class TakeOverLine(CommitEvent):
    """Progress of a take-over that waits for another controller."""

    text: str

    @property
    def line(self) -> str:
        return f"  {self.text}"


@dataclass(frozen=True, slots=True)
class TakenOver(CommitEvent):
    """Surveyor is the controller."""

    controller_epoch: int
    broker_id: int

    @property
    def line(self) -> str:
        return f"  controllership taken over: epoch {self.controller_epoch}, id {self.broker_id}"

    @property
    def fields(self) -> Mapping[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StatesWritten(CommitEvent):
    """The pending rows are in ZooKeeper."""

    created_topics: Sequence[str]
    states: int

    @property
    def line(self) -> str:
        topics = ", ".join(self.created_topics)
        created = f"topic and config znodes of {topics}, " if topics else ""
        return f"  written under the fence: {created}{pluralise(self.states, 'state znode')}"


@dataclass(frozen=True, slots=True)
class EpochRaised(CommitEvent):
    """Brokers know a later controller epoch than ours."""

    refusal: str

    @property
    def line(self) -> str:
        return f"  {self.refusal}"


@dataclass(frozen=True, slots=True)
class BrokersNotified(CommitEvent):
    """The brokers' responses."""

    apis: Sequence[str]
    accepted: Sequence[int]
    is_partial: bool
    silent: Sequence[int]
    errors: Sequence[str]

    @property
    def lines(self) -> Iterator[str]:
        word = "accepted in full" if self.is_partial else "accepted"
        brokers = f"brokers {join_ids(self.accepted)}" if self.accepted else "no broker"
        yield f"  {', '.join(self.apis)} {word} by {brokers}"
        if self.silent:
            ids = join_ids(self.silent)
            yield f"surveyor: no answer from brokers {ids}: Kafka's next controller sends them the changes"
        yield from (f"surveyor: {error}" for error in self.errors)


@dataclass(frozen=True, slots=True)
class LeadersRefused(CommitEvent):
    """Brokers answered that they do not lead what they were elected for."""

    level: ClassVar[int] = logging.WARNING
    leaderless: Mapping[Key, int]
    """Kafka's error code by partition."""

    @property
    def line(self) -> str:
        return f"surveyor: {leaderless_text(self.leaderless)}"


@dataclass(frozen=True, slots=True)
class LaterEpochKnown(CommitEvent):
    """Brokers refuse every controller until they are restarted."""

    level: ClassVar[int] = logging.WARNING
    refusal: str

    @property
    def line(self) -> str:
        again = "the changes are stored in ZooKeeper; commit the plan again after the restart"
        return f"surveyor: {self.refusal}; {again}"


@dataclass(frozen=True, slots=True)
class NotificationFailed(CommitEvent):
    """No broker has accepted the changes; the next controller sends them."""

    level: ClassVar[int] = logging.WARNING
    failure: str
    successor: int | None
    """The broker that has become the controller, None if none has."""

    @property
    def line(self) -> str:
        sent = LEFT_TO_SUCCESSOR
        if self.successor is not None:
            sent = f"broker {self.successor} sent them when it became the controller"
        return f"surveyor: {self.failure}; the changes are stored in ZooKeeper: {sent}"


@dataclass(frozen=True, slots=True)
class Resigned(CommitEvent):
    """The controllership has ended."""

    reason: str

    @property
    def line(self) -> str:
        return f"  resigned: {self.reason}"


@dataclass(frozen=True, slots=True)
class StatesVerified(CommitEvent):
    """The result of reading the written states back."""

    states: int
    epoch: int
    found: int
    """States that were there before the write, as planned."""

    @property
    def lines(self) -> Iterator[str]:
        count = f"{self.states} of {self.states} changed state znodes"
        yield f"  {count} carry our controller epoch {self.epoch}, or a later one"
        if self.found:
            yield f"  {self.found} more had the planned state already"


def leaderless_text(leaderless: Mapping[Key, int]) -> str:
    """Name the partitions whose new leader has answered that it does not lead them.

    >>> print(leaderless_text({("orders", 1): 56, ("orders", 0): 56}))
    2 partitions have no leader (orders-0, orders-1): the brokers elected to lead them answered \
KafkaStorageError (56); the changes are stored in ZooKeeper, so take a new snapshot and plan again
    """
    names = [partition_name(topic, partition) for topic, partition in sorted(leaderless)]
    shown = ", ".join(names[:_MAX_EXAMPLES]) + ", ..." * (len(names) > _MAX_EXAMPLES)
    errors = ", ".join(error_name(error) for error in sorted(set(leaderless.values())))
    return (
        f"{pluralise(len(names), 'partition', 'has', 'have')} no leader ({shown}): the brokers elected to lead them "
        f"answered {errors}; the changes are stored in ZooKeeper, so take a new snapshot and plan again"
    )
