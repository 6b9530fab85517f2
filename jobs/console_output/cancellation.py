"""Output of `surveyor cancel`: what is cancelled of a plan or of single partitions, and what is left alone."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jobs.preconditions.cancellation_plan import CancellationPlan, PartitionStatus, rejections
from jobs.runtime.console import Result, format_cell, truncate
from planner.reassignment.reassignment_status import CancellationRisk, ReassignmentStatus
from schemas.enums import Outcome, PlanStatus, Step
from schemas.plan import Plan, RowOutcome
from schemas.replica_assignment import ReplicaAssignment
from schemas.rows import Change, Key
from schemas.text import partition_name

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
        "reordered_now": done.count((Step.RESTORE_ORDER, Outcome.APPLIED)),
        "failed": of_rows.count(Outcome.FAILED),
        "unknown": of_rows.count(Outcome.UNKNOWN),
        **_without(cancellation, cancelled).counts,
        "rejections": rejections(cancellation),
    }


def _cancelled_now(outcomes: Sequence[RowOutcome]) -> set[Key]:
    return {row.change.key for row in outcomes if (row.change.action, row.outcome) == (Step.CANCEL, Outcome.APPLIED)}


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
    name = partition.change.name
    before = partition.change.replicas_before if isinstance(partition.change, Change) else None
    if partition.risk is not None:
        return f"  {name}  continues: {partition.risk.code}: {partition.risk.reason}"
    if partition.status is ReassignmentStatus.IN_PROGRESS:
        return f"  {name}  to be cancelled: {partition.detail} → {format_cell(before)}"
    if partition.status is ReassignmentStatus.OUT_OF_ORDER:
        return f"  {name}  cancelled, order to be restored: {partition.detail} → {format_cell(before)}"
    if partition.is_unknown:
        return f"  {name}  left alone, not understood: {partition.detail}"
    if partition.status in _UNCHANGED_TEXTS:
        return f"  {name}  {_UNCHANGED_TEXTS[partition.status]}: {partition.detail}"
    return None


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """A partition to be cancelled, as the cluster shows it."""

    key: Key
    now: ReplicaAssignment | None
    request: list[int] | None
    risk: CancellationRisk | None
    unreadable_reason: str | None = None
    """Reason why its topic cannot be decoded."""
    is_stranded: bool = False
    """Whether no replica can lead it, because none is in sync."""
    isr_after: Sequence[int] | None = None
    """In-sync replicas that a cancellation leaves; None if it is not moving, or its ISR is unknown."""

    @property
    def name(self) -> str:
        return partition_name(*self.key)

    @property
    def is_being_reassigned(self) -> bool:
        return self.now is not None and self.now.is_being_reassigned

    @property
    def is_unfinished(self) -> bool:
        return self.is_being_reassigned or self.request is not None


def readings_json(partitions: Sequence[PartitionReading]) -> Result:
    """Return the JSON result of the cancellation of single partitions."""
    return {
        "partitions": [
            {
                "topic": partition.key[0],
                "partition": partition.key[1],
                "replicas": None if partition.now is None else list(partition.now.replicas),
                "moving": partition.is_being_reassigned,
                "request": partition.request,
                "unsafe": None if partition.risk is None else partition.risk.reason,
            }
            for partition in partitions
        ]
    }


def reading_line(partition: PartitionReading) -> str:
    """Return what is done with a partition."""
    parts, now = [], partition.now
    if partition.risk is not None:
        parts.append(f"continues: {partition.risk.code}: {partition.risk.reason}")
    elif now is not None and now.is_being_reassigned:
        parts.append(f"to be cancelled: adding {list(now.adding)}, removing {list(now.removing)}")
        parts.append(f"back to {now.origin}")
    if partition.request is not None:
        parts.append(f"its request for {partition.request} to be removed from /admin/reassign_partitions")
    if not parts:
        parts.append(_unchanged_text(partition))
    return f"  {partition.name}  {'; '.join(parts)}"


def _unchanged_text(partition: PartitionReading) -> str:
    if partition.unreadable_reason is not None:
        return f"left alone, not understood: {partition.unreadable_reason}"
    return "no such partition" if partition.now is None else f"does not move: replicas {list(partition.now.replicas)}"
