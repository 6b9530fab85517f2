"""Whether a plan is rolled back: its partitions are read, and the plan is marked once all of them are back."""

from jobs.adapters.cluster_connections.interface import ClusterReader
from jobs.core.errors import RefusedError, UsageError
from jobs.preconditions.rollback_plan import NOT_ROLLED_BACK, Rollback, find_rollback
from jobs.repositories.plans.commit_log import CommitLog, close_plan
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.runtime.settings import Settings
from planner.reassignment.partition_rollback import steps_by_partition
from schemas import reasons
from schemas.enums import Outcome, PlanStatus, Step


def read_rollback(reader: ClusterReader, settings: Settings, plan: Plan, to_snapshot: int | None) -> Rollback:
    """Read the plan's partitions and find the steps back; see `find_rollback`."""
    state = reader.read_cluster()
    reading = reader.read_topics(sorted({topic for topic, _ in steps_by_partition(plan.changes)}))
    partitions = {partition.key: partition for partition in reading.partitions}
    topics = {topic.topic: topic for topic in reading.topics}
    return find_rollback(settings, plan, state, partitions, topics, to_snapshot=to_snapshot)


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
    if undone.row.status in NOT_ROLLED_BACK:
        return False
    rollback = read_rollback(reader, settings, undone, to_snapshot)
    if rollback.is_back and undone.row.status != PlanStatus.ROLLED_BACK:
        close_plan(settings.warehouse, undone.plan_id, PlanStatus.ROLLED_BACK)
        commit_log = CommitLog.open(settings.warehouse, undone)
        commit_log.step(Step.ROLL_BACK, Outcome.APPLIED, reasons.ALL_BACK.say(snapshot=rollback.snapshot_id))
    return rollback.is_back
