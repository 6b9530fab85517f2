"""State of a cluster in the warehouse for `surveyor status`: last snapshot, open plans, drained brokers, throttles.

`surveyor status` also works without a warehouse, with an empty one and with one of an older version.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

import pyarrow as pa

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import StoreError, Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import SurveyorError
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.controller_epochs import latest_recorded_epoch
from jobs.repositories.snapshots import find_snapshot, last_snapshot, live_brokers_as_of, rows_as_of, table_as_of
from planner.rules.effective_min_isr import default_min_isr, known_min_isr, min_isr_of
from schemas.enums import Action, PlanKind, PlanStatus
from schemas.rows import BrokerConfig, DrainedBroker, PlanRecord, Snapshot, ThrottledConfig
from schemas.stored_plan import OPEN
from schemas.topic_configs import MIN_ISR

MAX_FILTERED_TOPICS: Final = 1_000
"""Number of topics up to which only these topics are read from a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseStatus:
    """The current state in the tables; empty if there are none."""

    snapshot: Snapshot | None = None
    """The newest complete one."""
    plans: list[PlanRecord] = field(default_factory=list)
    """OPEN plans, the newest last, without cycles of `surveyor control`, because the next cycle decides again."""
    taken: Mapping[int, datetime] = field(default_factory=dict)
    """When their snapshots were taken, by snapshot id."""
    operations: Counter[str] = field(default_factory=Counter)
    """The number of operations of each."""
    electing: frozenset[str] = frozenset()
    """Ids of those whose commit has begun and that elect preferred replicas."""
    repeated: frozenset[str] = frozenset()
    """Ids of those that a later plan of the same command follows."""
    removed: Mapping[int, str] = field(default_factory=dict)
    """The plan that removed each broker without replicas, if one did."""
    drained: list[DrainedBroker] = field(default_factory=list)
    drained_by: Mapping[str, str] = field(default_factory=dict)
    """Author of the last commit of each drain, by plan."""
    throttled: list[str] = field(default_factory=list)
    """Ids of plans whose commits have set throttles and not removed them."""
    throttles: list[ThrottledConfig] = field(default_factory=list)
    """The configs that these throttles consist of."""
    latest_epoch: int = 0
    """The latest recorded controller epoch."""
    fault: str | None = None
    """Reason why an existing warehouse could not be read; the other fields are empty then."""
    store_fault: str | None = None
    """The fault without its advice, if the warehouse's store is the cause."""


def read_warehouse_status(warehouse: Warehouse) -> WarehouseStatus:
    """Read the status; it is empty if there is no warehouse or no snapshot."""
    snapshot = last_snapshot(warehouse) if warehouse.exists() else None
    if snapshot is None:
        return WarehouseStatus()
    open_plans = warehouse.typed_rows(PlanRecord, ("status", "in", sorted(OPEN)))
    plans = [plan for plan in open_plans if not plan.is_cycle]
    drained = warehouse.typed_rows(DrainedBroker) if warehouse.has("drained") else []
    return WarehouseStatus(
        snapshot=snapshot,
        plans=sorted(plans, key=attrgetter("created_at")),
        taken=_taken(warehouse, ("snapshot_id", "in", sorted({plan.snapshot_id for plan in plans}))) if plans else {},
        operations=_operations(warehouse, plans),
        electing=_electing(warehouse, plans),
        repeated=_repeated(warehouse, plans),
        drained=drained,
        drained_by=_authors(warehouse, {row.plan_id for row in drained if row.plan_id}),
        throttled=throttled_plans(warehouse),
        throttles=warehouse.typed_rows(ThrottledConfig) if warehouse.has("throttles") else [],
        latest_epoch=latest_recorded_epoch(warehouse, snapshot.cluster_id),
    )


def throttled_plans(warehouse: Warehouse) -> list[str]:
    """Return the ids of plans whose commits have set throttles and not removed them."""
    throttles = (
        warehouse.read("throttles", columns=["plan_id"])["plan_id"] if warehouse.has("throttles") else pa.array([])
    )
    return sorted(set(throttles.to_pylist()))


def removed_brokers(
    warehouse: Warehouse, brokers: Collection[int], registered: Mapping[int, int | None]
) -> dict[int, str]:
    """Return the title of the last committed plan that removed each of these brokers from all replicas.

    A broker that has registered again since the plan may be a new one of the same id.
    """
    kind, status = ("kind", "=", PlanKind.REASSIGN.value), ("status", "=", PlanStatus.COMMITTED.value)
    plans = warehouse.typed_rows(PlanRecord, kind, status) if warehouse.exists() else []
    removed: dict[int, str] = {}
    for plan in sorted(plans, key=attrgetter("created_at")):
        epochs = {row.broker_id: row.broker_epoch for row in plan.brokers}
        gone = {*(plan.options.get("remove_brokers") or ()), *(old for old, _ in plan.options.get("replace") or ())}
        same = (broker for broker in gone.intersection(brokers) if epochs.get(broker) == registered[broker])
        removed |= dict.fromkeys(same, plan.title)
    return removed


def _repeated(warehouse: Warehouse, plans: list[PlanRecord]) -> frozenset[str]:
    commands = ("command", "in", sorted({plan.command for plan in plans if plan.command}))
    rows = warehouse.read("plans", commands, columns=["created_at", "command"]) if commands[2] else None
    newest = {} if rows is None else {command: at for at, command in sorted(values_of(rows, "created_at", "command"))}
    return frozenset(plan.plan_id for plan in plans if plan.created_at < newest.get(plan.command, plan.created_at))


def _electing(warehouse: Warehouse, plans: list[PlanRecord]) -> frozenset[str]:
    begun = ("plan_id", "in", [plan.plan_id for plan in plans if plan.status != PlanStatus.PLANNED])
    if not begun[2]:
        return frozenset()
    elections = warehouse.read("changes", begun, ("action", "=", Action.ELECT_PREFERRED.value), columns=["plan_id"])
    return frozenset(elections["plan_id"].to_pylist())


def _authors(warehouse: Warehouse, plan_ids: Collection[str]) -> dict[str, str]:
    if not plan_ids:
        return {}
    commits = warehouse.read("commits", ("plan_id", "in", sorted(plan_ids)), columns=["plan_id", "committed_at", "who"])
    in_order = values_of(commits.sort_by("committed_at"), "plan_id", "who")
    return {plan_id: author for plan_id, author in in_order if author}


def _operations(warehouse: Warehouse, plans: list[PlanRecord]) -> Counter[str]:
    """Count the operations by plan, because plans that delete or configure topics have no changes."""
    of_plans = ("plan_id", "in", [plan.plan_id for plan in plans])
    owners = warehouse.read("operations", of_plans, columns=["plan_id"])["plan_id"].to_pylist() if plans else []
    return Counter(owners)


def warehouse_status_if_readable(warehouse: Warehouse) -> WarehouseStatus:
    """Read the status, or return the error as its `fault`, so that the live cluster can be shown anyway."""
    try:
        return read_warehouse_status(warehouse)
    except StoreError as error:
        return WarehouseStatus(fault=str(error), store_fault=error.reason)
    except (SurveyorError, OSError) as error:
        return WarehouseStatus(fault=str(error))


def missing_since(warehouse: Warehouse, snapshot: Snapshot, brokers: Collection[int]) -> dict[int, datetime]:
    """Return when each of the brokers missing in this snapshot was first missing in a snapshot.

    A broker in no snapshot counts as missing since the oldest one.
    """
    absent = {*brokers}.difference(row.broker_id for row in live_brokers_as_of(warehouse, snapshot))
    if not absent:
        return {}
    last_seen = brokers_last_seen(warehouse, snapshot)
    last = {broker: last_seen[broker].snapshot_id if broker in last_seen else 0 for broker in absent}
    taken = _taken(warehouse, ("snapshot_id", "<=", snapshot.snapshot_id))
    return {broker: taken[min(number for number in taken if number > last_id)] for broker, last_id in last.items()}


def _taken(warehouse: Warehouse, of_snapshots: Filter) -> dict[int, datetime]:
    snapshots = warehouse.read("snapshots", of_snapshots, columns=["snapshot_id", "taken_at"])
    return dict(values_of(snapshots, "snapshot_id", "taken_at"))


def known_min_isr_of(warehouse: Warehouse, snapshot: Snapshot | None) -> int | None:
    """Return the brokers' default min.insync.replicas in a snapshot, or None if no broker reported it."""
    return max(known_min_isr(_min_isr_rows(warehouse, snapshot)).values(), default=None)


def default_min_isr_of(warehouse: Warehouse, snapshot: Snapshot | None) -> int:
    """Return the brokers' default min.insync.replicas in a snapshot, or Kafka's default if no broker reported it."""
    return default_min_isr(_min_isr_rows(warehouse, snapshot))


def _min_isr_rows(warehouse: Warehouse, snapshot: Snapshot | None) -> list[BrokerConfig]:
    return [] if snapshot is None else rows_as_of(warehouse, snapshot, BrokerConfig, ("name", "=", MIN_ISR))


def min_isr_by_topic(warehouse: Warehouse, snapshot_id: int, topics: Collection[str]) -> dict[str, int]:
    """Return min.insync.replicas of those topics that a snapshot contains; empty if the snapshot was dropped."""
    if not topics:
        return {}
    topic_filter = [("topic", "in", sorted(topics))] if len(topics) <= MAX_FILTERED_TOPICS else []
    try:
        snapshot = find_snapshot(warehouse, snapshot_id)
        rows = table_as_of(warehouse, snapshot, "topics", *topic_filter, columns=["topic", "config"])
        default = default_min_isr_of(warehouse, snapshot)
    except SurveyorError:
        return {}
    return {topic: min_isr_of(dict(config or ()), default) for topic, config in values_of(rows, "topic", "config")}
