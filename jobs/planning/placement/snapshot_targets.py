"""`plan reassign --to-snapshot`: the replicas of an earlier snapshot as targets, and partitions that cannot go back.

In: the snapshot planned on, the id of the earlier one, and the topics that may change. Out: SnapshotTargets.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import RefusedError
from jobs.planning.placement.partition_arrays import Scope
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import find_snapshot
from planner.columns.changes import as_rejections
from planner.reassignment.snapshot_targets import snapshot_targets as targets_from
from schemas.enums import Action


@dataclass(frozen=True, slots=True)
class SnapshotTargets:
    """Targets as reassignment plans take them, and rejections."""

    targets: DataFrame
    held: DataFrame


def snapshot_targets(at: SnapshotTables, snapshot_id: int, scope: Scope) -> SnapshotTargets:
    """Compare two snapshots; raise UsageError for a missing snapshot, RefusedError if the scope is empty."""
    then = SnapshotTables(at.tables, find_snapshot(at.tables.warehouse, snapshot_id))
    both = {"then": then, "now": at}
    topic_names = {when: {row.topic for row in each["topics"].select("topic").collect()} for when, each in both.items()}
    inside = scope.among(topic_names["then"] | topic_names["now"])
    tables = {when: _in_scope(each, topic_names[when], inside) for when, each in both.items()}
    if not any(topics.count() for topics in tables.values()):
        raise RefusedError(f"no topic of snapshots {snapshot_id} and {at.snapshot.snapshot_id} is requested")
    rows = targets_from(
        _of(then, tables["then"]),
        tables["then"],
        _of(at, tables["now"]),
        tables["now"],
        at["brokers"],
        then=snapshot_id,
    ).localCheckpoint()
    return SnapshotTargets(
        targets=rows.where(F.col("code").isNull()).select("topic", "partition", "replicas"),
        held=rows.transform(as_rejections, Action.REASSIGN),
    )


def _in_scope(tables: SnapshotTables, names: set[str], inside: set[str]) -> DataFrame:
    """Return the topics that may change; their names fit on the driver, which has Python's regular expressions."""
    topics = tables["topics"]
    if names <= inside:
        return topics
    chosen = tables.tables.spark.createDataFrame([(name,) for name in sorted(names & inside)], "topic string")
    return topics.join(F.broadcast(chosen), "topic", "left_semi")


def _of(tables: SnapshotTables, topics: DataFrame) -> DataFrame:
    return tables["partitions"].join(F.broadcast(topics.select("topic")), "topic", "left_semi")
