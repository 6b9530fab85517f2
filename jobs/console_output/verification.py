"""Output of `surveyor verify`: the counts of a plan's changes, what is unfinished, and what is being copied."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.advice.outage import Outage, in_json
from jobs.advice.plans import after_verification
from jobs.console_output.copy_progress import CopyProgress, copy_figures, copying_json, copying_lines
from jobs.console_output.reassign_partitions_text import status_lines
from jobs.preconditions.limits import UNCOMMITTABLE
from jobs.runtime.cli_enums import TextFormat
from jobs.runtime.console import CommandResult, Result, log, truncate
from jobs.runtime.output import emit
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from planner.placement.plan_figures import Figures, figures_in
from planner.reassignment.partition_rollback import steps_by_partition
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import CurrentPartition
from schemas.enums import Action
from schemas.lease_holder import LeaseHolder
from schemas.rows import Change, Key, PlanRow, changes_among
from schemas.stored_plan import Plan
from schemas.text import join_ids

EVENNESS: Final = {"replicas_per_broker": "replicas", "led_per_broker": "leaders"}
"""Figures of a plan on how evenly brokers are used, and what they count."""

_COUNTED: Final = (
    ReassignmentStatus.COMPLETE,
    ReassignmentStatus.IN_PROGRESS,
    ReassignmentStatus.NOT_STARTED,
    ReassignmentStatus.DIVERGED,
)
"""Statuses that are counted; a cancelled step whose order is not restored counts as not started."""


@dataclass(slots=True)
class Verification:
    """How far a plan has come."""

    plan: Plan
    statuses: list[tuple[PlanRow, ReassignmentStatus, str]]
    """The status of each change and operation, with details."""
    partitions: Mapping[Key, CurrentPartition]
    throttled: bool = False
    """Whether the throttle of its commit is set."""
    holder: LeaseHolder | None = None
    """The process that has the lease of the cluster for this plan."""
    copying: CopyProgress | None = None
    evenness: Figures | None = None
    """The least and most replicas and leaders per broker now."""
    outage: Outage | None = None
    """The partitions that are offline after a plan that was to elect leaders."""
    blocked: str = ""
    """The brokers that are not live and that moves wait for; empty if there are none."""
    warnings: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[ReassignmentStatus]:
        return Counter(status for _, status, _ in self.statuses)

    @property
    def is_complete(self) -> bool:
        return self.counts[ReassignmentStatus.COMPLETE] == len(self.statuses)

    @property
    def moving(self) -> list[Change]:
        """The changes in progress."""
        return changes_among([row for row, status, _ in self.statuses if status is ReassignmentStatus.IN_PROGRESS])


def show_verification(settings: Settings, verification: Verification, text: TextFormat, *, everything: bool) -> None:
    """Print the progress of a plan, in the requested format."""
    for warning in verification.warnings:
        log(f"surveyor: {warning}", logging.WARNING)
    result = verification_result(settings, verification, everything=everything)
    if text is TextFormat.KAFKA:
        result = CommandResult(result.fields, *_kafka_lines(verification))
    emit(settings, result)


def verification_result(settings: Settings, verification: Verification, *, everything: bool) -> CommandResult:
    """Return what shows the progress of a plan."""
    plan, counts, throttled = verification.plan, verification.counts, verification.throttled
    copying = None if verification.copying is None else copy_figures(verification.copying)
    outage = verification.outage
    result: Result = {
        "plan_id": plan.plan_id,
        "status": plan.row.status,
        "is_complete": verification.is_complete,
        "throttled": throttled,
        "blocked": verification.blocked or None,
        **{status.value: counts[status] for status in _COUNTED},
        "copying": None if copying is None else copying_json(copying),
    }
    if verification.evenness is not None:
        result["evenness"] = {"now": verification.evenness, "planned": _planned_evenness(plan)}
    result |= in_json(outage)
    summary = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in _COUNTED if counts[status])
    closed = f", {plan.row.state}" if plan.row.status in UNCOMMITTABLE else ""
    complete = "; the plan is complete" if verification.is_complete and verification.statuses else ""
    show_all = command_line(settings, "verify", plan.called, "--all")
    lines = [
        *([f"  {outage.sentence}"] if outage else []),
        *([f"  in work: {verification.holder}"] if verification.holder else []),
        *([f"  {verification.blocked}"] if verification.blocked else []),
        *_empty_plan_lines(settings, plan),
        *truncate(list(_lines(verification)), show_all, everything=everything),
        *(copying_lines(copying) if copying else ()),
        *(_evenness_lines(result["evenness"]) if verification.evenness else ()),
        *(["  the throttle of its commit is set: it slows down all copying of replicas"] if throttled else []),
    ]
    steps = after_verification(
        settings,
        plan,
        set(counts),
        moving=bool(verification.moving),
        throttled=throttled,
        holder=verification.holder,
    )
    return CommandResult(result, f"plan {plan.title}{closed}: {summary or 'no changes'}{complete}", *lines, steps=steps)


def _empty_plan_lines(settings: Settings, plan: Plan) -> Iterator[str]:
    """Say that a plan without changes has nothing to verify."""
    if not plan.size:
        hint = f": see `{command_line(settings, 'show', 'rejections', plan.called)}`" if plan.rejections else ""
        rejected = f"; {len(plan.rejections)} rejected{hint}" if plan.rejections else ""
        yield f"  it changes nothing, so there is nothing to verify{rejected}"


def _planned_evenness(plan: Plan) -> Result:
    figures = figures_in(plan.row.options)
    return {name: list(span[1]) for name in EVENNESS if (span := getattr(figures, name, None)) is not None}


def _evenness_lines(evenness: Result) -> Iterator[str]:
    """Return lines on what brokers hold and lead now, and on what is planned.

    >>> both = {"replicas_per_broker": [3, 5], "led_per_broker": [0, 4]}
    >>> for line in _evenness_lines({"now": both, "planned": both | {"led_per_broker": [2, 2]}}):
    ...     print(line)
      replicas per broker now 3..5, planned 3..5
      leaders per broker now 0..4, planned 2..2
    """
    for name, label in EVENNESS.items():
        current, planned = (f"{low}..{high}" for low, high in (evenness[when][name] for when in ("now", "planned")))
        yield f"  {label} per broker now {current}, planned {planned}"


def _kafka_lines(verification: Verification) -> Iterator[str]:
    """Return what `kafka-reassign-partitions --verify` would print for the plan's targets."""
    targets = {key: steps[-1].replicas_after for key, steps in steps_by_partition(verification.plan.changes).items()}
    return status_lines(targets, {key: verification.partitions[key].assignment for key in targets})


def _lines(verification: Verification) -> Iterator[str]:
    for change, status, detail in verification.statuses:
        if status is not ReassignmentStatus.COMPLETE:
            yield f"  {change.name}  {status.replace('_', ' ')}: {detail}"
    for change, lagging in _not_in_sync(verification):
        yield f"  {change.name}  complete, but [{join_ids(lagging)}] not in sync: a commit waits before its next wave"


def _not_in_sync(verification: Verification) -> Iterator[tuple[Change, list[int]]]:
    """Return complete moves with those replicas that are not in sync; they may have fallen out of the ISR since."""
    complete = [row for row, status, _ in verification.statuses if status is ReassignmentStatus.COMPLETE]
    for change in changes_among(complete):
        if change.action != Action.REASSIGN or not change.moves_replicas:
            continue
        partition = verification.partitions[change.key]
        lagging = partition.lagging(change.replicas_after)
        if lagging and partition.assignment is not None and partition.assignment.replicas == change.replicas_after:
            yield change, lagging
