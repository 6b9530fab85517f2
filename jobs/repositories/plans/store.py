"""Storage of plans: the rows are written first and the row in `plans` last, under an id that hashes the content.

A crash therefore leaves no incomplete plan, and planning again writes or finds the same plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, Protocol

from jobs.adapters.delta.warehouse import Row, Warehouse, quoted
from jobs.repositories.plans import digest
from jobs.repositories.plans.names import Alias, give_name, names_of, parameters_json
from schemas.digest import plan_header
from schemas.enums import PlanKind, PlanStatus

RESULT: Final = ("plan_id", "name", "snapshot_id", "status", "changes", "rejected", "moves")
"""Columns of `plans` in the JSON result of a new plan."""


class PlanRows(Protocol):
    """The rows of a plan without an id yet."""

    def summary(self, header: str) -> Row:
        """Return plan_id, changes, rejected and moves."""

    def write(self, plan_id: str) -> None:
        """Store the rows under the plan's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """A plan's metadata; `broker_epochs` are those of the live brokers."""

    kind: PlanKind
    parameters: dict[str, Any]
    snapshot_id: int
    cluster_id: str | None
    broker_epochs: Mapping[int, int]
    status: PlanStatus = PlanStatus.PLANNED
    command: str | None = None
    """The command line; it is not part of the plan's id, because different command lines can be equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryRows:
    """Rows computed without Spark."""

    lake: Warehouse
    changes: Sequence[Row]
    rejections: Sequence[Row]
    operations: Sequence[Row] = field(default_factory=list)

    def summary(self, header: str) -> Row:
        return digest.summary(header, {table: digest.in_arrow(table, rows) for table, rows in self._tables.items()})

    def write(self, plan_id: str) -> None:
        for table, rows in self._tables.items():
            self.lake.replace(table, [{**row, "plan_id": plan_id} for row in rows], plan_condition(plan_id))

    @property
    def _tables(self) -> dict[str, Sequence[Row]]:
        return {"changes": self.changes, "operations": self.operations, "rejections": self.rejections}


def store(lake: Warehouse, alias: Alias, content: PlanHeader, rows: PlanRows) -> Row:
    """Store a plan unless it exists, add the alias to its names, and return its row."""
    epochs = ({"broker_id": broker, "broker_epoch": epoch} for broker, epoch in content.broker_epochs.items())
    plan: Row = {
        "cluster": lake.cluster,
        "name": None,
        "names": [],
        "snapshot_id": content.snapshot_id,
        "kind": content.kind.value,
        "parameters": parameters_json(content.parameters),
        "created_at": datetime.now(UTC),
        "status": content.status.value,
        "command": content.command,
        "cluster_id": content.cluster_id,
        "brokers": sorted(epochs, key=itemgetter("broker_id")),
    }
    plan |= rows.summary(plan_header(plan))
    existing = lake.rows("plans", ("plan_id", "=", plan["plan_id"]))
    if not existing:
        rows.write(plan["plan_id"])
        same = lake.insert("plans", plan, ("plan_id", "=", plan["plan_id"]))
        existing = [same] if same else []
        if is_empty(lake, plan):
            drop_plans(lake, _superseded(lake, plan))
    stored = existing[0] if existing else plan
    is_named = alias.name is None or alias.name in names_of(stored)
    return stored if is_named else give_name(lake, plan["plan_id"], alias)


def is_empty(lake: Warehouse, plan: Row) -> bool:
    """Whether a commit of the plan would do nothing, not even mark a broker as drained."""
    marks = plan["kind"] in {PlanKind.DRAIN, PlanKind.UNDRAIN}
    if plan["changes"] or plan["status"] != PlanStatus.PLANNED or marks:
        return False
    return not lake.read("operations", ("plan_id", "=", plan["plan_id"]), columns=["plan_id"]).num_rows


def _superseded(lake: Warehouse, plan: Row) -> list[str]:
    """Return the empty, unnamed plans with the same parameters on an older snapshot."""
    same_question = [(name, "=", plan[name]) for name in ("kind", "parameters")]
    older = lake.rows("plans", *same_question, ("snapshot_id", "<", plan["snapshot_id"]))
    return [row["plan_id"] for row in older if not names_of(row) and is_empty(lake, row)]


def drop_plans(lake: Warehouse, plan_ids: Sequence[str]) -> None:
    """Delete empty plans, the row in `plans` first; a crash leaves rows without a plan, which are ignored."""
    if plan_ids:
        condition = f"plan_id IN ({', '.join(map(quoted, plan_ids))})"
        for table in ("plans", "rejections", "evidence"):
            lake.delete(table, condition)


def plan_condition(plan_id: str) -> str:
    """Return the SQL condition that selects a plan's rows."""
    return f"plan_id = {quoted(plan_id)}"
