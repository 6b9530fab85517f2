"""What changed between the last check of a partition and the request that was accepted, where nothing has a version."""

from collections.abc import Sequence

from jobs.preconditions.changes import is_other_topic, other_topic_reason
from jobs.preconditions.planned_registrations import PlannedRegistrations, current_registration, is_unversioned
from planner.reassignment.partition_registration import (
    PartitionRegistration,
    unexplained_by_election,
    unexplained_by_move,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_towards
from schemas import reasons
from schemas.current_state import CurrentState
from schemas.enums import Action, Outcome
from schemas.plan import RowOutcome
from schemas.rows import Change


def read_back(
    changes: Sequence[Change], current: CurrentState, registrations: PlannedRegistrations
) -> list[RowOutcome]:
    """Return the outcomes of accepted changes whose partitions show more than the request explains.

    What changed between the last check and the request is found so, where nothing has a version.
    """
    outcomes = []
    for change in changes:
        partition = current.partitions[change.key]
        planned, now = registrations.of(change), current_registration(partition)
        if now is not None and change.topic_id is not None and is_other_topic(change, partition.topic):
            reason = other_topic_reason(change, partition.topic)
            outcomes.append(RowOutcome(change, Outcome.FAILED, reasons.OTHER_TOPIC_ACCEPTED.say(cause=reason)))
            continue
        if planned is None or not is_unversioned(change):
            continue
        if now is None:
            outcomes.append(RowOutcome(change, Outcome.UNKNOWN, reasons.ACCEPTED_UNREAD.say()))
        elif change.action == Action.REASSIGN:
            if (found := unexplained_by_move(planned, now, change.replicas_after)) is not None:
                status = status_towards(change.replicas_after, now.assignment)
                outcome = Outcome.FAILED if status is ReassignmentStatus.DIVERGED else Outcome.APPLIED
                outcomes.append(RowOutcome(change, outcome, reasons.ACCEPTED_CHANGED.say(differences=found)))
        elif (found := _unexplained_election(planned, now, change)) is not None:
            outcome = Outcome.APPLIED if now.leader == change.leader_after else Outcome.FAILED
            outcomes.append(RowOutcome(change, outcome, reasons.ACCEPTED_CHANGED.say(differences=found)))
    return outcomes


def _unexplained_election(planned: PartitionRegistration, now: PartitionRegistration, change: Change) -> str | None:
    unclean = change.action == Action.ELECT
    return unexplained_by_election(planned, now, change.leader_after, unclean=unclean)
