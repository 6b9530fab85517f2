"""Waves of a plan in admin mode: changes of a wave are requested together, after the wave before is complete.

A later change of a partition starts where an earlier one ends, so it can be judged only then. In batch mode a plan has
one wave.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from jobs.preconditions.admin_changes import judge_for_admin
from jobs.preconditions.planned_registrations import NO_REGISTRATIONS, PlannedRegistrations
from schemas import reasons
from schemas.current_state import CurrentState
from schemas.enums import Action, Outcome
from schemas.plan import RowOutcome
from schemas.rows import Change, Key, PlanRow
from schemas.znodes import MalformedZnodeError

R = TypeVar("R", bound=PlanRow)


def by_wave(rows: Iterable[R]) -> Iterator[list[R]]:
    """Yield the changes or operations of each wave, in order."""
    for _, wave in groupby(sorted(rows, key=attrgetter("wave")), key=attrgetter("wave")):
        yield list(wave)


def evaluate_waves(
    changes: Sequence[Change], current: CurrentState, registrations: PlannedRegistrations = NO_REGISTRATIONS
) -> tuple[list[Change], list[RowOutcome]]:
    """Return the pending changes and the outcomes of the others.

    If a partition has a pending or running change in an earlier wave, its later changes are pending without being
    judged. If a partition has reached a later wave, its earlier changes count as applied. A leader that is the planned
    one alone does not show that: it may lead because another broker failed.
    """
    pending: list[Change] = []
    outcomes: list[RowOutcome] = []
    reached_wave: dict[Key, int] = {}
    busy: set[Key] = set()
    for wave in by_wave(changes):
        pending_in_wave, outcomes_of_wave = judge_for_admin(
            [change for change in wave if change.key not in busy], current, registrations
        )
        pending += pending_in_wave + [change for change in wave if change.key in busy]
        outcomes += outcomes_of_wave
        reached = [
            *pending_in_wave,
            *(outcome.change for outcome in outcomes_of_wave if _is_reached(outcome, current)),
        ]
        reached_wave |= {change.key: change.wave for change in reached}
        running = (outcome.change for outcome in outcomes_of_wave if outcome.is_running)
        busy |= {change.key for change in (*pending_in_wave, *running)}
    return pending, [_as_passed(outcome, reached_wave.get(outcome.change.key, -1)) for outcome in outcomes]


def _is_reached(outcome: RowOutcome, current: CurrentState) -> bool:
    """Return whether a change is applied, and an election's on the replicas that it was planned for."""
    change = outcome.change
    if outcome.outcome is not Outcome.APPLIED:
        return False
    if not isinstance(change, Change) or change.action == Action.REASSIGN:
        return True
    try:
        assignment = current.partitions[change.key].assignment
    except MalformedZnodeError:
        return False
    return assignment is not None and assignment.replicas == change.replicas_after


def _as_passed(outcome: RowOutcome, reached: int) -> RowOutcome:
    if outcome.outcome is not Outcome.STALE or outcome.change.wave >= reached:
        return outcome
    return RowOutcome(outcome.change, Outcome.APPLIED, reasons.PASSED_WAVE.say(wave=reached))
