"""A plan made without Spark, stored as `jobs.planning` stores one: its rows first, its row in `plans` last.

The id is the same hash of the content, computed in Python (`schemas.digest`), so planning again finds the same plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobs.adapters.lake import Lake, Row, quoted
from jobs.errors import RefusedError
from schemas.digest import plan_header, plan_id
from schemas.names import PlanKind, PlanStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A plan before it has an id; `broker_epochs` are those of the brokers alive."""

    kind: PlanKind
    parameters: dict[str, Any]
    snapshot_id: int
    cluster_id: str | None
    broker_epochs: Mapping[int, int]
    changes: Sequence[Row]
    rejections: Sequence[Row]

    @property
    def written(self) -> str:
        return json.dumps(self.parameters, sort_keys=True)


def plan_named(lake: Lake, name: str | None, kind: PlanKind, parameters: dict[str, Any]) -> Row | None:
    """Return the plan that has a name, None where none has; raise RefusedError if it was asked for in other words."""
    found = [] if name is None else lake.rows("plans", ("name", "=", name))
    if not found:
        return None
    named = found[0]
    if (named["kind"], named["parameters"]) != (kind.value, json.dumps(parameters, sort_keys=True)):
        raise RefusedError(
            f"the name {name!r} is taken by plan {named['plan_id']}: {named['kind']}, asked for with "
            f"{named['parameters']}; ask for the same, or give this plan another --name",
        )
    return named


def store_content(lake: Lake, name: str | None, content: Content) -> str:
    """Store a plan, or find it stored; return its id."""
    lake.ensure_tables()
    plan: Row = {
        "cluster": lake.cluster,
        "name": name,
        "snapshot_id": content.snapshot_id,
        "kind": content.kind.value,
        "parameters": content.written,
        "created_at": datetime.now(UTC),
        "status": PlanStatus.PLANNED.value,
        "changes": len(content.changes),
        "rejected": len(content.rejections),
        "moves": sum(len(change["adding_after"]) for change in content.changes),
        "cluster_id": content.cluster_id,
        "brokers": [{"broker_id": b, "broker_epoch": epoch} for b, epoch in sorted(content.broker_epochs.items())],
    }
    rows: dict[str, Sequence[Row]] = {
        "changes": content.changes,
        "operations": [],
        "rejections": content.rejections,
    }
    found = plan_id(plan_header(plan), rows)
    mine = f"plan_id = {quoted(found)}"
    known = lake.rows("plans", ("plan_id", "=", found))
    if known:
        if name is not None and known[0]["name"] is None:
            lake.update("plans", mine, name=quoted(name))
        return found
    for table, its_rows in rows.items():
        lake.replace(table, [{**row, "plan_id": found} for row in its_rows], mine)
    lake.replace("plans", [plan | {"plan_id": found}], mine)
    return found
