"""Losses from topics that a plan deletes: partitions and bytes from the tables, records from the brokers'
offsets.

None stands for an unknown figure. The tables are as old as the plan's snapshot and the last `surveyor sizes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import SurveyorError
from jobs.repositories.snapshots import find_snapshot, table_as_of
from schemas.enums import OperationKind
from schemas.rows import Operation, PlanRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionImpact:
    """A topic, and what is deleted with it."""

    topic: str
    partitions: int | None
    """Number of partitions in the plan's snapshot; None if that snapshot was dropped."""
    replicas: int | None
    """Number of replicas whose bytes `surveyor sizes` has measured; None if it has measured none."""
    bytes: int | None
    """Total bytes of these replicas."""
    sizes_at: datetime | None
    """When the first of them was measured."""
    records: int | None = None
    """Sum over the partitions of the offsets between the first and the last record."""


def deletion_impact_of(
    warehouse: Warehouse, plan: PlanRecord, records: Mapping[str, int] | None = None
) -> list[DeletionImpact]:
    """Return what is lost with the topics that a plan deletes; none for plans of other kinds."""
    if not plan.traits.deletes_topics:
        return []
    rows = warehouse.typed_rows(
        Operation, ("plan_id", "=", plan.plan_id), ("kind", "=", OperationKind.DELETE_TOPIC.value)
    )
    return deletion_impact(warehouse, plan, [row.topic for row in rows], records or {})


def deletion_impact(
    warehouse: Warehouse, plan: PlanRecord, topics: Sequence[str], records: Mapping[str, int]
) -> list[DeletionImpact]:
    """Return what is lost with these topics; `records` contains those whose brokers answered."""
    partitions = {topic: _partitions(warehouse, plan, topic) for topic in topics}
    return [_deleted(warehouse, topic, partitions[topic], records.get(topic)) for topic in topics]


def _partitions(warehouse: Warehouse, plan: PlanRecord, topic: str) -> int | None:
    try:
        snapshot = find_snapshot(warehouse, plan.snapshot_id)
        rows = table_as_of(warehouse, snapshot, "partitions", ("topic", "=", topic), columns=["partition"])
    except SurveyorError:
        return None
    return int(rows.num_rows)


def _deleted(warehouse: Warehouse, topic: str, partitions: int | None, records: int | None) -> DeletionImpact:
    logs = list(values_of(warehouse.read("sizes", ("topic", "=", topic)), "bytes", "taken_at"))
    return DeletionImpact(
        topic=topic,
        partitions=partitions,
        replicas=len(logs) or None,
        bytes=sum(size for size, _ in logs) if logs else None,
        sizes_at=min((taken_at for _, taken_at in logs), default=None),
        records=records,
    )
