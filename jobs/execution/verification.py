"""Verification of a plan: how far it has come, change by change and byte by byte, as the cluster shows it now.

A plan that is found complete is recorded as complete. So verification writes to the warehouse, but never to the
cluster.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.adapters.zookeeper.connection import ZooKeeperSession, sync
from jobs.adapters.zookeeper.current_state import partitions_now, read_current, read_operations
from jobs.advice.outage import in_json, outage_after
from jobs.advice.plans import after_verification
from jobs.console_output.copy_progress import copying_lines, copying_result
from jobs.console_output.kafka_text import status_lines
from jobs.core.errors import ExitCode
from jobs.execution.copy_progress import measure
from jobs.execution.rolled_back import close_rolled_back
from jobs.preconditions.limits import UNCOMMITTABLE
from jobs.preconditions.verification import current_evenness, verify_plan
from jobs.repositories.figures import Figures, figures_in
from jobs.repositories.plans.commit_log import note_verified
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.cli_enums import TextFormat
from jobs.runtime.console import Result, emit_result, log, truncate
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from planner.reassignment.cancellation import ReassignmentStatus
from planner.reassignment.rollback import steps_by_partition
from schemas.rows import PlanRow, changes_among

EVENNESS: Final = {"replicas_per_broker": "replicas", "led_per_broker": "leaders"}
"""Figures of a plan on how evenly brokers are used, and what they count."""

_COUNTED: Final = (
    ReassignmentStatus.COMPLETE,
    ReassignmentStatus.IN_PROGRESS,
    ReassignmentStatus.NOT_STARTED,
    ReassignmentStatus.DIVERGED,
)
"""Statuses that are counted; a cancelled step whose order is not restored counts as not started."""


def report_verification(
    settings: Settings, plan: str, interval: float, text: TextFormat, *, everything: bool, detailed: bool
) -> ExitCode:
    """Show how far a plan has come; `interval` seconds lie between two readings of what is being copied."""
    stored_plan = read_plan(settings.lake, plan)
    with ZooKeeperSession(settings.zookeeper) as zookeeper:
        return _report_stored(
            settings, zookeeper, stored_plan, interval, text, everything=everything, detailed=detailed
        )


def _report_stored(
    settings: Settings,
    zookeeper: ZooKeeperSession,
    stored_plan: Plan,
    interval: float,
    text: TextFormat,
    *,
    everything: bool,
    detailed: bool,
) -> ExitCode:
    with zookeeper.connected() as client:
        sync(client)
        current, operations = read_current(client, stored_plan.changes), read_operations(client, stored_plan.tasks)
        statuses = verify_plan(stored_plan, current, operations)
        counts = Counter(status for _, status, _ in statuses)
        complete = counts[ReassignmentStatus.COMPLETE] == len(statuses)
        if complete:
            note_verified(settings.lake, stored_plan)
            if unmarked := close_rolled_back(client, settings, stored_plan):
                log(f"surveyor: {unmarked}", logging.WARNING)
    throttled = stored_plan.plan_id in throttled_plans(settings.lake)
    summary_fields = {
        "plan_id": stored_plan.plan_id,
        "status": stored_plan.row.status,
        "is_complete": complete,
        "throttled": throttled,
    }
    result: Result = {**summary_fields, **{status.value: counts[status] for status in _COUNTED}}
    moving = changes_among([row for row, status, _ in statuses if status is ReassignmentStatus.IN_PROGRESS])
    copying = None if text is TextFormat.KAFKA else measure(zookeeper, settings, moving, interval)
    result["copying"] = None if copying is None else copying_result(copying)
    evenness = None if text is TextFormat.KAFKA else _evenness_now(settings, zookeeper, stored_plan)
    if evenness is not None:
        result["evenness"] = {"now": evenness, "planned": _planned_evenness(stored_plan)}
    summary = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in _COUNTED if counts[status])
    outage = outage_after(settings, stored_plan.row)
    result |= in_json(outage)
    closed = f", {stored_plan.row.status}" if stored_plan.row.status in UNCOMMITTABLE else ""
    title = f"plan {stored_plan.title}{closed}: {summary or 'no changes'}"
    lines = [
        *([f"  {outage.sentence}"] if outage else []),
        *_empty_plan_lines(settings, stored_plan),
        *truncate(
            list(_lines(statuses)), command_line(settings, "verify", stored_plan.called, "--all"), everything=everything
        ),
        *(copying_lines(result["copying"]) if copying else ()),
        *(_evenness_lines(result["evenness"]) if evenness else ()),
        *(["  the throttle of its commit is set: it slows down all copying of replicas"] if throttled else []),
    ]
    if text is TextFormat.KAFKA:
        emit_result(settings, result, *_kafka_lines(zookeeper, stored_plan))
    else:
        found_statuses = {status for _, status, _ in statuses}
        steps = after_verification(settings, stored_plan, found_statuses, moving=bool(moving), throttled=throttled)
        emit_result(
            settings, result, title + ("; the plan is complete" if complete and statuses else ""), *lines, steps=steps
        )
    return ExitCode.CHANGES if detailed and not complete else ExitCode.DONE


def _empty_plan_lines(settings: Settings, plan: Plan) -> Iterator[str]:
    """Say that a plan without changes has nothing to verify."""
    if not plan.size:
        hint = f": see `{command_line(settings, 'show', 'rejections', plan.called)}`" if plan.rejections else ""
        rejected = f"; {len(plan.rejections)} rejected{hint}" if plan.rejections else ""
        yield f"  it changes nothing, so there is nothing to verify{rejected}"


def _evenness_now(settings: Settings, zookeeper: ZooKeeperSession, plan: Plan) -> Figures | None:
    if "brokers_counted" not in figures_in(plan.row):
        return None
    with zookeeper.connected() as client:
        sync(client)
        current = partitions_now(client, [change.key for change in plan.changes])
    return current_evenness(settings.lake, plan, current)


def _planned_evenness(plan: Plan) -> Result:
    figures = figures_in(plan.row)
    return {name: figures[name][1] for name in EVENNESS if name in figures}


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


def _kafka_lines(zookeeper: ZooKeeperSession, plan: Plan) -> Iterator[str]:
    """Return what `kafka-reassign-partitions --verify` would print for the plan's targets."""
    final_changes = [steps[-1] for steps in steps_by_partition(plan.changes).values()]
    with zookeeper.connected() as client:
        sync(client)
        current = partitions_now(client, [change.key for change in final_changes])
    return status_lines(
        (
            {"topic": change.topic, "partition": change.partition, "replicas": change.replicas_after},
            current[change.key].assignment,
        )
        for change in final_changes
    )


def _lines(statuses: Sequence[tuple[PlanRow, ReassignmentStatus, str]]) -> Iterator[str]:
    for change, status, detail in statuses:
        if status is not ReassignmentStatus.COMPLETE:
            yield f"  {change.name}  {status.replace('_', ' ')}: {detail}"
