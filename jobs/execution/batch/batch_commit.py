"""Batch mode: take the controllership, write the plan under the fence, notify the brokers, and resign.

Corresponds to `KafkaController.onControllerFailover` and `onControllerResignation`, around one plan. When the session
closes, a broker becomes the controller, and its failover sends the full state to all brokers. So even after a crash
between a write and its notification the brokers soon receive the new state.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from kazoo.exceptions import KazooException

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.listeners import Listener, UnreachableBrokerError
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, ClusterState, read_cluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, controllership, current_controller
from jobs.core.errors import FencedError, RefusedError, SurveyorError, UnreadableError
from jobs.core.polling import poll_until
from jobs.execution.batch.fenced_writer import FencedWriter
from jobs.execution.batch.notification import (
    LEFT_TO_SUCCESSOR,
    HoldBudget,
    NotificationResult,
    later_epoch_line,
    leaderless_text,
    notify,
    verify_written,
)
from jobs.execution.batch.replica_deletion import (
    changes_deleting_replicas,
    deletion_notices,
    deletion_outcomes,
    notices_before_deletion,
    restarted_replicas,
)
from jobs.execution.batch.standalone_operations import write_tasks
from jobs.execution.mode_selection import refuse_resident_drain
from jobs.preconditions.change_preconditions import reassigns
from jobs.repositories import broker_responses
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.current_state import CurrentCluster
from schemas.enums import NO_CONTROLLER, WITHDRAWALS, Action, OperationKind, Outcome, Step
from schemas.rows import Change, Operation, PlanRow, changes_among, operations_among
from schemas.stored_plan import RowOutcome
from schemas.text import pluralise


@dataclass(frozen=True, slots=True)
class HeldControllership:
    """A controllership that the caller has and keeps, as the resident controller does."""

    control: Controllership
    notify_brokers: Callable[[Sequence[Change]], None]
    """Notifies the brokers of changes that were written; the caller handles their responses."""


def refuse_unreachable(state: CurrentCluster, listener: Listener) -> None:
    """Raise RefusedError if some live broker could not be notified of what is written."""
    for row in state.quarantine:
        if row.path.startswith(f"{BROKER_IDS}/"):
            raise RefusedError(
                f"{row.path} is not understood ({row.reason}): "
                "the list of live brokers cannot be sent; repair this znode first",
            )
    for broker in state.brokers:
        try:
            listener.address(broker)
        except UnreachableBrokerError as error:
            raise RefusedError(f"batch mode cannot notify the brokers: {error}, or use --mode admin") from None


@dataclass(frozen=True, slots=True)
class CommitContext:
    """How a commit in batch mode writes, and where it is recorded."""

    settings: Settings
    session: ZooKeeperSession
    commit_log: CommitLog
    hold: HoldBudget
    since: int | None = None
    """The controller epoch at which the rows were found pending: if another controller has taken over since,
    OvertakenError is raised and nothing is taken over.
    """
    above: int = 0
    """The latest controller epoch found in states and in the warehouse; the new epoch will be later."""
    held: HeldControllership | None = None
    """None if the commit takes the controllership and resigns afterwards."""


def commit_batch(context: CommitContext, pending: Sequence[PlanRow]) -> None:
    """Write the pending rows and record the outcomes in the commit log.

    Responses are read and recorded after the resignation, because the brokers' ISR changes and producer ids wait for a
    controller.
    """
    commit_log, held = context.commit_log, context.held
    if held is not None:
        written, _, _ = _write(context, held.control, pending)
        held.notify_brokers(changes_among(row.change for row in written))
        with context.session.connected() as client:
            verify_written(client, NotificationResult(held.control.epoch, written))
        return
    refuse_resident_drain(commit_log.plan)
    with _progress_on_connection_loss(commit_log):
        with _taken_over(context) as control:
            notified = _write_and_notify(context, control, pending)
            seconds = control.held()
        responses = BrokerResponses.of(notified.responses)
        successor = _wait_for_successor(context, seconds, notified.summary(responses))
        _record(context, notified, responses, successor)


@contextmanager
def _progress_on_connection_loss(commit_log: CommitLog) -> Iterator[None]:
    """If ZooKeeper is lost, add the outcomes so far to the error.

    As soon as some rows may be written, the error is a SessionLostError and no longer a mere failure to read.
    """
    try:
        yield
    except (SessionLostError, UnreadableError) as error:
        outcome_counts = {name: count for name, count in commit_log.counts().items() if count}
        if not {Outcome.APPLIED.value, Outcome.UNKNOWN.value} & outcome_counts.keys():
            raise
        progress_text = ", ".join(f"{count} {name}" for name, count in outcome_counts.items())
        raise SessionLostError(f"{error}\n  rows of the plan so far: {progress_text}; {LEFT_TO_SUCCESSOR}") from error


def take_over_above(context: CommitContext) -> None:
    """Take the controllership at an epoch above one that brokers know, write nothing, and resign.

    The next controller takes the epoch after ours and sends the full state under it.
    """
    with _taken_over(context, f", above {context.above}") as control:
        context.commit_log.intents_written = True
        seconds = control.held()
    _wait_for_successor(context, seconds, "")
    context.commit_log.close()


@contextmanager
def _taken_over(context: CommitContext, note: str = "") -> Iterator[Controllership]:
    """Take the controllership, recording the intent first, and release it afterwards."""
    epochs: list[int] = []
    commit_log = context.commit_log

    def record_intent(epoch: int) -> None:
        epochs.append(epoch)
        commit_log.step(Step.TAKE_OVER, Outcome.PENDING, f"controller epoch {epoch}")

    with ExitStack() as stack:
        try:
            control = stack.enter_context(
                controllership(
                    context.settings.zookeeper_endpoint,
                    context.settings.conf.controller_id,
                    lambda line: log(f"  {line}"),
                    record_intent,
                    expected_epoch=context.since,
                    latest_known_epoch=context.above,
                )
            )
        except SurveyorError as error:
            if epochs:
                is_unknown = isinstance(error, SessionLostError | UnreadableError)
                commit_log.step(Step.TAKE_OVER, Outcome.UNKNOWN if is_unknown else Outcome.FAILED, str(error))
            raise
        epoch, broker = control.epoch, control.controller_id
        commit_log.written_under = epoch
        commit_log.step(Step.TAKE_OVER, Outcome.APPLIED, f"controller epoch {epoch}{note}")
        log(f"  controllership taken over: epoch {epoch}, id {broker}", controller_epoch=epoch, broker_id=broker)
        yield control


def _write_and_notify(
    context: CommitContext, control: Controllership, pending: Sequence[PlanRow]
) -> NotificationResult:
    """Write the pending rows and notify the brokers, first of the new states and then of replica deletions."""
    listener, hold = context.settings.listener, context.hold  # read before anything is written
    written, deletions, state = _write(context, control, pending)
    if not (written or deletions):
        return NotificationResult(control.epoch)
    epoch, changes = control.epoch, changes_among(row.change for row in written)
    with progress("notifying the brokers"), ChannelManager(str(control.controller_id), listener=listener) as channels:
        first_notices = partial(notices_before_deletion, changes, deletions)
        notified = notify(control, channels, state.brokers, first_notices, hold)
        with_deleted_replicas = changes_deleting_replicas(changes)
        if (with_deleted_replicas or deletions) and not notified.hold_expired and notified.fenced is None:
            second_notices = partial(deletion_notices, with_deleted_replicas, deletions)
            deleted = notify(control, channels, state.brokers, second_notices, hold)
            notified = notified.combined_with(deleted)
    context.commit_log.add_outcomes(deletion_outcomes(deletions, notified))
    return replace(notified, epoch=epoch, written=written)


def _write(
    context: CommitContext, control: Controllership, pending: Sequence[PlanRow]
) -> tuple[list[RowOutcome], list[Operation], ClusterState]:
    """Write under the fence.

    Return the outcomes of the changes that are now in ZooKeeper, the operations that delete replicas, and the cluster
    state read at the start.
    """
    commit_log, max_hold = context.commit_log, context.hold.max_hold
    commit_log.append_intents(pending)
    try:
        state = read_cluster(control.client)
        refuse_unreachable(state, context.settings.listener)
    except (SurveyorError, KazooException):
        commit_log.skip_undecided(pending)
        raise
    tasks, changes = operations_among(pending), changes_among(pending)
    restarted = restarted_replicas(commit_log.plan, changes, control.epoch)
    commit_log.add_outcomes(restarted)
    restarted_places = {outcome.change.place for outcome in restarted}
    deletions = [task for task in tasks if task.action == OperationKind.DELETE_REPLICAS]
    withdrawals = [task for task in tasks if task.action in WITHDRAWALS]
    other_tasks = [task for task in tasks if task not in (*deletions, *withdrawals)]
    # the plan is not checked again as a whole: every multi checks its preconditions, and refused rows are checked then
    writer = FencedWriter(control, max_hold, commit_log.plan, context.settings.pace.batch_changes)
    written: list[RowOutcome] = []
    try:
        with progress("writing to ZooKeeper"):
            for outcomes in write_tasks(control, other_tasks, max_hold):
                commit_log.add_outcomes(outcomes)
            for outcomes in writer.write(
                sorted((change for change in changes if change.place not in restarted_places), key=reassigns),
                commit_log.plan.broker_epochs,
            ):
                commit_log.add_outcomes(outcomes)
                written += [row for row in outcomes if row.outcome is Outcome.APPLIED]
            # Requests are removed after the states are written. After a crash in between the request still exists,
            # and the next plan finds it fulfilled.
            premature = _premature_withdrawals(commit_log, withdrawals)
            commit_log.add_outcomes(
                RowOutcome(task, Outcome.STALE, "a reassignment of its topic has not been completed")
                for task in premature
            )
            for outcomes in write_tasks(control, [task for task in withdrawals if task not in premature], max_hold):
                commit_log.add_outcomes(outcomes)
    except (FencedError, SessionLostError):
        commit_log.skip_undecided([*tasks, *changes])
        raise
    if written:
        topics = sorted({row.change.topic for row in written} & set(writer.topics.creations))
        states = sum(not row.is_found for row in written)
        created = f"topic and config znodes of {', '.join(topics)}, " if topics else ""
        log(f"  written under the fence: {created}{pluralise(states, 'state znode')}")
    return written, deletions, state


def _premature_withdrawals(commit_log: CommitLog, withdrawals: Sequence[Operation]) -> list[Operation]:
    """Return requests that must stay until the next plan: the end of a reassignment of their topic was not written."""
    unfinished_topics = {
        outcome.change.topic
        for outcome in commit_log.outcomes
        if outcome.change.action == Action.END_REASSIGNMENT and outcome.outcome is not Outcome.APPLIED
    }
    return [
        task
        for task in withdrawals
        if task.action == OperationKind.WITHDRAW_REASSIGNMENT and task.topic in unfinished_topics
    ]


def _record(context: CommitContext, notified: NotificationResult, responses: BrokerResponses, controller: int) -> None:
    """Store the brokers' responses, read back what was written, and report brokers that may not have been notified."""
    if not (notified.written or notified.responses):
        return
    commit_log = context.commit_log
    if not notified.hold_expired:
        for line in notified.lines(responses):
            log(line)
    broker_responses.record(commit_log.warehouse, responses.table(commit_log.warehouse.cluster))
    failure = notified.failure_reason(responses)
    if leaderless := responses.leaderless_partitions:
        commit_log.unanswered = commit_log.unfinished = True
        log(f"surveyor: {leaderless_text(leaderless)}", logging.WARNING)
    elif later_epoch := later_epoch_line(responses, notified.notified_under):
        commit_log.unanswered = commit_log.unfinished = True
        again = "the changes are stored in ZooKeeper; commit the plan again after the restart"
        log(f"surveyor: {later_epoch}; {again}", logging.WARNING)
    elif failure is not None:
        announced = controller != NO_CONTROLLER
        commit_log.unanswered = not (announced and notified.hold_expired)
        commit_log.unfinished = not announced
        sent = f"broker {controller} sent them when it became the controller" if announced else LEFT_TO_SUCCESSOR
        log(f"surveyor: {failure}; the changes are stored in ZooKeeper: {sent}", logging.WARNING)
    if notified.fenced is not None:
        raise notified.fenced
    if notified.written:
        with context.session.connected() as client:
            verify_written(client, notified)


def _wait_for_successor(context: CommitContext, seconds: float, notified: str) -> int:
    """Wait until a broker is the controller, record the resignation, and return the broker's id."""
    commit_log = context.commit_log
    try:
        with progress("waiting for a broker to become the controller"), context.session.connected() as client:
            limit = context.settings.pace.resignation
            controller = poll_until(lambda: current_controller(client), lambda it: it != NO_CONTROLLER, limit)
    except SurveyorError as error:
        commit_log.step(
            Step.HAND_BACK, Outcome.UNKNOWN, f"our session is closed; the current controller is unknown: {error}"
        )
        raise
    if controller == NO_CONTROLLER:
        message = "no broker has become the controller yet: /controller is free for one"
    else:
        message = f"broker {controller} is the controller; held for {seconds:.1f} s"
    message += f"; {notified}" if notified else ""
    commit_log.step(Step.HAND_BACK, Outcome.APPLIED, message)
    log(f"  resigned: {message}")
    return controller
