"""Targets from a file or an earlier snapshot: checked by the lint, measured, and cut into waves.

Corresponds to `kafka-reassign-partitions --execute`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import RefusedError, UsageError
from jobs.planning.placement.linted_targets import Lint, StatedTargets
from jobs.planning.placement.optimise import evaluate_targets
from jobs.planning.placement.partition_arrays import Scope
from jobs.planning.placement.placement_options import PlacementLimits, stated_caps
from jobs.planning.plan_draft import PlanDraft, Planner
from jobs.planning.planning_tables import PlanningTables, partitions_with_requests
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.input_files import read_reassignment
from planner.columns.change_rows import as_rejections
from planner.reassignment.snapshot_targets import snapshot_targets
from planner.reassignment.targets import reassignment_rejections
from schemas.enums import Action
from schemas.tables import PARTITION_KEY

FROM_FILE: Final = "--reassignment-json-file"
TO_SNAPSHOT: Final = "--to-snapshot"


def from_file(path: Path, limits: PlacementLimits) -> Planner:
    """Plan the targets of a file unchanged; it sets the number of replicas, and every target must pass the lint."""
    if any(limit is not None for limit in (limits.topics, limits.exclude, limits.max_moves)) or limits.reorder:
        raise UsageError(
            f"{FROM_FILE} takes targets as they are: leave out --topics, --exclude, --max-moves, --reorder-leaders and "
            "--skip-elections"
        )
    targets = read_reassignment(path)
    racks: dict[str, Any] = {} if limits.rack_aware else {"rack_aware": False}
    parameters = {
        "targets": [asdict(target) for target in targets],
        **racks,
        **limits.permissions,
        **stated_caps(limits.caps),
    }

    def planner(tables: PlanningTables) -> PlanDraft:
        return _draft_of(tables, StatedTargets(rows=tables.targets(targets), parameters=parameters), limits)

    return planner


def from_snapshot(snapshot_id: int, limits: PlacementLimits) -> Planner:
    """Plan the replicas of an earlier snapshot, for partitions that can go back to them."""
    if limits.max_moves is not None or limits.reorder or not limits.elect:
        raise UsageError(
            f"{TO_SNAPSHOT} takes targets as they are: leave out --max-moves, --reorder-leaders and --skip-elections; "
            "use --topics and --exclude to limit it",
        )
    parameters = {"to_snapshot": snapshot_id, **limits.parameters}

    def planner(tables: PlanningTables) -> PlanDraft:
        past = _snapshot_targets(tables, snapshot_id, limits.scope())
        frames = partitions_with_requests(tables), tables["topics"], tables["brokers"]
        held = reassignment_rejections(past.targets, *frames).localCheckpoint()
        free = past.targets.join(held.select(*PARTITION_KEY), [*PARTITION_KEY], "left_anti")
        return _draft_of(
            tables, StatedTargets(rows=free, parameters=parameters, held=past.held.unionByName(held)), limits
        )

    return planner


def _draft_of(tables: PlanningTables, targets: StatedTargets, limits: PlacementLimits) -> PlanDraft:
    lint = Lint(
        factor_may_change=True,
        rack_aware=limits.rack_aware,
        leaves_out=False,
        below_min_isr=limits.allow_below_min_isr,
        internal=limits.internal,
    )
    targets = replace(targets, skip_unsafe=limits.skip_unsafe)
    faults = lint.faults(tables, targets.rows).localCheckpoint()
    has_faults = not faults.isEmpty()
    if has_faults and not limits.skip_unsafe:
        return targets.draft(tables, faults)
    faulty = faults.select(*PARTITION_KEY)
    sound = targets.rows.join(faulty, PARTITION_KEY, "left_anti") if has_faults else targets.rows
    targets_given = sound.select(*PARTITION_KEY, "replicas").toArrow()
    evaluated = evaluate_targets(tables, targets_given, limits.caps, rack_aware=limits.rack_aware)
    if limits.caps.one_at_a_time:
        faults = faults.unionByName(lint.faults(tables, evaluated.targets)).localCheckpoint()
    parameters = {**targets.parameters, "figures": evaluated.figures}
    return replace(targets, rows=evaluated.targets, parameters=parameters).draft(tables, faults)


@dataclass(frozen=True, slots=True)
class _SnapshotTargets:
    """Targets as reassignment plans take them, and rejections."""

    targets: DataFrame
    held: DataFrame


def _snapshot_targets(tables: PlanningTables, snapshot_id: int, scope: Scope) -> _SnapshotTargets:
    """Compare two snapshots; raise UsageError for a missing snapshot, RefusedError if the scope is empty."""
    then = SnapshotTables(tables.spark_warehouse, find_snapshot(tables.warehouse, snapshot_id))
    both: dict[str, SnapshotTables] = {"then": then, "now": tables}
    topic_names = {
        when: {row.topic for row in tables["topics"].select("topic").collect()} for when, tables in both.items()
    }
    inside = scope.among(topic_names["then"] | topic_names["now"])
    frames = {when: _in_scope(tables, topic_names[when], inside) for when, tables in both.items()}
    if not any(topics.count() for topics in frames.values()):
        raise RefusedError(f"no topic of snapshots {snapshot_id} and {tables.snapshot.snapshot_id} is requested")
    rows = snapshot_targets(
        _of(then, frames["then"]),
        frames["then"],
        _of(tables, frames["now"]),
        frames["now"],
        tables["brokers"],
        then=snapshot_id,
    ).localCheckpoint()
    return _SnapshotTargets(
        targets=rows.where(F.col("code").isNull()).select("topic", "partition", "replicas"),
        held=rows.transform(as_rejections, Action.REASSIGN),
    )


def _in_scope(tables: SnapshotTables, names: set[str], inside: set[str]) -> DataFrame:
    """Return the topics that may change; their names fit on the driver, which has Python's regular expressions."""
    topics = tables["topics"]
    if names <= inside:
        return topics
    chosen = tables.spark_warehouse.spark.createDataFrame([(name,) for name in sorted(names & inside)], "topic string")
    return topics.join(F.broadcast(chosen), "topic", "left_semi")


def _of(tables: SnapshotTables, topics: DataFrame) -> DataFrame:
    return tables["partitions"].join(F.broadcast(topics.select("topic")), "topic", "left_semi")
