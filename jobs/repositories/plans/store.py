"""How a plan is stored: its rows first and its row in `plans` last, all under its id, which is a hash of its content.

So a crash leaves no half plan, and planning again writes the same plan or finds it. In: a plan without id, and its rows
wherever they are. Out: its row in `plans`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, Protocol

from jobs.adapters.delta.warehouse import Row, Warehouse, quoted
from jobs.repositories.plans import digest
from jobs.repositories.plans.names import Alias, give_name, names_of, written
from schemas.digest import plan_header
from schemas.enums import PlanKind, PlanStatus

RESULT: Final = ("plan_id", "name", "snapshot_id", "status", "changes", "rejected", "moves")
"""Columns of `plans` that programs are told of a plan just made."""


class PlanRows(Protocol):
    """The rows of a plan that has no id yet."""

    def summary(self, header: str) -> Row:
        """Return plan_id, changes, rejected and moves."""

    def write(self, plan_id: str) -> None:
        """Store the rows under the plan's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """What a plan says besides its rows; `broker_epochs` are those of the brokers alive."""

    kind: PlanKind
    parameters: dict[str, Any]
    snapshot_id: int
    cluster_id: str | None
    broker_epochs: Mapping[int, int]
    status: PlanStatus = PlanStatus.PLANNED
    command: str | None = None
    """What was typed; it is no part of the plan's id, as one question can be typed in several ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryRows:
    """Rows that were made without Spark."""

    lake: Warehouse
    changes: Sequence[Row]
    rejections: Sequence[Row]
    operations: Sequence[Row] = field(default_factory=list)

    def summary(self, header: str) -> Row:
        return digest.summary(header, {table: digest.in_arrow(table, rows) for table, rows in self._tables.items()})

    def write(self, plan_id: str) -> None:
        for table, rows in self._tables.items():
            self.lake.replace(table, [{**row, "plan_id": plan_id} for row in rows], mine(plan_id))

    @property
    def _tables(self) -> dict[str, Sequence[Row]]:
        return {"changes": self.changes, "operations": self.operations, "rejections": self.rejections}


def store(lake: Warehouse, alias: Alias, content: PlanHeader, rows: PlanRows) -> Row:
    """Store a plan, or find it stored; it gets the name beside those it has."""
    epochs = ({"broker_id": broker, "broker_epoch": epoch} for broker, epoch in content.broker_epochs.items())
    plan: Row = {
        "cluster": lake.cluster,
        "name": None,
        "names": [],
        "snapshot_id": content.snapshot_id,
        "kind": content.kind.value,
        "parameters": written(content.parameters),
        "created_at": datetime.now(UTC),
        "status": content.status.value,
        "command": content.command,
        "cluster_id": content.cluster_id,
        "brokers": sorted(epochs, key=itemgetter("broker_id")),
    }
    plan |= rows.summary(plan_header(plan))
    known = lake.rows("plans", ("plan_id", "=", plan["plan_id"]))
    if not known:
        rows.write(plan["plan_id"])
        same = lake.insert("plans", plan, ("plan_id", "=", plan["plan_id"]))
        known = [same] if same else []
        if is_empty(lake, plan):
            drop_plans(lake, _superseded(lake, plan))
    stored = known[0] if known else plan
    named = alias.name is None or alias.name in names_of(stored)
    return stored if named else give_name(lake, plan["plan_id"], alias)


def is_empty(lake: Warehouse, plan: Row) -> bool:
    """Whether a plan was never more than a look: a commit of it would do nothing, not even mark a broker as drained."""
    marks = plan["kind"] in {PlanKind.DRAIN, PlanKind.UNDRAIN}
    if plan["changes"] or plan["status"] != PlanStatus.PLANNED or marks:
        return False
    return not lake.read("operations", ("plan_id", "=", plan["plan_id"]), columns=["plan_id"]).num_rows


def _superseded(lake: Warehouse, plan: Row) -> list[str]:
    """Plans without a name that found nothing to change, either, for the same question on an older snapshot."""
    alike = [(name, "=", plan[name]) for name in ("kind", "parameters")]
    older = lake.rows("plans", *alike, ("snapshot_id", "<", plan["snapshot_id"]))
    return [row["plan_id"] for row in older if not names_of(row) and is_empty(lake, row)]


def drop_plans(lake: Warehouse, plan_ids: Sequence[str]) -> None:
    """Delete plans that change nothing, the row in `plans` first: a crash leaves rows that no plan has."""
    if plan_ids:
        these = f"plan_id IN ({', '.join(map(quoted, plan_ids))})"
        for table in ("plans", "rejections", "evidence"):
            lake.delete(table, these)


def mine(plan_id: str) -> str:
    """The condition that names a plan's rows."""
    return f"plan_id = {quoted(plan_id)}"
