"""Which partitions a plan leaves below min.insync.replicas: with fewer in sync, or with fewer replicas at all.

Producers with acks=all get nothing but errors where fewer are in sync, until a replica is back. Of replicas, those of
reassignments count whose new list is too short, also where the list was as short before: the lint refuses only what the
plan makes worse. In: changes, and the snapshot that they were planned on, for what its topics and brokers say. Out:
names of partitions. Topics that a plan creates are not in the snapshot; their configs have warnings of their own
(`jobs.console_output.plan_text.config_warnings`).
"""

from collections.abc import Collection, Sequence
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse, as_rows
from jobs.core.errors import SurveyorError
from jobs.repositories.snapshots import find_snapshot, table_as_of
from jobs.repositories.stored_rows import StoredRows
from jobs.repositories.warehouse_status import default_min_isr_of
from planner.columns.numpy_rules import min_isr_of
from schemas.enums import Action
from schemas.rows import ChangeSummary

MAX_FILTERED_TOPICS: Final = 1_000
"""Topics up to which they are looked for one by one, and not all read."""


def below_min_isr(lake: Warehouse, snapshot_id: int, changes: Sequence[ChangeSummary]) -> list[str]:
    """Name the partitions of changes in memory."""
    smaller = [
        change
        for change in changes
        if change.action != Action.REASSIGN and not 0 < len(change.isr_before or ()) <= len(change.isr_after)
    ]
    minimum = _min_isr(lake, snapshot_id, {change.topic for change in smaller})
    return [change.name for change in smaller if len(change.isr_after) < minimum.get(change.topic, 0)]


def stored_below_min_isr(lake: Warehouse, snapshot_id: int, changes: StoredRows) -> list[str]:
    """Name those of stored changes, of which there may be a million: only the few become objects."""
    others = changes.where(~changes.equal("action", Action.REASSIGN.value))
    smaller = others.where(others.shrinks("isr_after", "isr_before"))
    minimum = _min_isr(lake, snapshot_id, smaller.values("topic"))
    few = smaller.where(smaller.lengths("isr_after") < max(minimum.values(), default=0))
    rows = as_rows(few.table.select(["topic", "partition", "isr_after"]))
    return [
        f"{row['topic']}-{row['partition']}" for row in rows if len(row["isr_after"]) < minimum.get(row["topic"], 0)
    ]


def short_lists(lake: Warehouse, snapshot_id: int, changes: Sequence[ChangeSummary]) -> list[str]:
    """Name the partitions that reassignments in memory leave with fewer replicas than min.insync.replicas."""
    reassigned = [change for change in changes if change.action == Action.REASSIGN]
    minimum = _min_isr(lake, snapshot_id, {change.topic for change in reassigned})
    last = {change.name: change for change in reassigned}
    return [name for name, change in last.items() if len(change.replicas_after) < minimum.get(change.topic, 0)]


def stored_short_lists(lake: Warehouse, snapshot_id: int, changes: StoredRows) -> list[str]:
    """Name those of stored changes in the order of their waves: the last wave of a partition counts."""
    reassigned = changes.where(changes.equal("action", Action.REASSIGN.value))
    minimum = _min_isr(lake, snapshot_id, reassigned.values("topic"))
    few = reassigned.lengths("replicas_after") < max(minimum.values(), default=0)
    if not few.any():
        return []
    rows = reassigned.where(reassigned.with_same_key(few, "topic", "partition")).table
    last = {
        f"{row['topic']}-{row['partition']}": len(row["replicas_after"]) < minimum.get(row["topic"], 0)
        for row in as_rows(rows.select(["topic", "partition", "replicas_after"]))
    }
    return [name for name, short in last.items() if short]


def _min_isr(lake: Warehouse, snapshot_id: int, topics: Collection[str]) -> dict[str, int]:
    """min.insync.replicas of those topics that the snapshot has; of none where the snapshot was dropped."""
    if not topics:
        return {}
    mine = [("topic", "in", sorted(topics))] if len(topics) <= MAX_FILTERED_TOPICS else []
    try:
        snapshot = find_snapshot(lake, snapshot_id)
        known = as_rows(table_as_of(lake, snapshot, "topics", *mine, columns=["topic", "config"]))
        default = default_min_isr_of(lake, snapshot)
    except SurveyorError:
        return {}
    return {row["topic"]: min_isr_of(dict(row["config"] or ()), default) for row in known}
