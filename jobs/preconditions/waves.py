"""Waves of a plan in admin mode: changes of a wave are requested together, after the wave before is complete.

A later change of a partition starts where an earlier one ends, so it can be judged only then. In batch mode a plan has
one wave. Reassignments are complete when no replica is being added or removed and the whole target is in sync.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import poll_until, sync, with_retries
from jobs.adapters.zookeeper.lease import Lease
from jobs.core.errors import StillRunningError
from jobs.core.units import Part
from jobs.preconditions.changes import judge_for_admin
from jobs.preconditions.operations import judge_tasks
from jobs.preconditions.reassignments import reassignment_statuses
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome
from jobs.runtime.progress import progress
from planner.reassignment.cancellation import ReassignmentStatus
from schemas.enums import Outcome
from schemas.rows import Change, Key, PlanRow, changes_among, operations_among

R = TypeVar("R", bound=PlanRow)

PREVIOUS_WAVE_SECONDS: Final = 15.0
"""Seconds for the wave before to show in ZooKeeper: Kafka's controller answers after it has written a request."""

_MIN_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
"""Maximum seconds between two polls of what moves."""


def by_wave(rows: Iterable[R]) -> Iterator[list[R]]:
    """Yield the changes or operations of each wave, in order."""
    for _, wave in groupby(sorted(rows, key=attrgetter("wave")), key=attrgetter("wave")):
        yield list(wave)


def evaluate_waves(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    """Return the pending changes and the outcomes of the others.

    If a partition has a pending or running change in an earlier wave, its later changes are pending without being
    judged. If a partition has reached a later wave, its earlier changes count as applied.
    """
    pending: list[Change] = []
    verdicts: list[RowOutcome] = []
    reached_wave: dict[Key, int] = {}
    busy: set[Key] = set()
    for wave in by_wave(changes):
        pending_in_wave, outcomes = judge_for_admin(client, [change for change in wave if change.key not in busy])
        pending += pending_in_wave + [change for change in wave if change.key in busy]
        verdicts += outcomes
        reached = [*pending_in_wave, *(verdict.change for verdict in outcomes if verdict.outcome is Outcome.APPLIED)]
        reached_wave |= {change.key: change.wave for change in reached}
        running = (verdict.change for verdict in outcomes if verdict.is_running)
        busy |= {change.key for change in (*pending_in_wave, *running)}
    return pending, [_as_passed(verdict, reached_wave.get(verdict.change.key, -1)) for verdict in verdicts]


def _as_passed(verdict: RowOutcome, reached: int) -> RowOutcome:
    if verdict.outcome is not Outcome.STALE or verdict.change.wave >= reached:
        return verdict
    return RowOutcome(verdict.change, Outcome.APPLIED, f"found applied: its partition has reached wave {reached}")


def recheck_wave(
    client: KazooClient, ledger: CommitLog, wave: Sequence[PlanRow], timeout_seconds: float = PREVIOUS_WAVE_SECONDS
) -> list[PlanRow]:
    """Read again just before requesting; return the pending rows of a wave, and record the outcomes of the others.

    If changes of the waves before do not show yet, up to `timeout_seconds` are spent waiting for them.
    """
    refused = {verdict.change.key for verdict in ledger.outcomes if verdict.outcome is not Outcome.APPLIED}
    ledger.judge(
        RowOutcome(change, Outcome.SKIPPED, f"its change before wave {change.wave} was not applied")
        for change in wave
        if change.key in refused
    )
    candidates = [change for change in wave if change.key not in refused]
    tasks, changes = operations_among(candidates), changes_among(candidates)
    pending, verdicts = poll_until(
        lambda: _reevaluate(client, changes), lambda judged: not _any_stale(judged[1]), timeout_seconds
    )
    pending_tasks, task_outcomes = judge_tasks(client, tasks)
    ledger.judge([*verdicts, *task_outcomes])
    return [*pending, *pending_tasks]


def _reevaluate(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    sync(client)
    return judge_for_admin(client, changes)


def _any_stale(verdicts: Sequence[RowOutcome]) -> bool:
    return any(verdict.outcome is Outcome.STALE for verdict in verdicts)


def wait_complete(client: KazooClient, ledger: CommitLog, moves: Sequence[Change], on_poll: Callable[[], None]) -> int:
    """Wait until these reassignments are complete; return how many are.

    A reassignment that another client has turned elsewhere has failed, and the failure is recorded. `on_poll` may
    raise, for instance when the time to wait is over.
    """
    failed = {verdict.change.key for verdict in ledger.outcomes if verdict.outcome is not Outcome.APPLIED}
    unfinished = [move for move in moves if move.key not in failed]
    total, complete, pause = len(unfinished), len(unfinished), _MIN_PAUSE_SECONDS
    waves = sorted({move.wave for move in unfinished})
    step = f"replicas move, wave {', '.join(map(str, waves))}"
    with progress(step, lambda: Part(total - len(unfinished), total, "complete")):
        while unfinished:
            statuses = with_retries(lambda: _read_wave(client, ledger, unfinished))  # noqa: B023 - called at once
            diverged = [(move, detail) for move, status, detail in statuses if status is ReassignmentStatus.DIVERGED]
            failures = [_failed_move(ledger, move, detail) for move, detail in diverged]
            ledger.replace_outcomes(failures)
            complete -= len(failures)
            unfinished = [move for move, status, _ in statuses if status is ReassignmentStatus.IN_PROGRESS]
            if unfinished:
                on_poll()
                time.sleep(pause)
                pause = min(_MAX_PAUSE_SECONDS, 1.5 * pause)
    return complete


def _failed_move(ledger: CommitLog, move: Change, detail: str) -> RowOutcome:
    """Outcome of a running reassignment that was turned back; for a cancelled plan that is expected."""
    if ledger.is_closed:
        return RowOutcome(move, Outcome.STALE, f"turned back because the plan was cancelled: {detail}")
    return RowOutcome(move, Outcome.FAILED, f"it was in progress and no longer is: {detail}")


def _read_wave(
    client: KazooClient, ledger: CommitLog, moves: Sequence[Change]
) -> list[tuple[Change, ReassignmentStatus, str]]:
    sync(client)
    return list(reassignment_statuses(client, moves, ledger.plan))


def make_poll_hook(max_wait: float | None, ledger: CommitLog, lease: Lease) -> Callable[[], None]:
    """Return the function that a commit calls between two polls of what moves.

    If the plan is cancelled, it hands the lease to the cancellation. It raises StillRunningError once `max_wait`
    seconds from now are over; None waits without a limit.
    """
    deadline = None if max_wait is None else time.monotonic() + max_wait

    def on_poll() -> None:
        if ledger.is_closed:
            lease.release()
        if deadline is not None and time.monotonic() >= deadline:
            raise StillRunningError(f"--max-wait {max_wait:g} s is over{resume_hint(ledger)}")

    return on_poll


def resume_hint(ledger: CommitLog) -> str:
    """Say how to continue once this command no longer waits."""
    plan = ledger.plan.plan_id
    return (
        ": requested changes continue in the cluster; "
        f"`surveyor commit {plan} --apply` continues the plan, `surveyor cancel {plan}` turns it back"
    )
