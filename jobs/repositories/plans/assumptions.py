"""What a stored plan assumed of brokers, compared with the brokers as they are now."""

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows, values_of
from jobs.core.errors import SurveyorError
from jobs.preconditions.broker_assumptions import UNCHANGED, BrokersSincePlan, broken_assumptions, brokers_since
from jobs.preconditions.change_preconditions import Preconditions, required_by_others
from jobs.repositories.plans.commit_rows import CHANGE_COLUMNS
from jobs.repositories.snapshots import find_snapshot, last_snapshot, live_brokers_as_of
from schemas.enums import Outcome
from schemas.rows import Broker, ChangeSummary, DrainedBroker, Key, Place, PlanRecord
from schemas.stored_plan import OPEN

COLUMNS: Final = list(ChangeSummary.__struct_fields__)


def brokers_since_plan(warehouse: Warehouse, plan: PlanRecord, brokers: Collection[Broker]) -> BrokersSincePlan:
    """Return what has changed of the brokers since a plan; without its snapshot, no rack is known to have changed.

    Racks are compared by the names that brokers register, also while some have the new name of a renamed rack. A
    rollback has no assumptions: it restores the former replicas, also if racks have changed.
    """
    if "rollback_of" in plan.options:
        return UNCHANGED
    try:
        planned = live_brokers_as_of(warehouse, find_snapshot(warehouse, plan.snapshot_id))
    except SurveyorError:
        planned = []
    racks = {row.broker_id: row.rack for row in planned if row.understood}
    drained = warehouse.typed_rows(DrainedBroker) if warehouse.has("drained") else []
    return brokers_since(plan.plan_id, plan.created_at, racks, brokers, drained)


def assumptions_now(warehouse: Warehouse, plan: PlanRecord, brokers: Collection[Broker]) -> list[str]:
    """Return which assumptions of a plan no longer hold, by these live brokers.

    The changes are read only if a broker differs from the plan.
    """
    try:
        live, since = {row.broker_id for row in brokers}, brokers_since_plan(warehouse, plan, brokers)
        if live == {row.broker_id for row in plan.brokers} and not since.moved and not since.drained:
            return []
        outcome = ("outcome", "=", Outcome.APPLIED.value)
        records = warehouse.read("commits", ("plan_id", "=", plan.plan_id), outcome, columns=CHANGE_COLUMNS)
        applied = {*values_of(records, *CHANGE_COLUMNS)}
        rows = as_rows(warehouse.read("changes", ("plan_id", "=", plan.plan_id), columns=COLUMNS))
    except (SurveyorError, OSError) as error:
        return [f"its assumptions are not compared with the cluster: {error}"]
    changes = msgspec.convert(rows, list[ChangeSummary])
    preconditions = Preconditions(live, (), (), *required_by_others(changes), since)
    return broken_assumptions(_broken(changes, preconditions, applied))


def _broken(
    changes: Sequence[ChangeSummary], preconditions: Preconditions, applied: Collection[Place]
) -> list[str | None]:
    """Return what is broken of each change; an applied one assumes nothing, and a later wave assumes the earlier."""
    reasons: list[str | None] = []
    by_key: dict[Key, str | None] = {}
    for change in sorted(changes, key=attrgetter("wave")):
        key = change.topic, change.partition
        reason = None if change.place in applied else preconditions.broken(change) or by_key.get(key)
        by_key[key] = reason
        reasons.append(reason)
    return reasons


def assumptions_in_newest_snapshot(warehouse: Warehouse, plan: PlanRecord) -> list[str]:
    """Return which assumptions of a plan that may be committed no longer hold in the newest snapshot."""
    if plan.status not in OPEN:
        return []
    newest = last_snapshot(warehouse)
    return [] if newest is None else assumptions_now(warehouse, plan, live_brokers_as_of(warehouse, newest))
