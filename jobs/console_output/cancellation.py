"""Output of `surveyor cancel`: what is cancelled of a plan or of single partitions, and what is left alone."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from jobs.preconditions.cancellation_plan import CancellationPlan, PartitionStatus
from jobs.runtime.console import Result, format_cell, truncate
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.enums import Action, Outcome, PlanStatus
from schemas.rows import Key
from schemas.stored_plan import Plan, RowOutcome

_UNCHANGED_TEXTS: Final = {
    ReassignmentStatus.COMPLETE: "complete, not undone",
    ReassignmentStatus.IRREVERSIBLE: "continues, and cannot be cancelled",
    ReassignmentStatus.DIVERGED: "left alone, another client changed it",
}

_UNFINISHED: Final = (ReassignmentStatus.IN_PROGRESS, ReassignmentStatus.OUT_OF_ORDER)


def cancellation_json(plan: Plan, cancellation: CancellationPlan, outcomes: Sequence[RowOutcome] = ()) -> Result:
    """Return the JSON result of the cancellation of a plan; what was cancelled now is counted as that alone."""
    done = [(row.change.action, row.outcome) for row in outcomes]
    of_rows = [outcome for _, outcome in done]
    cancelled = _cancelled_now(outcomes)
    return {
        "plan_id": plan.plan_id,
        "status": plan.row.status,
        "cancelled_now": len(cancelled),
        "reordered_now": done.count((Action.REASSIGN, Outcome.APPLIED)),
        "failed": of_rows.count(Outcome.FAILED),
        "unknown": of_rows.count(Outcome.UNKNOWN),
        **_without(cancellation, cancelled).counts,
        "rejections": [
            {"topic": row.key[0], "partition": row.key[1], "code": row.risk.code.value, "reason": row.risk.reason}
            for row in cancellation.unsafe
            if row.risk is not None
        ],
    }


def _cancelled_now(outcomes: Sequence[RowOutcome]) -> set[Key]:
    return {row.change.key for row in outcomes if (row.change.action, row.outcome) == (Action.CANCEL, Outcome.APPLIED)}


def _without(cancellation: CancellationPlan, cancelled: Collection[Key]) -> CancellationPlan:
    """Leave out the partitions that were cancelled now, which are where they started."""
    rows = [row for row in cancellation.partitions if row.key not in cancelled or row.status in _UNFINISHED]
    return replace(cancellation, partitions=rows)


def counts_in_words(cancellation: CancellationPlan, outcomes: Sequence[RowOutcome] | None = None) -> str:
    """Count the partitions by what becomes of them; with `outcomes`, those cancelled now first, and only once."""
    cancelled = _cancelled_now(outcomes or ())
    counts = {} if outcomes is None else {"cancelled now": len(cancelled)}
    left = _without(cancellation, cancelled).counts
    counts |= {name.replace("_", " "): count for name, count in left.items() if count}
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no changes"


def cancellation_lines(plan: Plan, cancellation: CancellationPlan) -> Iterator[str]:
    """Yield a line for each partition that is cancelled, or left alone for a reason."""
    lines = [line for partition in cancellation.partitions if (line := _line(partition))]
    yield from truncate(lines)
    if plan.row.traits.changes_drained and plan.row.status != PlanStatus.PLANNED:
        brokers = format_cell(plan.row.options["brokers"])
        yield f"  brokers {brokers} may still count as drained: see `surveyor show drained`; `plan undrain` ends that"


def _line(partition: PartitionStatus) -> str | None:
    name, before = partition.change.name, partition.replicas_before
    if partition.risk is not None:
        return f"  {name}  continues: {partition.refusal}"
    if partition.status is ReassignmentStatus.IN_PROGRESS:
        return f"  {name}  to be cancelled: {partition.detail} → {format_cell(before)}"
    if partition.status is ReassignmentStatus.OUT_OF_ORDER:
        return f"  {name}  cancelled, order to be restored: {partition.detail} → {format_cell(before)}"
    if partition.is_unknown:
        return f"  {name}  left alone, not understood: {partition.detail}"
    if partition.status in _UNCHANGED_TEXTS:
        return f"  {name}  {_UNCHANGED_TEXTS[partition.status]}: {partition.detail}"
    return None


def partitions_json(partitions: Sequence[PartitionStatus]) -> Result:
    """Return the JSON result of the cancellation of single partitions."""
    return {
        "partitions": [
            {
                "topic": row.key[0],
                "partition": row.key[1],
                "replicas": None if row.current is None else list(row.current.replicas),
                "moving": row.is_being_reassigned,
                "request": row.request,
                "unsafe": None if row.risk is None else row.risk.reason,
            }
            for row in partitions
        ]
    }


def partition_line(partition: PartitionStatus) -> str:
    """Return what is done with a single partition."""
    request = f"its request for {partition.request} to be removed from /admin/reassign_partitions"
    is_moving = partition.risk is not None or partition.status is ReassignmentStatus.IN_PROGRESS or partition.is_unknown
    parts = [line] if is_moving and (line := _line(partition)) else []
    parts += [] if partition.request is None else [f"{'' if parts else f'  {partition.change.name}  '}{request}"]
    left_alone = f"{'left alone' if partition.is_being_reassigned else 'does not move'}: {partition.detail}"
    left_alone = "no such partition" if partition.current is None else left_alone
    return "; ".join(parts) or f"  {partition.change.name}  {left_alone}"
