"""Whether a plan is rolled back: its partitions are read, and the plan is marked once all of them are back."""

from typing import Final

from jobs.adapters.cluster_connections.interface import ClusterReader, LiveCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import RefusedError, UsageError
from jobs.core.migration_signs import refuse_migration
from jobs.execution.rollback_plan import (
    Destinations,
    Rollback,
    find_rollback,
    refuse_running,
)
from jobs.preconditions.limits import refuse_other_cluster
from jobs.repositories.brokers_last_seen import brokers_seen_by, rack_of_each
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.plans.commit_log import CommitLog, requested_changes
from jobs.repositories.plans.plans_table import apply_transition
from jobs.repositories.plans.repository import read_plan
from jobs.repositories.snapshots import find_snapshot, last_snapshot, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.settings import Settings
from planner.reassignment.partition_rollback import ClusterFacts, steps_by_partition
from schemas.enums import Outcome, PlanStatus, Step
from schemas.plan import Plan, Transition
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Topic

FORMER_COLUMNS: Final = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")


def read_rollback(
    state: LiveCluster, reader: ClusterReader, settings: Settings, plan: Plan, to_snapshot: int | None
) -> Rollback:
    """Read the plan's partitions and find the steps back; see `find_rollback`.

    Raise RefusedError first if the cluster, or a move of the plan that still runs, forbids a rollback.
    """
    refuse_migration(state.migration)
    refuse_other_cluster(plan, state, settings.address, settings.address_option)
    warehouse, topic_names = settings.warehouse, sorted({topic for topic, _ in steps_by_partition(plan.changes)})
    reading = reader.read_topics(topic_names)
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


def target_snapshot(plan: Plan, to_snapshot: int | None) -> int:
    """Return the snapshot whose assignments a rollback restores: the plan's own unless another one is given."""
    return int(plan.row.snapshot_id if to_snapshot is None else to_snapshot)


def _destinations(warehouse: Warehouse, plan: Plan, to_snapshot: int | None, topics: list[str]) -> Destinations:
    name = f"snapshot {target_snapshot(plan, to_snapshot)}"
    if to_snapshot is None:
        return Destinations(name)
    snapshot = find_snapshot(warehouse, to_snapshot)
    topic_filter = ("topic", "in", topics)
    former = table_as_of(warehouse, snapshot, "partitions", topic_filter, columns=FORMER_COLUMNS)
    then = {
        (topic, partition): ReplicaAssignment(replicas, adding, removing)
        for topic, partition, replicas, adding, removing in values_of(former, *FORMER_COLUMNS)
    }
    ids = {change.topic: change.topic_id for change in plan.changes}
    ids_then = {row.topic: row.topic_id for row in rows_as_of(warehouse, snapshot, Topic, topic_filter)}
    recreated = {topic for topic, id_then in ids_then.items() if id_then and ids[topic] and id_then != ids[topic]}
    return Destinations(name, then, recreated)


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


def close_rolled_back(reader: ClusterReader, settings: Settings, plan: Plan) -> str | None:
    """If `plan` is a rollback, mark the plan that it undoes as rolled back once all of it is.

    Return why it could not be marked, None otherwise.
    """
    parameters = plan.row.options
    if "rollback_of" not in parameters:
        return None
    try:
        original = read_plan(settings.warehouse, parameters["rollback_of"])
        close_if_rolled_back(
            reader,
            settings,
            original,
            None if parameters["to_snapshot"] == original.row.snapshot_id else parameters["to_snapshot"],
        )
    except (RefusedError, UsageError) as error:
        return f"plan {parameters['rollback_of']} was not marked rolled_back: {error}"
    return None


def close_if_rolled_back(reader: ClusterReader, settings: Settings, undone: Plan, to_snapshot: int | None) -> bool:
    """Mark a plan as rolled back if all its partitions are back; return whether they are."""
    if undone.row.status not in Transition.ROLL_BACK.before:
        return False
    rollback = read_rollback(reader.read_cluster(), reader, settings, undone, to_snapshot)
    if rollback.is_back and undone.row.status != PlanStatus.ROLLED_BACK:
        apply_transition(settings.warehouse, undone.plan_id, Transition.ROLL_BACK)
        commit_log = CommitLog.open(settings.warehouse, undone)
        restored = target_snapshot(undone, to_snapshot)
        commit_log.step(Step.ROLL_BACK, Outcome.APPLIED, f"all of it is as in snapshot {restored}")
    return rollback.is_back
