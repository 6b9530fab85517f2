"""The views of a snapshot from which the report and the dashboard show a cluster."""

from datetime import datetime
from typing import Final

import pyarrow.compute as pc

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.sql_views.database import Summaries
from jobs.web.cluster_page import IMBALANCE_LISTED
from schemas.rows import Snapshot

MAX_CHANGES_READ: Final = 2_000_000
"""Maximum number of changes read for reasons and outcomes; changes of the newest plans are read."""


def summaries(warehouse: Warehouse, snapshot: Snapshot) -> Summaries:
    """Open the views at a snapshot, restricted to the newest plans if there are more than MAX_CHANGES_READ changes."""
    plans, until = _newest_plans(warehouse, snapshot), until_of(warehouse, snapshot)
    return Summaries(warehouse, snapshot, plans, until, IMBALANCE_LISTED)


def until_of(warehouse: Warehouse, snapshot: Snapshot) -> datetime | None:
    """Return when the next snapshot was taken, which ends the period of this one; None for the newest."""
    after = warehouse.read("snapshots", ("snapshot_id", ">", snapshot.snapshot_id), columns=["taken_at"])["taken_at"]
    taken: datetime | None = pc.min(after).as_py()
    return taken


def _newest_plans(warehouse: Warehouse, snapshot: Snapshot) -> dict[str, Filter]:
    up_to = ("snapshot_id", "<=", snapshot.snapshot_id)
    plans = warehouse.read("plans", up_to, columns=["plan_id", "created_at", "changes"])
    taken, changes = list[str](), 0
    for plan_id, count in values_of(plans.sort_by([("created_at", "descending")]), "plan_id", "changes"):
        changes += count or 0
        if changes > MAX_CHANGES_READ and taken:
            break
        taken.append(plan_id)
    if len(taken) == plans.num_rows:
        return {}
    return dict.fromkeys(("changes", "commits"), ("plan_id", "in", taken))
