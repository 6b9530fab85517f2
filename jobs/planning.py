"""What all plans share: the snapshot they are computed from, and how a plan is stored.

A plan's rows are written first and its row in `plans` last; both under its id, which is a hash of its content. So a
crash leaves no half plan, and planning again writes the same plan or finds it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated, Any, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta import Tables
from jobs.adapters.lake import Lake, Row, quoted
from jobs.adapters.spark import start_session
from jobs.console import Result, finish, progress
from jobs.errors import ExitCode, RefusedError
from jobs.plans import find_plan, plan_lines
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables, as_of, find_snapshot
from planner.plan import plan_summary
from schemas.digest import plan_header
from schemas.names import PlanKind, PlanStatus

SnapshotId = Annotated[int | None, typer.Option("--snapshot", help="Plan on this snapshot [default: the newest].")]
Name = Annotated[str | None, typer.Option(help="An alias for the plan; planning again under it gives the same plan.")]

RESULT: Final = ("plan_id", "name", "snapshot_id", "status", "changes", "rejected", "moves")


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan's content before it has an id."""

    kind: PlanKind
    parameters: dict[str, Any]
    changes: DataFrame
    rejections: DataFrame | None = None
    operations: list[Row] = field(default_factory=list)


Planner = Callable[[SnapshotTables], Planned]


def report_plan(
    settings: Settings,
    snapshot: int | None,
    name: str | None,
    planner: Planner,
    *,
    detailed: bool,
) -> ExitCode:
    """Make a plan and show it; CHANGES only where the detailed exit code was asked for."""
    result = make_plan(settings, snapshot, name, planner)
    lake = settings.lake
    result["operations"] = len(lake.rows("operations", ("plan_id", "=", result["plan_id"])))
    # programs get their counts without the plan's rows being read again
    finish(settings, result, *([] if settings.as_json else plan_lines(lake, find_plan(lake, result["plan_id"]))))
    return ExitCode.CHANGES if detailed and (result["changes"] or result["operations"]) else ExitCode.DONE


def make_plan(settings: Settings, snapshot_id: int | None, name: str | None, planner: Planner) -> Result:
    """Plan on a snapshot and store the plan; under a name that is taken, return the plan that has it."""
    lake = settings.lake
    snapshot = find_snapshot(lake, snapshot_id)
    if name is not None:
        named = lake.rows("plans", ("name", "=", name))
        if named:
            return {column: named[0][column] for column in RESULT}
    _refuse_migration(snapshot)
    with progress("starting Spark"):
        tables = Tables(start_session("surveyor plan"), lake)
    with progress("planning"):
        return _store(tables, snapshot, name, planner(SnapshotTables(tables, snapshot)))


def _refuse_migration(snapshot: Row) -> None:
    if snapshot["migration"]:
        raise RefusedError(
            f"snapshot {snapshot['snapshot_id']} shows a migration to KRaft ({snapshot['migration']}): "
            "ZooKeeper is no longer the authority; plan with Kafka's own tools",
        )


def _store(tables: Tables, snapshot: Row, name: str | None, planned: Planned) -> Result:
    lake = tables.lake
    rows = {
        "changes": planned.changes.localCheckpoint(),
        "operations": tables.frame("operations", planned.operations),
        "rejections": (planned.rejections or tables.frame("rejections", [])).localCheckpoint(),
    }
    plan: Row = {
        "name": name,
        "snapshot_id": snapshot["snapshot_id"],
        "kind": planned.kind.value,
        "parameters": json.dumps(planned.parameters, sort_keys=True),
        "created_at": datetime.now(UTC),
        "status": PlanStatus.PLANNED.value,
        "cluster_id": snapshot["cluster_id"],
        "brokers": _broker_epochs(lake, snapshot),
    }
    plan |= plan_summary(plan_header({**plan, "cluster": lake.cluster}), rows).collect()[0].asDict()
    known = lake.rows("plans", ("plan_id", "=", plan["plan_id"]))
    if known:
        return _under(name, known[0], lake)
    mine = f"plan_id = {quoted(plan['plan_id'])}"
    for table, count in (("changes", plan["changes"]), ("rejections", plan["rejected"])):
        if count:
            named = {"plan_id": F.lit(plan["plan_id"]), "cluster": F.lit(lake.cluster)}
            tables.replace_counted(table, rows[table].withColumns(named), count, mine)
    lake.replace("operations", [{**row, "plan_id": plan["plan_id"]} for row in planned.operations], mine)
    lake.replace("plans", [plan], mine)
    return {column: plan[column] for column in RESULT}


def _under(name: str | None, plan: Row, lake: Lake) -> Result:
    """Return a plan that exists already, with the name now given to it if it had none."""
    if name is not None and plan["name"] is None:
        lake.update("plans", f"plan_id = {quoted(plan['plan_id'])}", name=quoted(name))
        plan["name"] = name
    return {column: plan[column] for column in RESULT}


def _broker_epochs(lake: Lake, snapshot: Row) -> list[Row]:
    brokers = as_of(lake, snapshot, "brokers")
    epochs = ({"broker_id": row["broker_id"], "broker_epoch": row["broker_epoch"]} for row in brokers)
    return sorted(epochs, key=itemgetter("broker_id"))
