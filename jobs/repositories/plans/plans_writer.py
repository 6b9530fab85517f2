"""All writes to the table `plans`: new rows, transitions of their status, and columns that are set later.

A plan's row is written after its other rows and deleted before them, so a crash leaves no row without its content.
Which transitions there are, and from which statuses, is in `schemas.stored_plan.Transition`.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import pyarrow as pa

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse, decode_rows, quote_literal
from jobs.repositories.plans.plan_rows import plan_condition
from schemas.rows import PlanRecord
from schemas.stored_plan import CLOSED, Transition

_ALL_PLANS: Final = ("snapshot_id", ">=", 0)


def insert_plan(warehouse: Warehouse, plan: PlanRecord) -> PlanRecord | None:
    """Add the row of a plan, unless a row has its id, which is returned then."""
    same = warehouse.insert("plans", plan.columns(), ("plan_id", "=", plan.plan_id))
    return msgspec.convert(same, PlanRecord) if same else None


def append_plans(warehouse: Warehouse, rows: pa.Table) -> None:
    """Add the rows of plans that have an id of their own, as those of the cycles of `surveyor control`."""
    warehouse.append_all("plans", rows)


def delete_plans(warehouse: Warehouse, plan_ids: Sequence[str]) -> None:
    warehouse.delete("plans", f"plan_id IN ({', '.join(map(quote_literal, plan_ids))})")


def apply_transition(warehouse: Warehouse, plan_id: str, transition: Transition, reason: str | None = None) -> None:
    """Set the status of a plan to the one after the transition, and its reason if there is one.

    A commit that still runs changes nothing about a plan that was closed. A user who closes a plan overwrites any
    status that a commit has set since the plan was read.
    """
    condition = plan_condition(plan_id)
    if transition.after not in CLOSED or transition is Transition.OVERTAKE:
        before = ", ".join(quote_literal(status.value) for status in sorted(transition.before))
        condition += f" AND status IN ({before})"
    values = {"status": quote_literal(transition.after.value)}
    if reason is not None:
        warehouse.ensure_columns("plans")
        values["status_reason"] = quote_literal(reason)
    warehouse.update("plans", condition, **values)


def count_attempt(warehouse: Warehouse, plan_id: str, minimum: int) -> int:
    """Return the number of the next attempt to commit a plan, at least `minimum`, and record it.

    Attempts that start concurrently get different numbers.
    """
    number = [minimum]

    def counted(plans: pa.Table) -> pa.Table:
        before = plans["last_attempt"].to_pylist() if plans.num_rows else []
        number[:] = [max([number[0], *(last + 1 for last in before if last is not None)])]
        column = pa.array([number[0]] * plans.num_rows, schema_of("plans").field("last_attempt").type)
        return (
            plans.set_column(plans.schema.get_field_index("last_attempt"), "last_attempt", column) if before else plans
        )

    warehouse.transform_rows("plans", ("plan_id", "=", plan_id), counted)
    return number[0]


def record_submission(warehouse: Warehouse, plan_id: str, submission: str) -> None:
    """Record what a commit is about to submit to `surveyor control`."""
    warehouse.ensure_columns("plans")
    warehouse.update("plans", plan_condition(plan_id), submission=quote_literal(submission))


def record_figures(warehouse: Warehouse, plan: PlanRecord, figures: str) -> PlanRecord:
    """Record the figures of a plan that was planned again, and return its row with them."""
    warehouse.ensure_columns("plans")
    warehouse.update("plans", plan_condition(plan.plan_id), figures=quote_literal(figures))
    return msgspec.structs.replace(plan, figures=figures)


def record_verified(warehouse: Warehouse, plan_id: str) -> None:
    """Record that a plan is found complete now, unless it was before."""
    warehouse.ensure_columns("plans")
    now = f"CAST({quote_literal(datetime.now(UTC).isoformat())} AS TIMESTAMP)"
    warehouse.update("plans", f"{plan_condition(plan_id)} AND verified_at IS NULL", verified_at=now)


def rename_plans(warehouse: Warehouse, rename: Callable[[list[PlanRecord]], list[PlanRecord]]) -> None:
    """Replace all plans by what `rename` returns of them; it is called again if they change in the meantime."""

    def renamed(table: pa.Table) -> pa.Table:
        plans = rename(decode_rows(PlanRecord, table))
        return pa.Table.from_pylist([plan.columns() for plan in plans], schema=table.schema)

    warehouse.transform_rows("plans", _ALL_PLANS, renamed)
