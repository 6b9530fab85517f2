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
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta import Tables
from jobs.adapters.lake import Lake, Row, quoted
from jobs.adapters.spark import start_session
from jobs.console import Result, finish, progress
from jobs.errors import ExitCode, RefusedError
from jobs.figures import figures_in
from jobs.plans import find_plan, plan_lines
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables, as_of, find_snapshot
from planner.liveness import with_drained
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
    evidence: DataFrame | None = None
    refused: str | None = None
    """Why it must not be committed: it is stored all the same, so that it can be looked at."""


class PlanningTables(SnapshotTables):
    """The tables as one snapshot left them, the brokers with how they are drained now."""

    def __getitem__(self, table: str) -> DataFrame:
        rows = SnapshotTables.__getitem__(self, table)
        drained = self.tables.lake.rows("drained") if table == "brokers" else []
        return with_drained(rows, self.tables.frame("drained", drained)) if drained else rows


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
    # programs get their counts without the plan's rows being read again
    finish(settings, result, *([] if settings.as_json else plan_lines(lake, find_plan(lake, result["plan_id"]))))
    return ExitCode.CHANGES if detailed and result["changes"] else ExitCode.DONE


def make_plan(settings: Settings, snapshot_id: int | None, name: str | None, planner: Planner) -> Result:
    """Plan on a snapshot and store the plan; under a name that is taken, return the plan that has it."""
    lake = settings.lake
    snapshot = find_snapshot(lake, snapshot_id)
    if name is not None:
        named = lake.rows("plans", ("name", "=", name))
        if named:
            return _result(named[0])
    _refuse_migration(snapshot)
    lake.ensure_tables()
    with progress("starting Spark"):
        tables = Tables(start_session("surveyor plan"), lake)
    with progress("planning"):
        planned = planner(PlanningTables(tables, snapshot))
        # a refused plan takes no name: the next try is to have it
        result = _store(tables, snapshot, None if planned.refused else name, planned)
    if planned.refused:
        raise RefusedError(f"plan {result['plan_id']} is refused: {planned.refused}", result)
    return result


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
        "status": (PlanStatus.REFUSED if planned.refused else PlanStatus.PLANNED).value,
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
            tables.replace_counted(table, rows[table].withColumns(_owner(plan, lake)), count, mine)
    lake.replace("operations", [{**row, "plan_id": plan["plan_id"]} for row in planned.operations], mine)
    if planned.evidence is not None:
        tables.replace("evidence", planned.evidence.withColumns(_owner(plan, lake)), mine)
    lake.replace("plans", [plan], mine)
    return _result(plan)


def _result(plan: Row) -> Result:
    return {**{column: plan[column] for column in RESULT}, **figures_in(plan)}


def _owner(plan: Row, lake: Lake) -> dict[str, Column]:
    return {"plan_id": F.lit(plan["plan_id"]), "cluster": F.lit(lake.cluster)}


def _under(name: str | None, plan: Row, lake: Lake) -> Result:
    """Return a plan that exists already, with the name now given to it if it had none."""
    if name is not None and plan["name"] is None:
        lake.update("plans", f"plan_id = {quoted(plan['plan_id'])}", name=quoted(name))
        plan["name"] = name
    return _result(plan)


def _broker_epochs(lake: Lake, snapshot: Row) -> list[Row]:
    brokers = as_of(lake, snapshot, "brokers")
    epochs = ({"broker_id": row["broker_id"], "broker_epoch": row["broker_epoch"]} for row in brokers)
    return sorted(epochs, key=itemgetter("broker_id"))
