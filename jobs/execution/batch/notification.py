"""Notification of brokers by a commit in batch mode while it is the controller, and the check of what was written.

This is quicker than the failover of Kafka's next controller, which sends the full state anyway. If notifying would
take longer than the controllership may be held, or a broker does not answer, the brokers are left to that controller.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import error_name
from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from jobs.adapters.zookeeper.cluster_state import read_brokers
from jobs.adapters.zookeeper.connection import LOST, sync, with_retries
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.core.errors import FencedError, SurveyorError
from jobs.core.signals import is_interrupted
from jobs.runtime.console import log
from schemas.notices import UPDATE_METADATA, Notice
from schemas.rows import Broker, Key
from schemas.stored_plan import RowOutcome
from schemas.text import broker_list, join_ids, partition_name, pluralise
from schemas.znode_codecs import MalformedZnodeError, decode_state
from schemas.znode_paths import state_path

EPOCH_STEPS: Final = tuple(2**doubled for doubled in range(17))
"""Steps by which our epoch is raised after each refusal; they grow because brokers do not return the epoch they
know.
"""

MAX_ERROR_LINES: Final = 5
"""Maximum number of lines for errors."""

_MAX_EXAMPLES: Final = 3
"""Partitions that a line names."""

NoticesFor = Callable[[Collection[int]], Sequence[Notice]]
"""Returns the notices to send while these brokers are registered."""


@dataclass(frozen=True, slots=True)
class HoldBudget:
    """How long the controllership may be held (`max_hold` in seconds)."""

    max_hold: float
    silent: Collection[int] = ()
    """Brokers that are known not to answer."""

    def seconds_left(self, control: Controllership) -> float:
        """Return the seconds left for notifying brokers."""
        return 0.0 if is_interrupted() else self.max_hold - control.held()


@dataclass(frozen=True, slots=True)
class NotificationResult:
    """The brokers' responses and the changes written before; `hold_expired` is whether no time was left to notify."""

    epoch: int
    written: Sequence[RowOutcome] = ()
    """Outcomes of the changes whose state is in ZooKeeper, written now or found there."""
    responses: Sequence[BrokerResponse] = ()
    hold_expired: bool = False
    affected_brokers: frozenset[int] = field(default_factory=frozenset)
    """Live brokers that had to be notified of leaders, ISRs or replicas."""
    fenced: FencedError | None = None
    notified_under: int = 0
    """The controller epoch of the last request; later than `epoch` if brokers knew a later one."""

    def combined_with(self, later: "NotificationResult") -> "NotificationResult":
        """Merge the result of a later notification into this one."""
        return replace(
            self,
            notified_under=max(self.notified_under, later.notified_under),
            responses=[*self.responses, *later.responses],
            affected_brokers=self.affected_brokers | later.affected_brokers,
            fenced=self.fenced or later.fenced,
        )

    def failure_reason(self, responses: BrokerResponses) -> str | None:
        """Explain why no affected broker has accepted the notification; None if at least one has."""
        if self.hold_expired:
            cause = "interrupted" if is_interrupted() else "--max-hold was over"
            return f"{cause} before the brokers could be notified"
        if not self.affected_brokers or self.affected_brokers & set(responses.accepted):
            return None
        return f"none of brokers {join_ids(sorted(self.affected_brokers))} accepted the changes"

    def summary(self, responses: BrokerResponses) -> str:
        """Summarise the result in one line for the commit log."""
        if not (self.written or self.responses):
            return ""
        unconfirmed_brokers = sorted(self.affected_brokers - set(responses.accepted))
        acceptance = (
            f"not accepted by {join_ids(unconfirmed_brokers)}: left to Kafka's controller"
            if unconfirmed_brokers
            else "accepted"
        )
        return (
            later_epoch_line(responses, self.notified_under)
            or self.failure_reason(responses)
            or f"what was written was {acceptance}"
        )

    def lines(self, responses: BrokerResponses) -> Iterator[str]:
        """Yield which brokers accepted the notification, and why others did not."""
        word = "accepted in full" if responses.is_partial else "accepted"
        brokers = f"brokers {join_ids(responses.accepted)}" if responses.accepted else "no broker"
        yield f"  {', '.join(dict.fromkeys(response.api for response in self.responses))} {word} by {brokers}"
        if silent := sorted(set(responses.silent) & self.affected_brokers):
            ids = join_ids(silent)
            yield f"surveyor: no answer from brokers {ids}: Kafka's next controller sends them the changes"
        yield from (f"surveyor: {error}" for error in broker_error_lines(responses))


def notify(
    control: Controllership,
    channels: ChannelManager,
    brokers: Sequence[Broker],
    notices_for: NoticesFor,
    hold: HoldBudget,
) -> NotificationResult:
    """Send the due notices to the brokers, if the hold budget allows; brokers that do not answer are left to Kafka."""
    seconds_left = hold.seconds_left(control)
    if seconds_left <= 0:
        return NotificationResult(control.epoch, hold_expired=True)
    epoch, deadline = control.epoch, time.monotonic() + seconds_left
    fenced_error: FencedError | None = None
    for step in EPOCH_STEPS:
        batch = _control_batch(control, brokers, notices_for)
        responses = deliver(channels, batch, deadline, _refresh_callback(control, batch, notices_for), hold.silent)
        later_epoch_brokers = BrokerResponses.of(responses).of_later_epoch
        fenced_error = _fence_error(partial(with_retries, control.refuse_fenced))
        if not later_epoch_brokers or fenced_error is not None or time.monotonic() > deadline:
            break
        log(f"  {raised_line(later_epoch_brokers, control.epoch)}")  # they do not return the epoch that they know
        fenced_error = _fence_error(partial(control.raise_above, control.epoch + step - 1))
        if fenced_error is not None:
            break
    live = frozenset(batch.addressed_brokers & batch.live)
    return NotificationResult(
        epoch, responses=responses, affected_brokers=live, fenced=fenced_error, notified_under=batch.controller_epoch
    )


def _fence_error(action: Callable[[], object]) -> FencedError | None:
    """Return the FencedError of an action if another controller has taken over: brokers then obey it, not us."""
    try:
        with suppress(*LOST):
            action()
    except FencedError as error:
        return error
    return None


def raised_line(brokers: Sequence[int], epoch: int) -> str:
    """Report that our epoch is raised, and why."""
    return f"{broker_list(brokers)} refused controller epoch {epoch} as stale; raising the controller epoch"


def later_epoch_line(responses: BrokerResponses, epoch: int) -> str | None:
    """Name the brokers that refuse every controller until they are restarted; None if there are none."""
    brokers = responses.of_later_epoch
    if not brokers:
        return None
    return (
        f"{broker_list(brokers)} refused controller epoch {epoch} (StaleControllerEpoch): a later epoch is known "
        "there, and the next controller will be refused too. Restart these brokers one at a time; a broker that starts "
        "accepts any epoch"
    )


LEFT_TO_SUCCESSOR: Final = "the next controller sends them to the brokers; check that a broker becomes the controller"


def leaderless_text(leaderless: Mapping[Key, int]) -> str:
    """Name the partitions whose new leader has answered that it does not lead them; `leaderless` has the error codes.

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


def _control_batch(control: Controllership, brokers: Sequence[Broker], notices_for: NoticesFor) -> ControlBatch:
    return ControlBatch(control.controller_id, control.epoch, brokers, notices_for({row.broker_id for row in brokers}))


def _refresh_callback(
    control: Controllership, batch: ControlBatch, notices_for: NoticesFor
) -> Callable[[], ControlBatch]:
    """Return a callback that re-reads the registered brokers, falling back to the last known batch."""

    def refresh() -> ControlBatch:
        nonlocal batch
        with suppress(*LOST):
            brokers = read_brokers(control.client)
            if brokers != batch.brokers:
                batch = _control_batch(control, brokers, notices_for)
        return batch

    return refresh


def verify_written(client: KazooClient, notified: NotificationResult) -> None:
    """Read back what was written, and log the result; raise SurveyorError if a state is neither ours nor a later one.

    After the resignation the leader may have changed the ISR, or Kafka's controller the state: such a state has our
    version or a later one, and our epoch or a later one. A state that no longer exists belongs to a topic deleted
    since.
    """
    sync(client)  # this ZooKeeper server may lag behind the one that we wrote to
    znodes = read_many(client, [state_path(row.change.key) for row in notified.written])
    pairs = zip(notified.written, znodes, strict=True)
    foreign = [znode.path for row, znode in pairs if not _is_ours_or_later(row, znode, notified.epoch)]
    count = sum(not row.is_found for row in notified.written)
    if foreign:
        raise SurveyorError(
            f"{len(foreign)} of {len(notified.written)} state znodes just written do not carry our controller epoch "
            f"{notified.epoch} or a later one, the first is {foreign[0]}: another client writes states without being "
            "the controller; find out which",
        )
    log(f"  {count} of {count} changed state znodes carry our controller epoch {notified.epoch}, or a later one")
    if found := len(notified.written) - count:
        log(f"  {found} more had the planned state already")


def _is_ours_or_later(written: RowOutcome, znode: Znode, epoch: int) -> bool:
    """Return whether a state is ours or a later one; one that was found may have the former controller's epoch."""
    if znode.version is None:
        return True
    try:
        state = decode_state(znode.data)
    except MalformedZnodeError:
        return False
    if znode.version < (written.state_version_after or 0):
        return False
    return written.is_found or state.controller_epoch >= epoch


def broker_error_lines(responses: BrokerResponses) -> list[str]:
    """Return one line for each kind of error in the responses."""
    groups: dict[tuple[str, int], list[tuple[int, str | None]]] = defaultdict(list)
    for response, errors in zip(responses.responses, responses.errors, strict=True):
        if response.data is not None:
            for name, error in zip(_partitions_of(response), errors, strict=True):
                if not response.meaning(error).is_delivered:
                    groups[response.api, error].append((response.broker_id, name))
    lines = [_error_line(api, error, rows) for (api, error), rows in groups.items()]
    more = f"{len(lines) - MAX_ERROR_LINES + 1} more kinds of error: table `answers`"
    return lines if len(lines) <= MAX_ERROR_LINES else [*lines[: MAX_ERROR_LINES - 1], more]


def _partitions_of(response: BrokerResponse) -> Iterator[str | None]:
    if response.api == UPDATE_METADATA:
        return iter([None])
    return (partition_name(notice.topic, notice.partition) for notice in response.notices)


def _error_line(api: str, error: int, rows: Sequence[tuple[int, str | None]]) -> str:
    brokers = join_ids(sorted({broker for broker, _ in rows}))
    names = list(dict.fromkeys(name for _, name in rows if name is not None))
    shown = ", ".join(names[:_MAX_EXAMPLES]) + ", ..." * (len(names) > _MAX_EXAMPLES)
    about = f" for {pluralise(len(names), 'partition')} ({shown})"
    return f"brokers {brokers} responded to {api} with {error_name(error)}{about if names else ''}"
