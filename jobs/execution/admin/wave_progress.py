"""Checks the changes of a wave again right before they are requested, and waits until they are complete.

Reassignments are complete when no replica is being added or removed and the whole target is in sync.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from jobs.adapters.clusters.interface import Cluster, Lease
from jobs.adapters.zookeeper.connection import with_retries
from jobs.core.errors import NoAnswerError, StillRunningError
from jobs.core.polling import poll_until
from jobs.core.units import Part
from jobs.preconditions.admin_changes import check_for_admin
from jobs.preconditions.cancellation_plan import refuse_unsafe_rows
from jobs.preconditions.operations import check_operations, confirm_creations
from jobs.preconditions.planned_registrations import NO_REGISTRATIONS, PlannedRegistrations, is_unversioned
from jobs.preconditions.reassignment_progress import reassignment_statuses, reassignments_of
from jobs.preconditions.wave_outcomes import read_back
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.console import log
from jobs.runtime.pace import Clock
from jobs.runtime.progress import progress
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentState
from schemas.enums import Outcome
from schemas.rows import Change, PlanRow, changes_among, operations_among
from schemas.stored_plan import Plan, RowOutcome
from schemas.text import broker_list, join_ids, pluralise

MEASURE_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two measurements of what is copied, which ask the brokers for all their logs."""

_MIN_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
"""Maximum seconds between two polls of what moves."""


def recheck_wave(
    cluster: Cluster,
    commit_log: CommitLog,
    wave: Sequence[PlanRow],
    timeout_seconds: float,
    registrations: PlannedRegistrations = NO_REGISTRATIONS,
) -> list[PlanRow]:
    """Read again just before requesting; return the pending rows of a wave, and record the outcomes of the others.

    If changes of the waves before do not show yet, up to `timeout_seconds` are spent waiting for them.
    """
    refused = {outcome.change.key for outcome in commit_log.outcomes if outcome.outcome is not Outcome.APPLIED}
    commit_log.add_outcomes(
        RowOutcome(change, Outcome.SKIPPED, f"its change before wave {change.wave} was not applied")
        for change in wave
        if change.key in refused
    )
    candidates = [change for change in wave if change.key not in refused]
    operations, changes = operations_among(candidates), changes_among(candidates)
    pending, outcomes = poll_until(
        lambda: read_and_check(cluster, commit_log.plan, changes, registrations),
        lambda checked: all(outcome.outcome is not Outcome.STALE for outcome in checked[1]),
        timeout_seconds,
    )
    refuse_unsafe_rows(commit_log.plan, outcomes)
    commit_log.add_outcomes(outcomes)
    if not operations:
        return [*pending]
    pending_operations, operation_outcomes = check_operations(operations, cluster.read_operations(operations))
    commit_log.add_outcomes(operation_outcomes)
    return [*pending, *pending_operations]


def read_cancelled(cluster: Cluster, plan: Plan, changes: Sequence[Change], timeout_seconds: float) -> list[RowOutcome]:
    """Read how cancellations that were accepted have ended, waiting until the cluster shows it."""

    def is_late(row: RowOutcome) -> bool:
        return row.is_running or row.outcome is Outcome.SKIPPED

    def are_shown(checked: tuple[list[Change], list[RowOutcome]]) -> bool:
        return not checked[0] and not any(is_late(row) or row.outcome is Outcome.UNKNOWN for row in checked[1])

    due, outcomes = poll_until(lambda: read_and_check(cluster, plan, changes), are_shown, timeout_seconds)
    late: list[PlanRow] = [*due, *(row.change for row in outcomes if is_late(row))]
    return [*outcomes, *(RowOutcome(row, Outcome.UNKNOWN, "accepted, but not visible yet") for row in late)]


def read_and_check(
    cluster: Cluster, plan: Plan, changes: Sequence[Change], registrations: PlannedRegistrations = NO_REGISTRATIONS
) -> tuple[list[Change], list[RowOutcome]]:
    """Read the latest state of a plan's changes; return the pending ones and the outcomes of the others."""
    cluster.sync()
    pending, outcomes = check_for_admin(changes, cluster.read_current(changes), registrations)
    return pending, confirm_creations(plan, outcomes, cluster.read_operations)


def record_concurrent_changes(
    cluster: Cluster, commit_log: CommitLog, accepted: Sequence[PlanRow], registrations: PlannedRegistrations
) -> list[RowOutcome]:
    """Read back accepted changes that were planned without versions; record and return what requests do not explain."""
    unversioned = [row for row in changes_among(accepted) if is_unversioned(row)]
    if not unversioned:
        return []
    cluster.sync()
    outcomes = read_back(unversioned, cluster.read_current(unversioned), registrations)
    commit_log.replace_outcomes(outcomes)
    return outcomes


def read_statuses(cluster: Cluster, changes: Sequence[Change]) -> list[tuple[Change, ReassignmentStatus, str]]:
    """Read the latest status of each reassignment, and the detail that shows it, as `reassignment_statuses`."""
    return list(reassignment_statuses(changes, (), _read_current(cluster, changes)))


def _read_current(cluster: Cluster, changes: Sequence[Change]) -> CurrentState:
    cluster.sync()
    return cluster.read_current(changes)


def moving_partitions(cluster: Cluster, plan: Plan) -> list[Change]:
    """Read which changes of a plan are moving now."""
    return count_moving(cluster, reassignments_of(plan))


def count_moving(cluster: Cluster, moves: Sequence[Change]) -> list[Change]:
    """Read which of these reassignments are moving now."""
    if not moves:
        return []
    return [move for move, status, _ in read_statuses(cluster, moves) if status is ReassignmentStatus.IN_PROGRESS]


def wait_complete(  # noqa: PLR0917 - where, what and how
    cluster: Cluster,
    commit_log: CommitLog,
    moves: Sequence[Change],
    on_poll: Callable[[], None],
    measure: Callable[[], str],
    clock: Clock,
) -> int:
    """Wait until these reassignments are complete; return how many are.

    A reassignment that another client has turned elsewhere has failed, and the failure is recorded. `on_poll` may
    raise, for instance when the time to wait is over. `measure` returns how much is copied, and may take seconds.
    """
    failed = {outcome.change.key for outcome in commit_log.outcomes if outcome.outcome is not Outcome.APPLIED}
    unfinished = [move for move in moves if move.key not in failed]
    requested = changes_among([outcome.change for outcome in commit_log.of(Outcome.APPLIED)])
    total, complete, pause = len(unfinished), len(unfinished), _MIN_PAUSE_SECONDS
    waves = sorted({move.wave for move in unfinished})
    step = f"replicas move, wave {join_ids(waves)}"
    copied, measured_at = "", clock.monotonic()

    def detail() -> Part | str:
        part = Part(total - len(unfinished), total, "complete")
        notes = [text for text in (copied, commit_log.blocked) if text]
        return "; ".join([str(part), *notes]) if notes else part

    with progress(step, detail):
        while unfinished:
            current = with_retries(lambda: _read_current(cluster, unfinished), (NoAnswerError,))  # noqa: B023 - called at once
            statuses = list(reassignment_statuses(unfinished, requested, current))
            diverged = [(move, detail) for move, status, detail in statuses if status is ReassignmentStatus.DIVERGED]
            failures = [_failed_move(commit_log, move, detail) for move, detail in diverged]
            commit_log.replace_outcomes(failures)
            complete -= len(failures)
            unfinished = [move for move, status, _ in statuses if status is ReassignmentStatus.IN_PROGRESS]
            _note_blocked(commit_log, unfinished, current)
            if unfinished:
                on_poll()
                if (started := clock.monotonic()) - measured_at >= MEASURE_INTERVAL_SECONDS:
                    copied, measured_at = measure(), started
                clock.sleep(pause)
                pause = min(_MAX_PAUSE_SECONDS, 1.5 * pause)
    return complete


def blocked_text(moves: Sequence[Change], current: CurrentState) -> str:
    """Name the brokers that are not live and that reassignments in progress wait for; empty if there are none."""
    waiting = {move.key: {*current.partitions[move.key].lagging(move.replicas_after)} - current.live for move in moves}
    count = sum(map(bool, waiting.values()))
    if not count:
        return ""
    brokers = sorted({broker for dead in waiting.values() for broker in dead})
    are = "is" if len(brokers) == 1 else "are"
    return f"{pluralise(count, 'move', 'waits', 'wait')} for {broker_list(brokers)}, which {are} not live"


def read_blocked(cluster: Cluster, plan: Plan) -> str:
    """Read which reassignments of a plan wait for brokers that are not live; return as `blocked_text`."""
    live = cluster.read_cluster().live
    candidates = [move for move in reassignments_of(plan) if not live.keys() >= {*move.replicas_after}]
    if not candidates:
        return ""
    current = _read_current(cluster, candidates)
    statuses = reassignment_statuses(candidates, (), current)
    return blocked_text([move for move, status, _ in statuses if status is ReassignmentStatus.IN_PROGRESS], current)


def _note_blocked(commit_log: CommitLog, moves: Sequence[Change], current: CurrentState) -> None:
    """Keep what holds moves up for the end of the commit, and log it when it changes."""
    text = blocked_text(moves, current)
    if text and text != commit_log.blocked:
        log(f"surveyor: {text}", logging.WARNING)
    commit_log.blocked = text


def _failed_move(commit_log: CommitLog, move: Change, detail: str) -> RowOutcome:
    """Outcome of a running reassignment that was turned back; for a cancelled plan that is expected."""
    if commit_log.is_closed:
        return RowOutcome(move, Outcome.STALE, f"turned back because the plan was cancelled: {detail}")
    return RowOutcome(move, Outcome.FAILED, f"it was in progress and no longer is: {detail}")


def make_poll_hook(max_wait: float | None, commit_log: CommitLog, lease: Lease) -> Callable[[], None]:
    """Return the function that a commit calls between two polls of its reassignments.

    If the plan is cancelled, it hands the lease to the cancellation. It raises StillRunningError `max_wait`
    seconds from now; None waits without a limit.
    """
    deadline = None if max_wait is None else time.monotonic() + max_wait

    def on_poll() -> None:
        if commit_log.is_closed:
            lease.release()
        if deadline is not None and time.monotonic() >= deadline:
            raise StillRunningError(f"--max-wait {max_wait:g} s is over{resume_hint(commit_log)}")

    return on_poll


def resume_hint(commit_log: CommitLog) -> str:
    """Return how to continue once this command no longer waits."""
    plan = commit_log.plan.plan_id
    continuing = "requested changes continue in the cluster"
    if commit_log.blocked:
        continuing = f"{commit_log.blocked}; other {continuing}"
    return (
        f": {continuing}; `surveyor commit {plan} --apply --wait` continues the plan and waits, "
        f"`surveyor cancel {plan}` turns it back"
    )
