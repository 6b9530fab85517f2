"""What all plans share: the snapshot they are computed from, and how a plan is stored.

A plan's rows are written first and its row in `plans` last; both under its id, which is a hash of its content. So a
crash leaves no half plan, and planning again writes the same plan or finds it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated, Any, Final

import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.table import Table

from jobs.adapters.delta import Tables
from jobs.adapters.lake import Lake, Row, quoted
from jobs.adapters.spark import start_session
from jobs.console import Result, finish, progress, say
from jobs.errors import ExitCode, RefusedError
from jobs.figures import figures_in
from jobs.plan_store import plan_rows
from jobs.plans import find_plan, plan_lines
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables, as_of, find_snapshot
from planner.liveness import with_drained
from schemas.digest import plan_header
from schemas.names import PlanKind, PlanStatus

SnapshotId = Annotated[int | None, typer.Option("--snapshot", help="Plan on this snapshot [default: the newest].")]
Name = Annotated[str | None, typer.Option(help="An alias for the plan; planning again under it gives the same plan.")]

QUICK: Final = {"spark.sql.adaptive.enabled": "false"}
"""To plan a query anew at each of its stages costs more than it finds: what plans look at has few, known shapes."""

RESULT: Final = ("plan_id", "name", "snapshot_id", "status", "changes", "rejected", "moves")

LISTED: Final = 200_000
"""Changes up to which a plan that was just made is listed: a million rows as Python's objects take gigabytes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan's content before it has an id."""

    kind: PlanKind
    parameters: dict[str, Any]
    changes: DataFrame
    rejections: DataFrame | None = None
    operations: list[Row] = field(default_factory=list)
    evidence: DataFrame | None = None
    at_most: int | None = None
    """More changes and rejections there cannot be together, where that is known and they cost little to compute."""
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
    result["operations"] = len(lake.rows("operations", ("plan_id", "=", result["plan_id"])))
    # programs get their counts without the plan's rows being read again
    finish(settings, result, *([] if settings.as_json else _lines(lake, result)))
    return ExitCode.CHANGES if detailed and (result["changes"] or result["operations"]) else ExitCode.DONE


def _lines(lake: Lake, result: Result) -> Iterable[Table | str]:
    plan_id, changes, rejected = (result[name] for name in ("plan_id", "changes", "rejected"))
    if changes > LISTED:
        told = f"plan {plan_id} on snapshot {result['snapshot_id']}: {changes} changes, {rejected} rejected"
        return [f"{told}; too many to list at once: `surveyor show plan {plan_id}` does, with what it warns of"]
    return plan_lines(lake, find_plan(lake, plan_id))


def make_plan(settings: Settings, snapshot_id: int | None, name: str | None, planner: Planner) -> Result:
    """Plan on a snapshot and store the plan; under a name that is taken, return the plan that has it."""
    lake = settings.lake
    named = [] if name is None else lake.rows("plans", ("name", "=", name))
    snapshot = _snapshot_for(lake, snapshot_id, named)
    _refuse_migration(snapshot)
    lake.ensure_tables()
    with progress("starting Spark"):
        tables = Tables(start_session("surveyor plan", QUICK), lake)
    with progress("planning"):
        planned = planner(PlanningTables(tables, snapshot))
        if named:
            return _same_as(named[0], planned, snapshot_id)
        # a refused plan takes no name: the next try is to have it
        result = _store(tables, snapshot, None if planned.refused else name, planned)
    if planned.refused:
        raise RefusedError(f"plan {result['plan_id']} is refused: {planned.refused}", result)
    return result


def _snapshot_for(lake: Lake, snapshot_id: int | None, named: list[Row]) -> Row:
    """Find the snapshot asked for, else that of the plan that has the name, else the newest."""
    snapshot = find_snapshot(lake, snapshot_id)
    if snapshot_id is None and named:
        then = lake.rows("snapshots", ("snapshot_id", "=", named[0]["snapshot_id"]))
        return then[0] if then else snapshot
    return snapshot


def _same_as(named: Row, planned: Planned, snapshot_id: int | None) -> Result:
    """Return the plan that has the name, if it was asked for in the same words."""
    kind, on = named["kind"], named["snapshot_id"]
    same = (kind, named["parameters"]) == (planned.kind.value, _written(planned.parameters))
    if not same or snapshot_id not in {None, on}:
        raise RefusedError(
            f"the name {named['name']!r} is taken by plan {named['plan_id']}: {kind} on snapshot {on}, asked for with "
            f"{named['parameters']}; ask for the same, or give this plan another --name",
        )
    say(f"surveyor: {named['name']} is this plan already, on snapshot {on}; nothing was planned anew")
    return _result(named)


def _written(parameters: dict[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True)


def _refuse_migration(snapshot: Row) -> None:
    if snapshot["migration"]:
        raise RefusedError(
            f"snapshot {snapshot['snapshot_id']} shows a migration to KRaft ({snapshot['migration']}): "
            "ZooKeeper is no longer the authority; plan with Kafka's own tools",
        )


def _store(tables: Tables, snapshot: Row, name: str | None, planned: Planned) -> Result:
    lake = tables.lake
    plan: Row = {
        "name": name,
        "snapshot_id": snapshot["snapshot_id"],
        "kind": planned.kind.value,
        "parameters": _written(planned.parameters),
        "created_at": datetime.now(UTC),
        "status": (PlanStatus.REFUSED if planned.refused else PlanStatus.PLANNED).value,
        "cluster_id": snapshot["cluster_id"],
        "brokers": _broker_epochs(lake, snapshot),
    }
    found = {"changes": planned.changes, "rejections": planned.rejections or tables.frame("rejections", [])}
    rows = plan_rows(tables, found, planned.operations, planned.at_most)
    plan |= rows.summary(plan_header({**plan, "cluster": lake.cluster}))
    known = lake.rows("plans", ("plan_id", "=", plan["plan_id"]))
    if known:
        return _under(name, known[0], lake)
    mine = f"plan_id = {quoted(plan['plan_id'])}"
    rows.write(plan["plan_id"])
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
