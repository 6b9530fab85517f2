"""What the warehouse says of a cluster besides its partitions: the last snapshot, plans that wait, who is drained.

For `surveyor status`, which also works without a warehouse, with one that was never used and with one of an older
version. No JVM.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.core.errors import SurveyorError
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.controller_epochs import latest_recorded_epoch
from jobs.repositories.plans.repository import is_cycle
from jobs.repositories.snapshots import as_of, last_snapshot
from planner.columns.numpy_rules import default_min_isr, max_known_min_isr
from schemas.enums import PlanStatus
from schemas.topic_configs import MIN_ISR

OPEN: Final = (PlanStatus.PLANNED, PlanStatus.COMMITTING, PlanStatus.PARTIAL)
"""What a plan is as long as somebody may still want to commit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseStatus:
    """The last word of the tables; empty where there are none."""

    snapshot: Row | None = None
    """The newest complete one."""
    plans: list[Row] = field(default_factory=list)
    """Those that are OPEN, the newest last; `operations` says how many each has besides its changes.

    Without the cycles of `surveyor control`: what they left is decided on in the next one.
    """
    drained: list[Row] = field(default_factory=list)
    throttled: list[str] = field(default_factory=list)
    """Ids of plans whose commits have set throttles and not taken them away."""
    latest_epoch: int = 0
    """The latest controller epoch that is recorded."""
    fault: str | None = None
    """Why a warehouse that is there could not be read, and nothing of it is known."""


def read_warehouse_status(lake: Warehouse) -> WarehouseStatus:
    """Read it; nothing where the warehouse is absent, or no snapshot was ever taken."""
    snapshot = last_snapshot(lake) if lake.exists() else None
    if snapshot is None:
        return WarehouseStatus()
    open_plans = lake.rows("plans", ("status", "in", [status.value for status in OPEN]))
    plans = _with_operations(lake, [plan for plan in open_plans if not is_cycle(plan)])
    drained = lake.rows("drained") if lake.has("drained") else []
    return WarehouseStatus(
        snapshot=snapshot,
        plans=sorted(plans, key=lambda row: row["created_at"]),
        drained=drained,
        throttled=throttled_plans(lake),
        latest_epoch=latest_recorded_epoch(lake, snapshot.get("cluster_id")),
    )


def throttled_plans(lake: Warehouse) -> list[str]:
    """Ids of plans whose commits have set throttles and not taken them away."""
    throttles = lake.read("throttles", columns=["plan_id"])["plan_id"] if lake.has("throttles") else pa.array([])
    return sorted(set(throttles.to_pylist()))


def _with_operations(lake: Warehouse, plans: list[Row]) -> list[Row]:
    """A plan that deletes or configures topics has no change, and yet it waits."""
    mine = ("plan_id", "in", [row["plan_id"] for row in plans])
    owners = lake.read("operations", mine, columns=["plan_id"])["plan_id"].to_pylist() if plans else []
    operations = Counter(owners)
    return [row | {"operations": operations[row["plan_id"]]} for row in plans]


def warehouse_status_if_readable(lake: Warehouse) -> WarehouseStatus:
    """The same, or why not: whoever looks at the cluster itself is not kept from it by a warehouse."""
    try:
        return read_warehouse_status(lake)
    except (SurveyorError, OSError) as error:
        return WarehouseStatus(fault=str(error))


def missing_since(lake: Warehouse, snapshot: Row, brokers: Collection[int]) -> dict[int, datetime]:
    """When the first of the snapshots up to this one was taken that miss a broker, for those that this one misses.

    A broker that no snapshot has seen is missed by the oldest.
    """
    absent = {*brokers}.difference(row["broker_id"] for row in as_of(lake, snapshot, "brokers"))
    if not absent:
        return {}
    seen = brokers_last_seen(lake, snapshot)
    last = {broker: seen[broker]["snapshot_id"] if broker in seen else 0 for broker in absent}
    snapshots = lake.read("snapshots", ("snapshot_id", "<=", snapshot["snapshot_id"]))
    taken = {row["snapshot_id"]: row["taken_at"] for row in snapshots.select(["snapshot_id", "taken_at"]).to_pylist()}
    return {broker: taken[min(each for each in taken if each > until)] for broker, until in last.items()}


def known_min_isr_of(lake: Warehouse, snapshot: Row | None) -> int | None:
    """The min.insync.replicas of topics that do not say, as a snapshot's brokers do; None where none has told."""
    return max_known_min_isr(_min_isr_rows(lake, snapshot))


def default_min_isr_of(lake: Warehouse, snapshot: Row | None) -> int:
    """The same, and Kafka's default where none has told."""
    return default_min_isr(_min_isr_rows(lake, snapshot))


def _min_isr_rows(lake: Warehouse, snapshot: Row | None) -> list[Row]:
    return [] if snapshot is None else as_of(lake, snapshot, "broker_configs", ("name", "=", MIN_ISR))
