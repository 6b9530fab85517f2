"""Batch mode: take the controllership, write the plan under the fence, tell the brokers, hand back.

Corresponds to `KafkaController.onControllerFailover` and `onControllerResignation`, around one plan. When the session
closes, Kafka elects a controller of its own, whose fail-over announces everything again; so a crash anywhere after a
write leaves nobody uninformed for long.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from kazoo.exceptions import KazooException

from jobs.adapters.brokers.admin import error_name
from jobs.adapters.brokers.connection import ConnectionPool
from jobs.adapters.brokers.listeners import Listener, UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.zookeeper.cluster import BROKER_IDS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import poll_until
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, controllership, who_controls
from jobs.core.errors import FencedError, RefusedError, SurveyorError, UnreadableError
from jobs.execution.batch.fenced_writer import FencedWriter
from jobs.execution.batch.notify import (
    HoldBudget,
    NotificationResult,
    WrittenChange,
    later_epoch_line,
    notify,
    verify_written,
)
from jobs.execution.batch.operations import write_tasks
from jobs.execution.batch.replica_deletion import (
    changes_deleting_replicas,
    deletion_notices,
    deletion_outcomes,
    notices_before_deletion,
    restarted_replicas,
)
from jobs.execution.mode_selection import refuse_resident_drain
from jobs.preconditions.changes import reassigns
from jobs.repositories import broker_responses
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.text import pluralise
from schemas.enums import NO_CONTROLLER, WITHDRAWALS, Action, OperationKind, Outcome, Step
from schemas.rows import Change, Operation, PlanRow, changes_among, operations_among

RESIGN_TIMEOUT_SECONDS: Final = 20.0
"""Seconds within which a broker should have become the controller again."""

_MAX_EXAMPLES: Final = 3

NotifyBrokers = Callable[[Sequence[Change]], None]
"""Tells brokers of changes that were written."""

LEFT_TO_SUCCESSOR: Final = "whoever becomes the controller announces it; watch that one does"


def refuse_unreachable(state: ClusterState, listener: Listener) -> None:
    """Refuse to take over where some live broker could not be told what was written."""
    for row in state.quarantine:
        if row["path"].startswith(f"{BROKER_IDS}/"):
            raise RefusedError(
                f"{row['path']} is not understood ({row['reason']}): "
                "the brokers cannot be told who is alive; mend it first",
            )
    for broker in state.brokers:
        try:
            listener.address(broker)
        except UnreachableBrokerError as error:
            raise RefusedError(f"batch mode cannot tell what it writes: {error}, or use --mode admin") from None


def commit_batch(
    settings: Settings,
    ledger: CommitLog,
    due: Sequence[PlanRow],
    max_hold: float,
    held: Controllership | None = None,
    *,
    silent: Collection[int] = (),
    notify_brokers: NotifyBrokers | None = None,
    since: int | None = None,
    above: int = 0,
) -> None:
    """Write what is due, in the ledger's name; under `held` the controllership stays with the caller.

    `tell_all` is the caller's own way of telling brokers: then what they answer is the caller's to hear, too.
    `silent` brokers are known not to answer. What was answered is read and recorded once the controllership is handed
    back: the brokers' ISR changes and producer ids wait for a controller. `since` is the controller epoch under which
    the rows were found due: OvertakenError is raised, and nothing taken over, where another controller came after it.
    `above` is the latest controller epoch that states and the warehouse know: ours is later.
    """
    if held is not None and notify_brokers is not None:
        written, _, _ = _write(settings, ledger, held, due, max_hold, listener=settings.listener)
        notify_brokers([each.change for each in written])
        verify_written(settings.zookeeper, NotificationResult(held.epoch, written))
        return
    if held is not None:
        told = _commit_held(settings, ledger, held, due, HoldBudget(max_hold, silent, keeps_controllership=True))
        _record(settings, ledger, told, BrokerResponses.of(told.answers), NO_CONTROLLER)
        return
    refuse_resident_drain(ledger.plan)
    with _progress_on_connection_loss(ledger):
        _take_over_and_commit(settings, ledger, due, HoldBudget(max_hold, silent), since, above)


@contextmanager
def _progress_on_connection_loss(ledger: CommitLog) -> Iterator[None]:
    """Where ZooKeeper is lost: say how far it came; once something may be written, that is no mere failure to read."""
    try:
        yield
    except (SessionLostError, UnreadableError) as error:
        done = {name: count for name, count in ledger.counts().items() if count}
        if not {Outcome.APPLIED.value, Outcome.UNKNOWN.value} & done.keys():
            raise
        told = ", ".join(f"{count} {name}" for name, count in done.items())
        raise SessionLostError(f"{error}\n  rows of the plan so far: {told}; {LEFT_TO_SUCCESSOR}") from error


def take_over_above(settings: Settings, ledger: CommitLog, epoch: int, *, since: int | None) -> None:
    """Take the controllership over above an epoch that brokers have heard of, write nothing, and hand it back.

    The controller that follows takes the epoch after ours, and announces everything under it.
    """
    with ExitStack() as stack:
        control = _take_over(stack, settings, ledger, since, epoch)
        ledger.intents_written, ledger.written_under = True, control.epoch
        ledger.step(Step.TAKE_OVER, Outcome.APPLIED, f"controller epoch {control.epoch}, above {epoch}")
        log(f"  controllership taken over: epoch {control.epoch}, id {control.controller_id}")
        seconds = control.held()
    _wait_for_successor(settings, ledger, seconds, "")
    ledger.close()


def _take_over_and_commit(  # noqa: PLR0917 - what the take-over and the writing need
    settings: Settings, ledger: CommitLog, due: Sequence[PlanRow], hold: HoldBudget, since: int | None, above: int
) -> None:
    with ExitStack() as stack:
        control = _take_over(stack, settings, ledger, since, above)
        ledger.written_under = control.epoch
        ledger.step(Step.TAKE_OVER, Outcome.APPLIED, f"controller epoch {control.epoch}")
        log(f"  controllership taken over: epoch {control.epoch}, id {control.controller_id}")
        told = _commit_held(settings, ledger, control, due, hold)
        seconds = control.held()
    answers = BrokerResponses.of(told.answers)
    _record(settings, ledger, told, answers, _wait_for_successor(settings, ledger, seconds, told.summary(answers)))


def _take_over(
    stack: ExitStack, settings: Settings, ledger: CommitLog, since: int | None, above: int
) -> Controllership:
    """Take over, and own up to it before; hand back when the stack is unwound."""
    epochs: list[int] = []

    def intend(epoch: int) -> None:
        epochs.append(epoch)
        ledger.step(Step.TAKE_OVER, Outcome.PENDING, f"controller epoch {epoch}")

    us = settings.conf.controller_id
    office = controllership(settings.zookeeper, us, lambda line: log(f"  {line}"), intend, since=since, above=above)
    try:
        return stack.enter_context(office)
    except SurveyorError as error:
        if epochs:
            lost = isinstance(error, SessionLostError | UnreadableError)
            ledger.step(Step.TAKE_OVER, Outcome.UNKNOWN if lost else Outcome.FAILED, str(error))
        raise


def _commit_held(
    settings: Settings, ledger: CommitLog, control: Controllership, due: Sequence[PlanRow], hold: HoldBudget
) -> NotificationResult:
    listener = settings.listener  # read before anything is written
    written, going, state = _write(settings, ledger, control, due, hold.max_hold, listener=listener)
    if not (written or going):
        return NotificationResult(control.epoch)
    epoch, changes = control.epoch, [each.change for each in written]
    with progress("telling the brokers"), ConnectionPool(str(control.controller_id), listener) as channels:
        first = partial(notices_before_deletion, changes, going)
        told = notify(control, channels, state.brokers, first, hold)
        left = changes_deleting_replicas(changes)
        if (left or going) and not told.out_of_time and told.fenced is None:
            told = told.combined_with(
                notify(control, channels, state.brokers, partial(deletion_notices, left, going), hold)
            )
    ledger.judge(deletion_outcomes(going, told))
    return replace(told, epoch=epoch, written=written)


def _write(
    settings: Settings,
    ledger: CommitLog,
    control: Controllership,
    due: Sequence[PlanRow],
    max_hold: float,
    *,
    listener: Listener,
) -> tuple[list[WrittenChange], list[Operation], ClusterState]:
    """Write under the fence; return what stands, whose replicas are to be deleted, and the cluster as it was found."""
    ledger.append_intents(due)
    try:
        state = read_cluster(control.client, settings.zookeeper)
        refuse_unreachable(state, listener)
    except (SurveyorError, KazooException):
        _skip_undecided(ledger, due)
        raise
    tasks, changes = operations_among(due), changes_among(due)
    unsure = restarted_replicas(ledger.plan, changes, control.epoch)
    ledger.judge(unsure)
    not_now = {verdict.change.place for verdict in unsure}
    going = [task for task in tasks if task.action == OperationKind.DELETE_REPLICAS]
    withdrawn = [task for task in tasks if task.action in WITHDRAWALS]
    first = [task for task in tasks if task not in (*going, *withdrawn)]
    # not judged once more as a whole: every multi checks its premises, and whom one is refused is judged then
    writer = FencedWriter(control, ledger.plan, max_hold)
    written: list[WrittenChange] = []
    try:
        with progress("writing to ZooKeeper"):
            for judged in write_tasks(control, first, max_hold):
                ledger.judge(judged)
            for judged in writer.write(sorted((each for each in changes if each.place not in not_now), key=reassigns)):
                ledger.judge(judged)
                written += _written_changes(judged)
            # what is written is what was asked for: a crash in between leaves the request, which is found fulfilled
            early = _premature_withdrawals(ledger, withdrawn)
            ledger.judge(RowOutcome(task, Outcome.STALE, "a move of it has not come to its end") for task in early)
            for judged in write_tasks(control, [task for task in withdrawn if task not in early], max_hold):
                ledger.judge(judged)
    except (FencedError, SessionLostError):
        _skip_undecided(ledger, [*tasks, *changes])
        raise
    if written:
        topics = sorted({each.change.topic for each in written} & set(writer.topics.creations))
        created = f"topic and config znodes of {', '.join(topics)}, " if topics else ""
        by_us = sum(not each.is_read_back for each in written)
        log(f"  written under the fence: {created}{by_us} state znodes")
    return written, going, state


def _premature_withdrawals(ledger: CommitLog, withdrawn: Sequence[Operation]) -> list[Operation]:
    """Requests that stay, as what should have ended a move of their topic was not written: the next plan ends it."""
    moving = {
        verdict.change.topic
        for verdict in ledger.outcomes
        if verdict.change.action == Action.END_REASSIGNMENT and verdict.outcome is not Outcome.APPLIED
    }
    return [task for task in withdrawn if task.action == OperationKind.WITHDRAW_REASSIGNMENT and task.topic in moving]


def _written_changes(verdicts: Sequence[RowOutcome]) -> Iterator[WrittenChange]:
    """The changes whose state stands in ZooKeeper, written now or found there, with its version."""
    for verdict in verdicts:
        change, version = verdict.change, verdict.state_version_after
        if verdict.outcome is Outcome.APPLIED and isinstance(change, Change) and version is not None:
            yield WrittenChange(change, version, verdict.is_found)


def _record(
    settings: Settings, ledger: CommitLog, told: NotificationResult, answers: BrokerResponses, controller: int
) -> None:
    """Store what brokers answered, read back what was written, and name the brokers that may not have been told."""
    if not (told.written or told.answers):
        return
    for line in told.lines(answers):
        log(line)
    broker_responses.record(ledger.warehouse, answers.table(ledger.warehouse.cluster))
    why = told.failure_reason(answers)
    if unled := answers.leaderless_partitions:
        ledger.unanswered = ledger.unfinished = True
        log(f"surveyor: {_leaderless_text(unled)}")
    elif refused := later_epoch_line(answers, told.notified_under):
        ledger.unanswered = ledger.unfinished = True
        log(f"surveyor: {refused}; what was written stands in ZooKeeper; commit the plan again then")
    elif why is not None:
        announced = controller != NO_CONTROLLER
        ledger.unanswered = not (announced and told.out_of_time)
        ledger.unfinished = not announced
        after = f"broker {controller} announced it when it became the controller" if announced else LEFT_TO_SUCCESSOR
        log(f"surveyor: {why}; what was written stands in ZooKeeper: {after}")
    if told.fenced is not None:
        raise told.fenced
    if told.written:
        verify_written(settings.zookeeper, told)


def _leaderless_text(unled: Mapping[tuple[str, int], int]) -> str:
    """Name the partitions whose new leader has answered that it does not lead them.

    >>> print(_leaderless_text({("orders", 1): 56, ("orders", 0): 56}))
    nobody leads 2 partitions (orders-0, orders-1): whoever was to lead them answered KafkaStorageError (56); what was \
written stands in ZooKeeper, so take a new snapshot and plan again
    """
    names = [f"{topic}-{partition}" for topic, partition in sorted(unled)]
    shown = ", ".join(names[:_MAX_EXAMPLES]) + ", ..." * (len(names) > _MAX_EXAMPLES)
    errors = ", ".join(error_name(error) for error in sorted(set(unled.values())))
    return (
        f"nobody leads {pluralise(len(names), 'partition')} ({shown}): whoever was to lead them answered "
        f"{errors}; what was written "
        "stands in ZooKeeper, so take a new snapshot and plan again"
    )


def _skip_undecided(ledger: CommitLog, due: Sequence[PlanRow]) -> None:
    judged = {v.change.place for v in ledger.outcomes}
    left = (change for change in due if change.place not in judged)
    ledger.judge(RowOutcome(change, Outcome.SKIPPED, "the commit stopped before it") for change in left)


def _wait_for_successor(settings: Settings, ledger: CommitLog, seconds: float, told: str) -> int:
    """Wait for a broker to become the controller; return it."""
    try:
        with progress("waiting for a broker to become the controller"):
            controller = poll_until(
                lambda: who_controls(settings.zookeeper), lambda it: it != NO_CONTROLLER, RESIGN_TIMEOUT_SECONDS
            )
    except SurveyorError as error:
        ledger.step(Step.HAND_BACK, Outcome.UNKNOWN, f"our session is closed; nobody knows who is in control: {error}")
        raise
    if controller == NO_CONTROLLER:
        message = "no broker has become the controller yet: /controller is free for one"
    else:
        message = f"broker {controller} is the controller; held for {seconds:.1f} s"
    message += f"; {told}" if told else ""
    ledger.step(Step.HAND_BACK, Outcome.APPLIED, message)
    log(f"  controllership handed back: {message}")
    return controller
