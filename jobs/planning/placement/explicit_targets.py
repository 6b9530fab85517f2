"""Targets from a file or an earlier snapshot: checked by the lint, measured, and cut into waves.

Corresponds to `kafka-reassign-partitions --execute`. In: the targets and the limits given with them. Out: a Planner.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jobs.core.errors import UsageError
from jobs.planning.placement.lint import KEY, Lint, StatedTargets
from jobs.planning.placement.optimise import evaluate_targets
from jobs.planning.placement.placement_options import PlacementLimits, stated_caps
from jobs.planning.placement.snapshot_targets import snapshot_targets
from jobs.planning.plan import PlanDraft, Planner
from jobs.planning.planning_tables import partitions_with_requests
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.runtime.input_files import read_reassignment
from planner.reassignment.targets import reassignment_rejections

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
    stated = {"targets": targets, **racks, **limits.permissions, **stated_caps(limits.caps)}

    def planner(at: SnapshotTables) -> PlanDraft:
        return _draft_of(at, StatedTargets(rows=at.targets(targets), parameters=stated), limits)

    return planner


def from_snapshot(snapshot_id: int, limits: PlacementLimits) -> Planner:
    """Plan the replicas of an earlier snapshot, for partitions that can go back to them."""
    if limits.max_moves is not None or limits.reorder or not limits.elect:
        raise UsageError(
            f"{TO_SNAPSHOT} takes targets as they are: leave out --max-moves, --reorder-leaders and --skip-elections; "
            "use --topics and --exclude to limit it",
        )
    stated = {"to_snapshot": snapshot_id, **limits.stated}

    def planner(at: SnapshotTables) -> PlanDraft:
        past = snapshot_targets(at, snapshot_id, limits.scope())
        tables = partitions_with_requests(at), at["topics"], at["brokers"]
        held = reassignment_rejections(past.targets, *tables).localCheckpoint()
        free = past.targets.join(held.select(*KEY), [*KEY], "left_anti")
        return _draft_of(at, StatedTargets(rows=free, parameters=stated, held=past.held.unionByName(held)), limits)

    return planner


def _draft_of(at: SnapshotTables, targets: StatedTargets, limits: PlacementLimits) -> PlanDraft:
    lint = Lint(
        factor_may_change=True,
        rack_aware=limits.rack_aware,
        leaves_out=False,
        below_min_isr=limits.allow_below_min_isr,
    )
    targets = replace(targets, skip_unsafe=limits.skip_unsafe)
    faults = lint.faults(at, targets.rows).localCheckpoint()
    has_faults = not faults.isEmpty()
    if has_faults and not limits.skip_unsafe:
        return targets.draft(at, faults)
    sound = targets.rows.join(faults.select(*KEY), [*KEY], "left_anti") if has_faults else targets.rows
    answer = evaluate_targets(at, sound.select(*KEY, "replicas").toArrow(), limits.caps, rack_aware=limits.rack_aware)
    if limits.caps.one_at_a_time:
        faults = faults.unionByName(lint.faults(at, answer.targets)).localCheckpoint()
    parameters = {**targets.parameters, "figures": answer.figures}
    return replace(targets, rows=answer.targets, parameters=parameters).draft(at, faults)
