"""A plan verified: how far it has come, change by change and byte by byte, as the cluster shows it now.

A plan that is found complete is recorded as that, so this writes to the warehouse, and never to the cluster.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.adapters.zookeeper.connection import Znode, connected, sync
from jobs.advice.outage import in_json, outage_after
from jobs.advice.plans import after_verification
from jobs.console_output.copy_progress import copying_lines, copying_result
from jobs.console_output.kafka_text import status_lines
from jobs.core.errors import ExitCode
from jobs.preconditions.changes import assigned, read_changed
from jobs.preconditions.copy_progress import measure
from jobs.preconditions.limits import UNCOMMITTABLE
from jobs.preconditions.rollback import close_rolled_back
from jobs.preconditions.verification import current_evenness, verify_plan
from jobs.repositories.figures import figures_in
from jobs.repositories.plans.commit_log import note_verified
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.cli_enums import TextFormat
from jobs.runtime.console import Result, emit_result, truncate
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from planner.reassignment.cancellation import ReassignmentStatus
from planner.reassignment.replica_assignment import ReplicaAssignment
from planner.reassignment.rollback import steps_by_partition
from schemas.rows import PlanRow, changes_among

EVENNESS: Final = {"replicas_per_broker": "replicas", "led_per_broker": "leaders"}
"""Figures of a plan that tell how even brokers are, and what they count."""

_COUNTED: Final = (
    ReassignmentStatus.COMPLETE,
    ReassignmentStatus.IN_PROGRESS,
    ReassignmentStatus.NOT_STARTED,
    ReassignmentStatus.DIVERGED,
)
"""What a change can be; a cancelled step whose order is not restored counts as not started."""


def report_verification(
    settings: Settings, plan: str, interval: float, text: TextFormat, *, everything: bool, detailed: bool
) -> ExitCode:
    """Show how far a plan has come; of what is being copied, two looks so many seconds apart."""
    whole = read_plan(settings.lake, plan)
    standings = verify_plan(settings, whole)
    counts = Counter(standing for _, standing, _ in standings)
    complete = counts[ReassignmentStatus.COMPLETE] == len(standings)
    if complete:
        note_verified(settings.lake, whole)
        close_rolled_back(settings, whole)
    throttled = whole.plan_id in throttled_plans(settings.lake)
    known = {
        "plan_id": whole.plan_id,
        "status": whole.row["status"],
        "is_complete": complete,
        "throttled": throttled,
    }
    result: Result = {**known, **{standing.value: counts[standing] for standing in _COUNTED}}
    moving = changes_among([row for row, standing, _ in standings if standing is ReassignmentStatus.IN_PROGRESS])
    copying = None if text is TextFormat.KAFKA else measure(settings, moving, interval)
    result["copying"] = None if copying is None else copying_result(copying)
    even = None if text is TextFormat.KAFKA else current_evenness(settings, whole)
    if even is not None:
        result["evenness"] = {"now": even, "planned": _planned_evenness(whole)}
    summary = ", ".join(f"{counts[standing]} {standing.replace('_', ' ')}" for standing in _COUNTED if counts[standing])
    outage = outage_after(settings, whole.row)
    result |= in_json(outage)
    closed = f", {whole.row['status']}" if whole.row["status"] in UNCOMMITTABLE else ""
    title = f"plan {whole.title}{closed}: {summary or 'no changes'}"
    lines = [
        *([f"  {outage.sentence}"] if outage else []),
        *_empty_plan_lines(settings, whole),
        *truncate(
            list(_lines(standings)), command_line(settings, "verify", whole.called, "--all"), everything=everything
        ),
        *(copying_lines(result["copying"]) if copying else ()),
        *(_evenness_lines(result["evenness"]) if even else ()),
        *(["  the throttle of its commit is set: whatever copies replicas is held back by it"] if throttled else []),
    ]
    if text is TextFormat.KAFKA:
        emit_result(settings, result, *_kafka_lines(settings, whole))
    else:
        seen = {standing for _, standing, _ in standings}
        steps = after_verification(settings, whole, seen, moving=bool(moving), throttled=throttled)
        emit_result(
            settings, result, title + ("; the plan is complete" if complete and standings else ""), *lines, steps=steps
        )
    return ExitCode.CHANGES if detailed and not complete else ExitCode.DONE


def _empty_plan_lines(settings: Settings, plan: Plan) -> Iterator[str]:
    """Say of a plan without changes that it is complete in nothing."""
    if not plan.size:
        why = f": see `{command_line(settings, 'show', 'rejections', plan.called)}`" if plan.rejections else ""
        rejected = f"; {len(plan.rejections)} rejected{why}" if plan.rejections else ""
        yield f"  it changes nothing, so there is nothing to verify{rejected}"


def _planned_evenness(plan: Plan) -> Result:
    figures = figures_in(plan.row)
    return {name: figures[name][1] for name in EVENNESS if name in figures}


def _evenness_lines(evenness: Result) -> Iterator[str]:
    """Write what brokers hold and lead now, and what they are to.

    >>> both = {"replicas_per_broker": [3, 5], "led_per_broker": [0, 4]}
    >>> for line in _evenness_lines({"now": both, "planned": both | {"led_per_broker": [2, 2]}}):
    ...     print(line)
      replicas per broker now 3..5, planned 3..5
      leaders per broker now 0..4, planned 2..2
    """
    for name, what in EVENNESS.items():
        now, planned = (f"{low}..{high}" for low, high in (evenness[when][name] for when in ("now", "planned")))
        yield f"  {what} per broker now {now}, planned {planned}"


def _kafka_lines(settings: Settings, plan: Plan) -> Iterator[str]:
    """What `kafka-reassign-partitions --verify` would print of the plan's targets."""
    last = [way[-1] for way in steps_by_partition(plan.changes).values()]
    with connected(settings.zookeeper) as client:
        sync(client)
        assignments = [
            (change, _assignment(topic, change.partition)) for change, topic, _ in read_changed(client, last)
        ]
    return status_lines(
        ({"topic": change.topic, "partition": change.partition, "replicas": change.replicas_after}, now)
        for change, now in assignments
    )


def _assignment(topic: Znode, partition: int) -> ReplicaAssignment | None:
    assignment = assigned(topic, partition)
    return None if assignment is None else ReplicaAssignment(*assignment)


def _lines(standings: Sequence[tuple[PlanRow, ReassignmentStatus, str]]) -> Iterator[str]:
    for change, standing, detail in standings:
        if standing is not ReassignmentStatus.COMPLETE:
            yield f"  {change.name}  {standing.replace('_', ' ')}: {detail}"
