"""Storage of plans: the rows are written first and the row in `plans` last, under an id that hashes the content.

A crash therefore leaves no incomplete plan, and planning again writes or finds the same plan. The plans of the resident
controller are built by the same `plan_rows`, but not stored here: each has a separate id, so that the rows of
many cycles are appended in one Delta commit.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse, quote_literal
from jobs.core.errors import UnreadableError
from jobs.repositories.plans.names import Alias, give_name
from jobs.repositories.plans.plan_rows import PlanHeader, PlanRows, plan_row
from jobs.repositories.plans.plans_writer import delete_plans, insert_plan, record_figures
from jobs.runtime.console import warn
from planner.load.load_figures import LoadFigures, encoded
from schemas.enums import PlanStatus
from schemas.rows import PlanRecord, Row

_RESULT: Final = ("plan_id", "name", "snapshot_id", "status", "changes", "rejected", "moves")


def result_of(plan: PlanRecord) -> Row:
    """Return the columns of `plans` in the JSON result of a new plan."""
    return {column: getattr(plan, column) for column in _RESULT} | {"names": plan.all_names}


def store(
    warehouse: Warehouse,
    alias: Alias,
    content: PlanHeader,
    rows: PlanRows,
    figures: Callable[[], LoadFigures | None] = lambda: None,
) -> PlanRecord:
    """Store a plan unless it exists, add the alias to its names, and return its row.

    `figures` computes the figures by load, which are not part of the plan's id. They are those of the newest planning,
    until a commit of the plan begins.
    """
    plan = plan_row(warehouse.cluster, content, rows)
    existing = warehouse.typed_rows(PlanRecord, ("plan_id", "=", plan.plan_id))
    if not existing or existing[0].status == PlanStatus.PLANNED:
        plan = replace(plan, figures=_encoded(figures))
    if not existing:
        rows.write(plan.plan_id)
        same = insert_plan(warehouse, plan)
        existing = [same] if same else []
        if is_empty(warehouse, plan):
            drop_plans(warehouse, _superseded(warehouse, plan))
    elif plan.figures is not None and plan.figures != existing[0].figures:
        existing = [record_figures(warehouse, existing[0], plan.figures)]
    stored = existing[0] if existing else plan
    is_named = alias.name is None or alias.name in stored.all_names
    return stored if is_named else give_name(warehouse, plan.plan_id, alias)


def _encoded(figures: Callable[[], LoadFigures | None]) -> str | None:
    """Return the figures as stored; None if there are none, or if the loads that they are from cannot be read."""
    try:
        load = figures()
    except UnreadableError as error:
        warn(f"the plan does not show the load before and after: {error}")
        return None
    return None if load is None else encoded(load)


def is_empty(warehouse: Warehouse, plan: PlanRecord) -> bool:
    """Return whether a commit of the plan would change nothing and mark no broker as drained."""
    if plan.changes or plan.status != PlanStatus.PLANNED or plan.traits.changes_drained:
        return False
    return not warehouse.read("operations", ("plan_id", "=", plan.plan_id), columns=["plan_id"]).num_rows


def _superseded(warehouse: Warehouse, plan: PlanRecord) -> list[str]:
    """Return the empty, unnamed plans with the same parameters on an older snapshot."""
    same_goal = ("kind", "=", plan.kind), ("parameters", "=", plan.parameters)
    older = warehouse.typed_rows(PlanRecord, *same_goal, ("snapshot_id", "<", plan.snapshot_id))
    return [row.plan_id for row in older if not row.all_names and is_empty(warehouse, row)]


def drop_plans(warehouse: Warehouse, plan_ids: Sequence[str]) -> None:
    """Delete empty plans, the row in `plans` first; a crash leaves rows without a plan, which are ignored."""
    if plan_ids:
        condition = f"plan_id IN ({', '.join(map(quote_literal, plan_ids))})"
        delete_plans(warehouse, plan_ids)
        for table in ("rejections", "evidence"):
            warehouse.delete(table, condition)
