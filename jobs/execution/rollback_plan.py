"""The input of a rollback: each partition that a plan moved, and the steps back from its current assignment.

`planner.reassignment.partition_rollback` decides about one partition. The former assignment of a partition comes from
the plan's own changes, or from another snapshot if one is given.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from jobs.core.errors import RefusedError
from planner.reassignment.partition_rollback import (
    ClusterFacts,
    RollbackRejection,
    RollbackTarget,
    roll_back_partition,
    steps_by_partition,
    steps_of,
    with_waves_numbered,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_of
from schemas import reasons
from schemas.enums import Action, LintCode, PlanStatus, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.plan import Plan, Transition
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, RejectionRecord
from schemas.text import LINES_SHOWN, partition_name, pluralise

NOT_REQUESTED: Final = RollbackRejection(
    RejectionCode.NOT_REQUESTED, "no commit of the plan requested it, so the plan moved nothing here"
)

_NOT_ROLLED_BACK: Final = {
    PlanStatus.PLANNED: "nothing of it was committed",
    PlanStatus.REFUSED: "nothing of it was committed",
    PlanStatus.COMMITTING: "run `surveyor cancel` first, so that no commit continues it",
    PlanStatus.PARTIAL: "run `surveyor cancel` first, so that no commit continues it",
}


@dataclass(frozen=True, slots=True)
class Rollback:
    """The changes that move a plan's partitions back, and the partitions without such changes."""

    changes: list[Change]
    rejected: dict[Key, RollbackRejection]

    @property
    def rejections(self) -> list[RejectionRecord]:
        return [
            RejectionRecord(
                topic=topic, partition=partition, action=Action.REASSIGN.value, code=code.value, reason=reason
            )
            for (topic, partition), (code, reason) in sorted(self.rejected.items())
        ]

    @property
    def is_back(self) -> bool:
        """Whether every partition has its former assignment."""
        codes = {code for code, _ in self.rejected.values()}
        return not self.changes and codes <= {RejectionCode.ALREADY_ASSIGNED, RejectionCode.NOT_REQUESTED}


def refuse_without_snapshot(plan: Plan) -> None:
    """Raise RefusedError unless a plan can be rolled back, as far as the tables show."""
    if not plan.row.traits.moves_replicas:
        raise RefusedError(
            f"plan {plan.title} is of kind {plan.row.kind}: only reassignments are rolled back; "
            "a drain ends by `surveyor plan undrain`, other plans by planning the opposite",
        )
    if plan.row.status not in Transition.ROLL_BACK.before:
        raise RefusedError(f"plan {plan.title} is {plan.row.status}: {_NOT_ROLLED_BACK[PlanStatus(plan.row.status)]}")


def find_rollback(
    plan: Plan,
    partitions: Mapping[Key, PartitionInfo],
    topics: Mapping[str, TopicInfo],
    *,
    requested: Collection[Key],
    destination_of: Callable[[Key], RollbackTarget | RollbackRejection],
    facts: ClusterFacts,
) -> Rollback:
    """Return the steps back for the plan's partitions; the plan no longer moves any of them (`refuse_running`).

    `partitions` and `topics` have the rows of a snapshot as they are now. `requested` has the partitions that commits
    of the plan have requested.
    """
    steps_by_key = steps_by_partition(plan.changes)
    elected = {change.key for change in plan.changes if change.action == Action.ELECT_PREFERRED}
    changes: list[Change] = []
    rejected: dict[Key, RollbackRejection] = {}
    for key, steps_forward in steps_by_key.items():
        destination = destination_of(key) if key in requested else NOT_REQUESTED
        if isinstance(destination, RollbackRejection):
            rejected[key] = destination
            continue
        current_rows = partitions.get(key), topics.get(key[0])
        steps = roll_back_partition(steps_forward, *current_rows, facts, destination, was_elected=key in elected)
        if isinstance(steps, RollbackRejection):
            rejected[key] = steps
        else:
            changes += steps
    return Rollback(with_waves_numbered(changes), rejected)


@dataclass(frozen=True, slots=True)
class Destinations:
    """The target of each partition: its assignment before the plan's first change, or the one in a snapshot."""

    name: str
    """The snapshot, for messages."""
    then: Mapping[Key, ReplicaAssignment] | None = None
    """The assignments in the snapshot; None if those before the plan's first change are the targets."""
    recreated: Collection[str] = ()
    """Topics of the plan that the snapshot has with another id."""

    def __call__(self, key: Key) -> RollbackTarget | RollbackRejection:
        """Return the target of a partition, or why it has none."""
        if self.then is None:
            return RollbackTarget(None, self.name)
        if key[0] in self.recreated:
            return RollbackRejection(RejectionCode.UNKNOWN_TOPIC, reasons.CREATED_AGAIN.render(snapshot=self.name))
        assignment = self.then.get(key)
        if assignment is None:
            return RollbackRejection(RejectionCode.UNKNOWN_PARTITION, f"{self.name} does not contain it")
        if assignment.is_being_reassigned:
            return RollbackRejection(
                RejectionCode.REASSIGNMENT_IN_PROGRESS,
                f"{self.name} was taken during its reassignment, so it has no target to restore",
            )
        if not assignment.replicas:
            return RollbackRejection(LintCode.NO_REPLICAS, f"{self.name} shows no replicas")
        return RollbackTarget(assignment.replicas, self.name)


def refuse_running(plan: Plan, partitions: Mapping[Key, PartitionInfo]) -> None:
    """Raise RefusedError while the plan still moves some of its partitions."""
    steps_by_key = steps_by_partition(plan.changes)
    running = [
        partition_name(topic, partition)
        for (topic, partition), row in partitions.items()
        if (steps := steps_by_key.get((topic, partition)))
        and status_of(steps_of(steps), row.assignment)[0] is ReassignmentStatus.IN_PROGRESS
    ]
    if running:
        overflow = f" and {len(running) - LINES_SHOWN} more" if len(running) > LINES_SHOWN else ""
        raise RefusedError(
            f"plan {plan.title} still moves {pluralise(len(running), 'partition')}: "
            f"{', '.join(running[:LINES_SHOWN])}{overflow}; "
            f"`surveyor cancel {plan.plan_id}` cancels these; then roll back the rest",
        )
