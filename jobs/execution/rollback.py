"""Rollback of a plan: plan the reverse, store it as a separate plan, and mark the plan once all of it is back.

`planner.reassignment.partition_rollback` decides about one partition. The former assignment of a partition comes from
the plan's own changes, or from another snapshot if one is given.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from jobs.adapters.clusters.interface import Cluster, ClusterMetadata
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.plans import after_planning
from jobs.console_output.plan_review import plan_lines, plan_warnings
from jobs.core.arrow_rows import values_of
from jobs.core.errors import ExitCode, RefusedError, UsageError
from jobs.core.migration_refusal import refuse_migration
from jobs.execution.rollback_load import load_of_rollback
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.brokers_last_seen import brokers_seen_by
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.plans.begun_plans import begun_plan
from jobs.repositories.plans.commit_log import CommitLog, requested_changes
from jobs.repositories.plans.names import Alias, give_name, plan_named, refuse_other_parameters
from jobs.repositories.plans.plan_rows import InMemoryRows, PlanHeader, parameters_json
from jobs.repositories.plans.plans_reader import find_plan, read_plan, refuse_edited, rejection_codes
from jobs.repositories.plans.plans_writer import apply_transition
from jobs.repositories.plans.store import result_of, store
from jobs.repositories.racks import rack_of_each
from jobs.repositories.snapshots import find_snapshot, last_snapshot, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult, log
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import stated_command
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
from schemas.enums import Action, LintCode, Outcome, PlanKind, PlanStatus, RejectionCode, Step
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key, RejectionRecord, Topic
from schemas.stored_plan import Plan, Transition
from schemas.text import LINES_SHOWN, partition_name, pluralise

_FORMER_COLUMNS: Final = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")

NOT_REQUESTED: Final = RollbackRejection(
    RejectionCode.NOT_REQUESTED, "no commit of the plan requested it, so the plan moved nothing here"
)

_RESTORED: Final = frozenset({RejectionCode.ALREADY_ASSIGNED, RejectionCode.NOT_REQUESTED})
"""Codes of partitions that have their former assignment."""

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
        return not self.changes and codes <= _RESTORED


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


def plan_rollback(
    settings: Settings, plan: str, to_snapshot: int | None, alias: Alias, *, detailed: bool
) -> CommandResult:
    """Plan the rollback of a plan, and return what shows it."""
    original = read_plan(settings.warehouse, plan)
    refuse_without_snapshot(original)
    refuse_edited(original)
    if to_snapshot == original.row.snapshot_id:
        to_snapshot = None  # the plan's rows contain this snapshot's assignments, even if it was dropped
    rollback = _existing_plan(settings, original, to_snapshot, alias)
    if rollback is None:
        with settings.connect() as cluster:
            rollback = _make_plan(cluster, settings, original, to_snapshot, alias)
    row = find_plan(settings.warehouse, rollback.plan_id)
    return CommandResult(
        result_of(row) | {"rollback_of": original.plan_id, "rollback_of_status": original.row.status},
        *plan_lines(settings, row),
        steps=after_planning(settings, row, alias.name or rollback.plan_id, due=bool(row.changes)),
        warnings=plan_warnings(settings.warehouse, row),
        exit_code=ExitCode.CHANGES if detailed and rollback.changes else ExitCode.DONE,
    )


def commit_rollback(settings: Settings, planned: CommandResult, commit: Callable[[], CommandResult]) -> CommandResult:
    """Commit a rollback that was just planned; the plan that it undoes is marked once every partition is restored.

    `commit` is `commit_planned` with what was given on the command line.
    """
    done = CommandResult(planned.fields, steps=[], warnings=planned.warnings)
    if planned.fields["changes"]:
        done = commit()
    else:
        with settings.connect() as cluster:
            close_rolled_back(cluster, settings, read_plan(settings.warehouse, planned.fields["plan_id"]))
    original = find_plan(settings.warehouse, planned.fields["rollback_of"])
    is_back = original.status == PlanStatus.ROLLED_BACK
    later = f"; rolled_back once `surveyor verify {planned.fields['plan_id']}` finds every partition restored"
    if not planned.fields["changes"]:
        codes = rejection_codes(settings.warehouse, planned.fields["plan_id"])
        if codes - _RESTORED - {RejectionCode.REASSIGNMENT_IN_PROGRESS}:
            done.exit_code, later = ExitCode.REFUSED, "; nothing was committed: every partition was rejected"
    done.lines = *done.lines, f"plan {original.title} is {original.status}{'' if is_back else later}"
    done.fields |= {"rollback_of_status": original.status, "rolled_back": is_back}
    return done


def _parameters(original: Plan, to_snapshot: int | None) -> dict[str, Any]:
    return {"rollback_of": original.plan_id, "to_snapshot": _target_snapshot(original, to_snapshot)}


def _existing_plan(settings: Settings, original: Plan, to_snapshot: int | None, alias: Alias) -> Plan | None:
    """Return the plan that has the name already; None if there is none, or if it will be replaced."""
    existing = None if alias.replaces else plan_named(settings.warehouse, alias.name)
    if not existing or not alias.name:
        return None if alias.replaces else _begun(settings, original, to_snapshot, alias)
    refuse_other_parameters(existing, alias.name, PlanKind.REASSIGN, _parameters(original, to_snapshot), None)
    log(f"surveyor: {alias.name} is this plan already; no new plan was made")
    return read_plan(settings.warehouse, existing.plan_id)


def _begun(settings: Settings, original: Plan, to_snapshot: int | None, alias: Alias) -> Plan | None:
    """Return the rollback of the same plan whose commit can go on."""
    goal = (PlanKind.REASSIGN.value, parameters_json(_parameters(original, to_snapshot)))
    max_age = settings.conf.limits.max_plan_age_hours * 3600
    begun = begun_plan(settings.warehouse, max_age, lambda plan: (plan.kind, plan.parameters) == goal)
    if begun is None:
        return None
    log(f"surveyor: rollback {begun.title} of the same plan is {begun.status}, and is continued")
    if alias.name is not None:
        give_name(settings.warehouse, begun.plan_id, alias)
    return read_plan(settings.warehouse, begun.plan_id)


def _make_plan(cluster: Cluster, settings: Settings, original: Plan, to_snapshot: int | None, alias: Alias) -> Plan:
    """Make the plan and store it."""
    warehouse = settings.warehouse
    state = cluster.read_cluster()
    rollback = _read_rollback(state, cluster, settings, original, to_snapshot)
    content = PlanHeader(
        kind=PlanKind.REASSIGN,
        parameters=_parameters(original, to_snapshot),
        snapshot_id=_target_snapshot(original, to_snapshot),
        cluster_id=state.cluster_id,
        broker_epochs=state.live,
        command=stated_command(settings, "rollback", original.called),
    )
    warehouse.ensure_tables()
    rows = InMemoryRows(warehouse=warehouse, changes=rollback.changes, rejections=rollback.rejections)
    plan = store(warehouse, alias, content, rows, partial(load_of_rollback, settings, rollback.changes))
    return read_plan(warehouse, plan.plan_id)


def _read_rollback(
    state: ClusterMetadata, cluster: Cluster, settings: Settings, plan: Plan, to_snapshot: int | None
) -> Rollback:
    """Read the plan's partitions and find the steps back; see `find_rollback`.

    Raise RefusedError first if the cluster, or a move of the plan that still runs, forbids a rollback.
    """
    refuse_migration(state.migration)
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    warehouse, topic_names = settings.warehouse, sorted({topic for topic, _ in steps_by_partition(plan.changes)})
    reading = cluster.read_topics(topic_names)
    partitions = {partition.key: partition for partition in reading.partitions}
    refuse_running(plan, partitions)
    requested = {(topic, partition) for _, topic, partition in requested_changes(warehouse, plan.plan_id)}
    return find_rollback(
        plan,
        partitions,
        {topic.topic: topic for topic in reading.topics},
        requested=requested,
        destination_of=_destinations(warehouse, plan, to_snapshot, topic_names),
        facts=_cluster_facts(warehouse, state),
    )


def _target_snapshot(plan: Plan, to_snapshot: int | None) -> int:
    """Return the snapshot whose assignments a rollback restores: the plan's own unless another one is given."""
    return int(plan.row.snapshot_id if to_snapshot is None else to_snapshot)


def _destinations(warehouse: Warehouse, plan: Plan, to_snapshot: int | None, topics: list[str]) -> Destinations:
    name = f"snapshot {_target_snapshot(plan, to_snapshot)}"
    if to_snapshot is None:
        return Destinations(name)
    snapshot = find_snapshot(warehouse, to_snapshot)
    topic_filter = ("topic", "in", topics)
    former = table_as_of(warehouse, snapshot, "partitions", topic_filter, columns=_FORMER_COLUMNS)
    then = {
        (topic, partition): ReplicaAssignment(replicas, adding, removing)
        for topic, partition, replicas, adding, removing in values_of(former, *_FORMER_COLUMNS)
    }
    ids = {change.topic: change.topic_id for change in plan.changes}
    ids_then = {row.topic: row.topic_id for row in rows_as_of(warehouse, snapshot, Topic, topic_filter)}
    recreated = {topic for topic, id_then in ids_then.items() if id_then and ids[topic] and id_then != ids[topic]}
    return Destinations(name, then, recreated)


def _cluster_facts(warehouse: Warehouse, state: ClusterMetadata) -> ClusterFacts:
    newest = last_snapshot(warehouse)
    return ClusterFacts(
        eligible={row.broker_id for row in state.brokers if row.understood},
        live=state.live,
        drained=drained_brokers(warehouse),
        racks=rack_of_each(state.brokers, brokers_seen_by(warehouse, newest) if newest else {}),
        deleting=state.deleting,
        min_isr=default_min_isr_of(warehouse, newest),
    )


def close_rolled_back(cluster: Cluster, settings: Settings, plan: Plan) -> str | None:
    """If `plan` is a rollback, mark the plan that it undoes as rolled back once all of it is.

    Return why it could not be marked, None otherwise.
    """
    parameters = plan.row.options
    if "rollback_of" not in parameters:
        return None
    try:
        undone, restored = read_plan(settings.warehouse, parameters["rollback_of"]), parameters["to_snapshot"]
        to_snapshot = None if restored == undone.row.snapshot_id else restored
        if undone.row.status not in Transition.ROLL_BACK.before - {PlanStatus.ROLLED_BACK}:
            return None
        if _read_rollback(cluster.read_cluster(), cluster, settings, undone, to_snapshot).is_back:
            apply_transition(settings.warehouse, undone.plan_id, Transition.ROLL_BACK)
            commit_log = CommitLog.open(settings.warehouse, undone)
            commit_log.step(Step.ROLL_BACK, Outcome.APPLIED, f"all of it is as in snapshot {restored}")
    except (RefusedError, UsageError) as error:
        return f"plan {parameters['rollback_of']} was not marked rolled_back: {error}"
    return None


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
