"""Waves of a plan in admin mode: those of one are asked for together, the next when the one before has come about.

A later change of a partition starts where an earlier one ends, so it can be judged only then; in batch mode a plan has
one wave. Moves have come about when nothing is added or removed any more and the whole target is in sync.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import connected, poll_until, sync, with_retries
from jobs.adapters.zookeeper.lease import Lease
from jobs.core.errors import StillRunningError
from jobs.core.units import Part
from jobs.preconditions.changes import judge_for_admin
from jobs.preconditions.operations import judge_tasks
from jobs.preconditions.reassignments import reassignment_statuses
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import ReassignmentStatus
from schemas.enums import Outcome
from schemas.rows import Change, Key, PlanRow, changes_among, operations_among

R = TypeVar("R", bound=PlanRow)

PREVIOUS_WAVE_SECONDS: Final = 15.0
"""Seconds for the wave before to be seen in ZooKeeper: Kafka's controller answers once it has written a request."""

_MIN_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
"""Seconds between two looks at what moves."""


def by_wave(rows: Iterable[R]) -> Iterator[list[R]]:
    """The changes or operations of each wave, in order."""
    for _, wave in groupby(sorted(rows, key=attrgetter("wave")), key=attrgetter("wave")):
        yield list(wave)


def evaluate_waves(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    """Tell what is due; a change whose partition has one due or running in an earlier wave is due after it, unjudged.

    A partition that has gone on to a later wave has its earlier ones behind it.
    """
    due: list[Change] = []
    verdicts: list[RowOutcome] = []
    begun: dict[Key, int] = {}
    ahead: set[Key] = set()
    for wave in by_wave(changes):
        due_now, judged = judge_for_admin(client, [change for change in wave if change.key not in ahead])
        due += due_now + [change for change in wave if change.key in ahead]
        verdicts += judged
        reached = [*due_now, *(verdict.change for verdict in judged if verdict.outcome is Outcome.APPLIED)]
        begun |= {change.key: change.wave for change in reached}
        running = (verdict.change for verdict in judged if verdict.is_running)
        ahead |= {change.key for change in (*due_now, *running)}
    return due, [_as_passed(verdict, begun.get(verdict.change.key, -1)) for verdict in verdicts]


def _as_passed(verdict: RowOutcome, reached: int) -> RowOutcome:
    if verdict.outcome is not Outcome.STALE or verdict.change.wave >= reached:
        return verdict
    return RowOutcome(verdict.change, Outcome.APPLIED, f"found applied: its partition has gone on to wave {reached}")


def recheck_wave(
    settings: Settings, ledger: CommitLog, wave: Sequence[PlanRow], timeout_seconds: float = PREVIOUS_WAVE_SECONDS
) -> list[PlanRow]:
    """Read again just before asking, and return what of a wave is due; the ledger is told of the rest.

    What the waves before did not bring about is waited for, `patience` seconds.
    """
    refused = {v.change.key for v in ledger.outcomes if v.outcome is not Outcome.APPLIED}
    ledger.judge(
        RowOutcome(change, Outcome.SKIPPED, f"its change before wave {change.wave} was not applied")
        for change in wave
        if change.key in refused
    )
    mine = [change for change in wave if change.key not in refused]
    tasks, changes = operations_among(mine), changes_among(mine)
    with connected(settings.zookeeper) as client:
        due, verdicts = poll_until(
            lambda: _reevaluate(client, changes), lambda judged: not _any_stale(judged[1]), timeout_seconds
        )
        due_tasks, settled = judge_tasks(client, tasks)
    ledger.judge([*verdicts, *settled])
    return [*due, *due_tasks]


def _reevaluate(client: KazooClient, changes: Sequence[Change]) -> tuple[list[Change], list[RowOutcome]]:
    sync(client)
    return judge_for_admin(client, changes)


def _any_stale(verdicts: Sequence[RowOutcome]) -> bool:
    return any(verdict.outcome is Outcome.STALE for verdict in verdicts)


def wait_complete(settings: Settings, ledger: CommitLog, moves: Sequence[Change], on_poll: Callable[[], None]) -> int:
    """Wait until these reassignments are complete, and tell how many are.

    Moves that somebody leads elsewhere meanwhile have failed, as the ledger is told. `between_looks` may raise, as when
    the time to wait is over.
    """
    failed = {v.change.key for v in ledger.outcomes if v.outcome is not Outcome.APPLIED}
    left = [move for move in moves if move.key not in failed]
    total, complete, pause = len(left), len(left), _MIN_PAUSE_SECONDS
    names = sorted({move.wave for move in left})
    step = f"replicas move, wave {', '.join(map(str, names))}"
    with connected(settings.zookeeper) as client, progress(step, lambda: Part(total - len(left), total, "complete")):
        while left:
            looked_at = with_retries(lambda: _read_wave(client, ledger, left))  # noqa: B023 - called at once
            diverged = [
                (move, detail) for move, standing, detail in looked_at if standing is ReassignmentStatus.DIVERGED
            ]
            lost = [_failed_move(ledger, move, detail) for move, detail in diverged]
            ledger.replace_outcomes(lost)
            complete -= len(lost)
            left = [move for move, standing, _ in looked_at if standing is ReassignmentStatus.IN_PROGRESS]
            if left:
                on_poll()
                time.sleep(pause)
                pause = min(_MAX_PAUSE_SECONDS, 1.5 * pause)
    return complete


def _failed_move(ledger: CommitLog, move: Change, detail: str) -> RowOutcome:
    """A move that was under way and is not any more; of a cancelled plan that is as it should be."""
    if ledger.is_closed:
        return RowOutcome(move, Outcome.STALE, f"turned back, as the plan was cancelled: {detail}")
    return RowOutcome(move, Outcome.FAILED, f"it was under way and is not any more: {detail}")


def _read_wave(
    client: KazooClient, ledger: CommitLog, moves: Sequence[Change]
) -> list[tuple[Change, ReassignmentStatus, str]]:
    sync(client)
    return list(reassignment_statuses(client, moves, ledger.plan))


def make_poll_hook(max_wait: float | None, ledger: CommitLog, lease: Lease) -> Callable[[], None]:
    """Make what a commit does between two looks at what moves.

    Who cancels its plan gets the lease. StillRunningError is raised once `max_wait` seconds from now are over; None:
    never.
    """
    until = None if max_wait is None else time.monotonic() + max_wait

    def between_looks() -> None:
        if ledger.is_closed:
            lease.release()
        if until is not None and time.monotonic() >= until:
            raise StillRunningError(f"--max-wait {max_wait:g} s is over{resume_hint(ledger)}")

    return between_looks


def resume_hint(ledger: CommitLog) -> str:
    """What to do once nobody waits any more."""
    plan = ledger.plan.plan_id
    return (
        ": what was asked for goes on in the cluster; "
        f"`surveyor commit {plan} --apply` goes on where it is, `surveyor cancel {plan}` turns it back"
    )
