"""The input of a rollback: each partition that a plan moved, and the steps back from its current assignment.

`planner.reassignment.partition_rollback` decides about one partition. The former assignment of a partition comes from
the plan's own changes, or from another snapshot if one is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobs.adapters.cluster_connections.interface import LiveCluster
from jobs.adapters.delta.warehouse import Warehouse, values_of
from jobs.adapters.zookeeper.migration_signs import refuse_migration
from jobs.core.errors import RefusedError
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.brokers_last_seen import brokers_seen_by, rack_of_each
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.plans.commit_log import requested_changes
from jobs.repositories.plans.repository import Plan, refuse_edited
from jobs.repositories.snapshots import find_snapshot, last_snapshot, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.settings import Settings
from planner.reassignment.partition_rollback import (
    ClusterFacts,
    Rejection,
    RollbackTarget,
    roll_back_partition,
    steps_by_partition,
    steps_of,
    with_waves_numbered,
)
from planner.reassignment.reassignment_status import ReassignmentStatus, status_of
from schemas import reasons
from schemas.enums import Action, LintCode, PlanKind, PlanStatus, RejectionCode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, RejectionRecord, Topic
from schemas.text import LINES_SHOWN, partition_name, pluralise

FORMER_COLUMNS: Final = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")

NOT_ASKED_FOR: Final = Rejection(RejectionCode.NOT_ASKED_FOR, reasons.NOT_ASKED_FOR.say())

NOT_ROLLED_BACK: Final = {
    PlanStatus.PLANNED: "nothing of it was committed",
    PlanStatus.REFUSED: "nothing of it was committed",
    PlanStatus.COMMITTING: "run `surveyor cancel` first, so that no commit continues it",
    PlanStatus.PARTIAL: "run `surveyor cancel` first, so that no commit continues it",
}


@dataclass(frozen=True, slots=True)
class Rollback:
    """The changes that move a plan's partitions back, and the partitions without such changes."""

    state: LiveCluster
    snapshot_id: int
    changes: list[Change]
    rejected: dict[Key, Rejection]

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
        return not self.changes and codes <= {RejectionCode.ALREADY_ASSIGNED, RejectionCode.NOT_ASKED_FOR}


def refuse_without_snapshot(plan: Plan) -> None:
    """Raise RefusedError unless a plan can be rolled back, as far as the tables show."""
    if plan.row.kind != PlanKind.REASSIGN:
        raise RefusedError(
            f"plan {plan.title} is of kind {plan.row.kind}: only reassignments are rolled back; "
            "a drain ends by `surveyor plan undrain`, other plans by planning the opposite",
        )
    if plan.row.status in NOT_ROLLED_BACK:
        raise RefusedError(f"plan {plan.title} is {plan.row.status}: {NOT_ROLLED_BACK[PlanStatus(plan.row.status)]}")
    refuse_edited(plan)


def find_rollback(
    settings: Settings,
    plan: Plan,
    state: LiveCluster,
    partitions: Mapping[Key, PartitionInfo],
    topics: Mapping[str, TopicInfo],
    *,
    to_snapshot: int | None,
) -> Rollback:
    """Find the steps back of the plan's partitions; raise RefusedError while the plan still moves some.

    `partitions` and `topics` have the rows of a snapshot as they are now.
    """
    warehouse, steps_by_key = settings.warehouse, steps_by_partition(plan.changes)
    elected = {change.key for change in plan.changes if change.action == Action.ELECT_PREFERRED}
    requested = {(topic, partition) for _, topic, partition in requested_changes(warehouse, plan.plan_id)}
    destination_of = _destinations(warehouse, plan, to_snapshot, sorted({topic for topic, _ in steps_by_key}))
    refuse_migration(state.migration)
    refuse_other_cluster(settings, plan, state)
    _refuse_running(plan, steps_by_key, partitions)
    facts = _cluster_facts(warehouse, state)
    changes: list[Change] = []
    rejected: dict[Key, Rejection] = {}
    for key, steps_forward in steps_by_key.items():
        destination = destination_of(key) if key in requested else NOT_ASKED_FOR
        if isinstance(destination, Rejection):
            rejected[key] = destination
            continue
        current_rows = partitions.get(key), topics.get(key[0])
        steps = roll_back_partition(steps_forward, *current_rows, facts, destination, was_elected=key in elected)
        if isinstance(steps, Rejection):
            rejected[key] = steps
        else:
            changes += steps
    return Rollback(state, _snapshot_id(plan, to_snapshot), with_waves_numbered(changes), rejected)


def _snapshot_id(plan: Plan, to_snapshot: int | None) -> int:
    return int(plan.row.snapshot_id if to_snapshot is None else to_snapshot)


class _Destinations:
    """The target of each partition: its assignment before the plan's first change, or the one in a snapshot."""

    def __init__(
        self, name: str, then: Mapping[Key, ReplicaAssignment] | None, why_not: Mapping[str, Rejection]
    ) -> None:
        self.name = name
        self.then = then
        self.why_not = why_not

    def __call__(self, key: Key) -> RollbackTarget | Rejection:
        if self.then is None:
            return RollbackTarget(None, self.name)
        if key[0] in self.why_not:
            return self.why_not[key[0]]
        assignment = self.then.get(key)
        if assignment is None:
            return Rejection(RejectionCode.UNKNOWN_PARTITION, reasons.NOT_IN_TARGET.say(target=self.name))
        if assignment.is_moving:
            return Rejection(RejectionCode.REASSIGNMENT_IN_PROGRESS, reasons.MOVED_IN_TARGET.say(target=self.name))
        if not assignment.replicas:
            return Rejection(LintCode.NO_REPLICAS, reasons.NO_REPLICAS_IN_TARGET.say(target=self.name))
        return RollbackTarget(assignment.replicas, self.name)


def _destinations(warehouse: Warehouse, plan: Plan, to_snapshot: int | None, topics: list[str]) -> _Destinations:
    name = f"snapshot {_snapshot_id(plan, to_snapshot)}"
    if to_snapshot is None:
        return _Destinations(name, None, {})
    snapshot = find_snapshot(warehouse, to_snapshot)
    topic_filter = ("topic", "in", topics)
    former = table_as_of(warehouse, snapshot, "partitions", topic_filter, columns=FORMER_COLUMNS)
    ids_then = {row.topic: row.topic_id for row in rows_as_of(warehouse, snapshot, Topic, topic_filter)}
    ids = {change.topic: change.topic_id for change in plan.changes}
    recreated = Rejection(RejectionCode.UNKNOWN_TOPIC, reasons.CREATED_AGAIN.say(snapshot=name))
    rejected_topics = {
        topic: recreated for topic, id_then in ids_then.items() if id_then and ids[topic] and id_then != ids[topic]
    }
    then = {
        (topic, partition): ReplicaAssignment(replicas, adding, removing)
        for topic, partition, replicas, adding, removing in values_of(former, *FORMER_COLUMNS)
    }
    return _Destinations(name, then, rejected_topics)


def _refuse_running(
    plan: Plan, steps_by_key: Mapping[Key, list[Change]], partitions: Mapping[Key, PartitionInfo]
) -> None:
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


def _cluster_facts(warehouse: Warehouse, state: LiveCluster) -> ClusterFacts:
    newest = last_snapshot(warehouse)
    return ClusterFacts(
        eligible={row.broker_id for row in state.brokers if row.understood},
        live=state.live,
        drained=drained_brokers(warehouse),
        racks=rack_of_each(state.brokers, brokers_seen_by(warehouse, newest) if newest else {}),
        deleting=state.deleting,
        min_isr=default_min_isr_of(warehouse, newest),
    )
