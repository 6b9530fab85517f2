"""Plans whose commit has begun and can go on, which a command of the same goal continues."""

from collections.abc import Callable
from operator import attrgetter

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.units import age_seconds
from schemas.enums import Outcome
from schemas.rows import CommitRecord, PlanRecord
from schemas.stored_plan import BEGUN


def begun_plan(warehouse: Warehouse, max_age: float, is_same: Callable[[PlanRecord], bool]) -> PlanRecord | None:
    """Return the newest of these plans whose commit has begun and can go on; None if there is none.

    Left out are plans that are too old for a commit, `max_age` in seconds, and those of which nothing but stale rows is
    left: only a new plan reaches their goal.
    """
    if not warehouse.exists():
        return None
    begun = [
        plan
        for plan in warehouse.typed_rows(PlanRecord, ("status", "in", sorted(BEGUN)))
        if is_same(plan) and age_seconds(plan.created_at) < max_age and not _has_only_stale_rows_left(warehouse, plan)
    ]
    return max(begun, key=attrgetter("created_at", "plan_id"), default=None)


def _has_only_stale_rows_left(warehouse: Warehouse, plan: PlanRecord) -> bool:
    rows = warehouse.typed_rows(CommitRecord, ("plan_id", "=", plan.plan_id)) if warehouse.has("commits") else []
    last = {row.change: row.outcome for row in sorted(rows, key=attrgetter("committed_at")) if row.change is not None}
    outcomes = {*last.values()}
    return Outcome.STALE in outcomes <= {Outcome.STALE, Outcome.APPLIED} and len(last) >= (plan.changes or 0)
