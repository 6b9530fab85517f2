"""Stored plans: look up by id or alias, read, and verify against the id."""

from operator import attrgetter
from typing import Final

import msgspec

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import RefusedError, UsageError
from jobs.preconditions.planned_registrations import NO_REGISTRATIONS, PlannedRegistrations, first_waves
from jobs.repositories.plans import arrow_digest
from jobs.repositories.plans.names import plan_named
from jobs.repositories.snapshots import find_snapshot, table_as_of
from schemas.enums import PlanKind
from schemas.plan_digest import plan_header
from schemas.rows import Change, Operation, PlanRecord, RejectionRecord
from schemas.stored_plan import Plan

_EDITED: Final = "its stored rows were changed or deleted; plan again"

_REGISTRATION_COLUMNS: Final = ("topic", "partition", "eligible_leader_replicas")


def rejection_codes(warehouse: Warehouse, plan_id: str) -> set[str]:
    """Return the codes of a plan's rejections."""
    return set(warehouse.read("rejections", ("plan_id", "=", plan_id), columns=["code"])["code"].to_pylist())


def find_plan(warehouse: Warehouse, id_or_name: str) -> PlanRecord:
    """Return a plan's row by id or alias."""
    if not warehouse.exists():
        raise no_warehouse(warehouse.uri)
    rows = warehouse.typed_rows(PlanRecord, ("plan_id", "=", id_or_name)) or list(
        filter(None, [plan_named(warehouse, id_or_name)])
    )
    if rows:
        return rows[0]
    raise UsageError(
        f"no plan {id_or_name!r} of cluster {warehouse.cluster!r} in {warehouse.uri}; "
        "run `surveyor show plans` to list plans",
    )


def read_plan(warehouse: Warehouse, id_or_name: str) -> Plan:
    """Return a plan with all its rows; raise RefusedError if they do not have the expected form."""
    row = find_plan(warehouse, id_or_name)
    of_plan = ("plan_id", "=", row.plan_id)
    try:
        changes = msgspec.convert(warehouse.rows("changes", of_plan), list[Change])
        operations = msgspec.convert(warehouse.rows("operations", of_plan), list[Operation])
        rejections = msgspec.convert(warehouse.rows("rejections", of_plan), list[RejectionRecord])
    except msgspec.ValidationError as error:
        raise RefusedError(f"plan {row.title} is not what was planned: {error}; {_EDITED}") from None
    changes.sort(key=attrgetter("wave", "topic", "partition"))
    operations.sort(key=attrgetter("sequence"))
    return Plan(row, changes, operations, rejections, given_name=id_or_name)


def planned_registrations(warehouse: Warehouse, plan: Plan) -> PlannedRegistrations:
    """Return what a plan's changes of existing partitions depend on."""
    waves = first_waves(plan.changes)
    if not waves:
        return NO_REGISTRATIONS
    if "rollback_of" in plan.row.options or plan.row.kind == PlanKind.CANCEL:
        return PlannedRegistrations(first_waves=waves)
    topics = sorted({topic for topic, _ in waves})
    snapshot = find_snapshot(warehouse, plan.row.snapshot_id)
    rows = table_as_of(warehouse, snapshot, "partitions", ("topic", "in", topics), columns=_REGISTRATION_COLUMNS)
    eligible = {
        (topic, partition): replicas
        for topic, partition, replicas in values_of(rows, *_REGISTRATION_COLUMNS)
        if (topic, partition) in waves
    }
    return PlannedRegistrations(eligible, waves)


def refuse_edited(plan: Plan) -> None:
    """Raise RefusedError unless the rows hash to the plan's id."""
    in_arrow = {
        "changes": arrow_digest.plan_in_arrow("changes", plan.changes),
        "operations": arrow_digest.plan_in_arrow("operations", plan.operations),
        "rejections": arrow_digest.plan_in_arrow("rejections", plan.rejections),
    }
    hashed = arrow_digest.summary(plan_header(plan.row), in_arrow)["plan_id"]
    if hashed != plan.plan_id:
        raise RefusedError(f"plan {plan.title} is not what was planned: its rows hash to {hashed}; {_EDITED}")


def refuse_unsubmitted(plan: Plan, submission: str) -> None:
    """Raise RefusedError unless a commit with access to this warehouse recorded exactly this submission."""
    if plan.row.submission != submission:
        raise RefusedError(
            f"plan {plan.title} was submitted without a record in this warehouse and is not executed; "
            "run `surveyor commit` with the warehouse of `surveyor control`",
        )
