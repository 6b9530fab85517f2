"""What a stored plan assumed of brokers, compared with the brokers as they are now."""

from collections.abc import Collection
from typing import Final

import msgspec

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.core.errors import SurveyorError
from jobs.preconditions.brokers_since_plan import UNCHANGED, BrokersSincePlan, broken_assumptions, brokers_since
from jobs.preconditions.changes import Preconditions
from jobs.repositories.snapshots import find_snapshot, last_snapshot, live_brokers_as_of
from schemas.plan import OPEN
from schemas.rows import Broker, ChangeSummary, DrainedBroker, PlanRecord

COLUMNS: Final = list(ChangeSummary.__struct_fields__)


def brokers_since_plan(warehouse: Warehouse, plan: PlanRecord, brokers: Collection[Broker]) -> BrokersSincePlan:
    """Return what has changed of the brokers since a plan; without its snapshot, no rack is known to have changed.

    Racks are compared by the names that brokers register, also while some have the new name of a renamed rack. Nothing
    is compared for a rollback: it was made for the brokers as they were then, and goes back whatever their racks are.
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

    The changes are read only if anything differs from what the plan knew.
    """
    try:
        live, since = {row.broker_id for row in brokers}, brokers_since_plan(warehouse, plan, brokers)
        if live == {row.broker_id for row in plan.brokers} and not since.moved and not since.drained:
            return []
        rows = as_rows(warehouse.read("changes", ("plan_id", "=", plan.plan_id), columns=COLUMNS))
    except (SurveyorError, OSError) as error:
        return [f"its assumptions are not compared with the cluster: {error}"]
    preconditions = Preconditions(live, deleting=(), since=since)
    return broken_assumptions([preconditions.broken(row) for row in msgspec.convert(rows, list[ChangeSummary])])


def assumptions_in_newest_snapshot(warehouse: Warehouse, plan: PlanRecord) -> list[str]:
    """Return which assumptions of a plan that may be committed no longer hold in the newest snapshot."""
    if plan.status not in OPEN:
        return []
    newest = last_snapshot(warehouse)
    return [] if newest is None else assumptions_now(warehouse, plan, live_brokers_as_of(warehouse, newest))
