"""How a plan is stored: its rows first and its row in `plans` last, all under its id, which is a hash of its content.

So a crash leaves no half plan, and planning again writes the same plan or finds it. In: a plan without id, and its rows
wherever they are. Out: its row in `plans`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Protocol

from jobs.adapters.lake import Lake, Row, quoted
from jobs.errors import RefusedError
from schemas.digest import plan_header, plan_id
from schemas.names import PlanKind, PlanStatus


class PlanRows(Protocol):
    """The rows of a plan that has no id yet."""

    def summary(self, header: str) -> Row:
        """Return plan_id, changes, rejected and moves."""

    def write(self, plan_id: str) -> None:
        """Store the rows under the plan's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a plan says besides its rows; `broker_epochs` are those of the brokers alive."""

    kind: PlanKind
    parameters: dict[str, Any]
    snapshot_id: int
    cluster_id: str | None
    broker_epochs: Mapping[int, int]
    status: PlanStatus = PlanStatus.PLANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLists:
    """Rows that were made without Spark."""

    lake: Lake
    changes: Sequence[Row]
    rejections: Sequence[Row]
    operations: Sequence[Row] = field(default_factory=list)

    def summary(self, header: str) -> Row:
        copied = (set(change["adding_after"]) - set(change["adding_before"]) for change in self.changes)
        return {
            "plan_id": plan_id(header, self._tables),
            "changes": len(self.changes),
            "rejected": len(self.rejections),
            "moves": sum(map(len, copied)),
        }

    def write(self, plan_id: str) -> None:
        for table, rows in self._tables.items():
            self.lake.replace(table, [{**row, "plan_id": plan_id} for row in rows], mine(plan_id))

    @property
    def _tables(self) -> dict[str, Sequence[Row]]:
        return {"changes": self.changes, "operations": self.operations, "rejections": self.rejections}


def store(lake: Lake, name: str | None, content: Content, rows: PlanRows) -> Row:
    """Store a plan, or find it stored: then it gets the name if it had none."""
    epochs = ({"broker_id": broker, "broker_epoch": epoch} for broker, epoch in content.broker_epochs.items())
    plan: Row = {
        "cluster": lake.cluster,
        "name": name,
        "snapshot_id": content.snapshot_id,
        "kind": content.kind.value,
        "parameters": written(content.parameters),
        "created_at": datetime.now(UTC),
        "status": content.status.value,
        "cluster_id": content.cluster_id,
        "brokers": sorted(epochs, key=itemgetter("broker_id")),
    }
    plan |= rows.summary(plan_header(plan))
    known = lake.rows("plans", ("plan_id", "=", plan["plan_id"]))
    if known:
        return _named(lake, known[0], name)
    rows.write(plan["plan_id"])
    lake.replace("plans", [plan], mine(plan["plan_id"]))
    return plan


def _named(lake: Lake, plan: Row, name: str | None) -> Row:
    if name is None or plan["name"] is not None:
        return plan
    lake.update("plans", mine(plan["plan_id"]), name=quoted(name))
    return {**plan, "name": name}


def plan_named(lake: Lake, name: str | None) -> Row | None:
    """Return the plan that has a name, None where none has."""
    found = [] if name is None else lake.rows("plans", ("name", "=", name))
    return found[0] if found else None


def refuse_other_question(named: Row, kind: PlanKind, parameters: dict[str, Any], snapshot_id: int | None) -> None:
    """Raise RefusedError unless the plan that has the name was asked for in the same words, on that snapshot if any."""
    same = (named["kind"], named["parameters"]) == (kind.value, written(parameters))
    if not same or snapshot_id not in {None, named["snapshot_id"]}:
        raise RefusedError(
            f"the name {named['name']!r} is taken by plan {named['plan_id']}: {named['kind']} on snapshot "
            f"{named['snapshot_id']}, asked for with {_question(named)}; ask for the same, or give this plan another "
            "--name",
        )


def _question(plan: Row) -> str:
    """What was asked, without what came of it."""
    return written({key: value for key, value in json.loads(plan["parameters"]).items() if key != "figures"})


def written(parameters: dict[str, Any]) -> str:
    """Write what was asked as the table has it."""
    return json.dumps(parameters, sort_keys=True)


def mine(plan_id: str) -> str:
    """The condition that names a plan's rows."""
    return f"plan_id = {quoted(plan_id)}"
