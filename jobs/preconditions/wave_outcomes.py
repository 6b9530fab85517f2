"""Waves of a plan in admin mode: changes of a wave are requested together, after the wave before is complete.

A later change of a partition starts where an earlier one ends, so it can be checked only then. In batch mode a plan has
one wave. After a request was accepted, its partitions are read back, because Kafka's requests check no version.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from jobs.preconditions.admin_changes import check_for_admin
from jobs.preconditions.broker_assumptions import UNCHANGED, BrokersSincePlan
from jobs.preconditions.change_preconditions import Preconditions, is_other_topic, other_topic_reason
from jobs.preconditions.planned_registrations import (
    NO_REGISTRATIONS,
    PlannedRegistrations,
    current_registration,
    is_unversioned,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from planner.reassignment.registration_differences import (
    PartitionRegistration,
    unexplained_by_election,
    unexplained_by_move,
)
from schemas.current_state import CurrentState
from schemas.enums import Action, Outcome
from schemas.rows import Change, Key, PlanRow
from schemas.stored_plan import RowOutcome
from schemas.znode_codecs import MalformedZnodeError

R = TypeVar("R", bound=PlanRow)


def by_wave(rows: Iterable[R]) -> Iterator[list[R]]:
    """Yield the changes or operations of each wave, in order."""
    for _, wave in groupby(sorted(rows, key=attrgetter("wave")), key=attrgetter("wave")):
        yield list(wave)


def evaluate_waves(
    changes: Sequence[Change],
    current: CurrentState,
    registrations: PlannedRegistrations = NO_REGISTRATIONS,
    since: BrokersSincePlan = UNCHANGED,
) -> tuple[list[Change], list[RowOutcome]]:
    """Return the pending changes and the outcomes of the others.

    If a partition has a pending or running change in an earlier wave, only the brokers of its later changes are
    checked. If a partition has reached a later wave, its earlier changes count as applied. A leader that is the planned
    one alone does not show that: it may lead because another broker failed.
    """
    pending: list[Change] = []
    outcomes: list[RowOutcome] = []
    reached_wave: dict[Key, int] = {}
    busy: set[Key] = set()
    preconditions = Preconditions.in_admin_mode(changes, current, since)
    for wave in by_wave(changes):
        pending_in_wave, outcomes_of_wave = check_for_admin(
            [change for change in wave if change.key not in busy], current, registrations, preconditions
        )
        waiting, broken = preconditions.still_hold([change for change in wave if change.key in busy])
        pending += pending_in_wave + waiting
        outcomes += outcomes_of_wave + broken
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
    return RowOutcome(outcome.change, Outcome.APPLIED, f"found applied: its partition has reached wave {reached}")


def read_back(
    changes: Sequence[Change], current: CurrentState, registrations: PlannedRegistrations
) -> list[RowOutcome]:
    """Return the outcomes of accepted changes whose partitions show more than the request explains.

    Where nothing has a version, this finds changes between the last check and the request.
    """
    outcomes = []
    for change in changes:
        partition = current.partitions[change.key]
        planned, now = registrations.of(change), current_registration(partition)
        if now is not None and change.topic_id is not None and is_other_topic(change, partition.topic):
            reason = other_topic_reason(change, partition.topic)
            outcomes.append(RowOutcome(change, Outcome.FAILED, f"accepted for another topic: {reason}"))
            continue
        if planned is None or not is_unversioned(change):
            continue
        if now is None:
            outcomes.append(RowOutcome(change, Outcome.UNKNOWN, "accepted, and not understood when it was read back"))
            continue
        if change.action == Action.REASSIGN:
            found = unexplained_by_move(planned, now, change.replicas_after)
            is_done = status_towards(change.replicas_after, now.assignment) is not ReassignmentStatus.DIVERGED
        else:
            found = _unexplained_election(planned, now, change)
            is_done = now.leader == change.leader_after
        if found is not None:
            outcome = Outcome.APPLIED if is_done else Outcome.FAILED
            outcomes.append(RowOutcome(change, outcome, f"accepted; changed at the same time: {found}"))
    return outcomes


def _unexplained_election(planned: PartitionRegistration, now: PartitionRegistration, change: Change) -> str | None:
    unclean = change.action == Action.ELECT
    return unexplained_by_election(planned, now, change.leader_after, unclean=unclean)
