"""`surveyor report`: writes a page to a file atomically. It needs no JVM."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.filtered_reads import Filter
from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.core.errors import UsageError
from jobs.core.units import format_bytes
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import CommandResult
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries
from jobs.web.cluster_page import cluster_page
from jobs.web.plan_page import PlanTables, plan_page
from schemas.rows import Snapshot

MOST_CHANGES: Final = 2_000_000
"""Maximum number of changes read for reasons and outcomes; changes of the newest plans are read."""


def write_report(settings: Settings, out: Path | None, plan: str | None, snapshot_id: int | None) -> CommandResult:
    """Write the report of a plan, or of the cluster; raise UsageError if the file cannot be written."""
    now = datetime.now(UTC)
    if plan is not None and snapshot_id is not None:
        raise UsageError(
            "--snapshot applies to the report of a cluster, and a plan has its own snapshot; give only one of the two"
        )
    if out is not None:
        refuse_unwritable(out)
    result: Row
    with progress("reading the tables and rendering the page"):
        if plan is None:
            chosen = find_snapshot(settings.lake, snapshot_id)
            html = cluster_page(summaries(settings.lake, chosen), now)
            path = out or Path("report.html")
            result = {"snapshot_id": chosen.snapshot_id}
        else:
            tables = PlanTables.read(settings.lake, plan)
            html = plan_page(settings, tables, now)
            path = out or Path(f"plan-{tables.row.plan_id}.html")
            result = {"snapshot_id": tables.row.snapshot_id, "plan_id": tables.row.plan_id}
    written = replace_file(path, html)
    result |= {"path": str(path), "bytes": written}
    about = f"plan {result['plan_id']}" if plan else f"{settings.cluster}, snapshot {result['snapshot_id']}"
    return CommandResult(result, f"report of {about}: {path} ({format_bytes(written)})")


def summaries(lake: Warehouse, snapshot: Snapshot) -> Summaries:
    """Open the views at a snapshot, restricted to the newest plans if there are more than MOST_CHANGES changes."""
    return Summaries(lake, snapshot, _newest_plans(lake, snapshot), until_of(lake, snapshot))


def until_of(lake: Warehouse, snapshot: Snapshot) -> datetime | None:
    """Return when the next snapshot was taken, which ends the period of this one; None for the newest."""
    after = lake.read("snapshots", ("snapshot_id", ">", snapshot.snapshot_id), columns=["taken_at"])["taken_at"]
    taken: datetime | None = pc.min(after).as_py()
    return taken


def _newest_plans(lake: Warehouse, snapshot: Snapshot) -> dict[str, Filter]:
    up_to = ("snapshot_id", "<=", snapshot.snapshot_id)
    plans = lake.read("plans", up_to, columns=["plan_id", "created_at", "changes"])
    taken, changes = list[str](), 0
    for row in plans.sort_by([("created_at", "descending")]).to_pylist():
        changes += row["changes"] or 0
        if changes > MOST_CHANGES and taken:
            break
        taken.append(row["plan_id"])
    if len(taken) == plans.num_rows:
        return {}
    return dict.fromkeys(("changes", "commits"), ("plan_id", "in", taken))
