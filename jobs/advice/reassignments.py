"""Advice on reassignments that are not part of a plan: wait for them, or cancel those that make no progress.

A reassignment of another plan of this warehouse belongs to the author of its commit. The advice names the plan and the
author; it is to wait, or to ask the author. Only a reassignment that no plan requested has the advice to cancel it.
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.plans import commit_command
from jobs.core.arrow_rows import values_of
from jobs.core.errors import RefusedError
from jobs.preconditions.reassignment_progress import Reassignments, others_than, reassignment_statuses, reassignments_of
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.moving_plans import MovingPlan, moving_plans
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.snapshots import find_snapshot, table_as_of
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line, suggestion
from planner.reassignment.reassignment_status import ReassignmentStatus
from planner.reassignment.stalled_reassignments import BlockedReassignment
from schemas.enums import PlanStatus, RejectionCode
from schemas.replica_assignment import target
from schemas.rows import Change, Key, PlanRecord
from schemas.stored_plan import BEGUN, Plan
from schemas.text import abbreviate, pluralise

MAX_MOVES_ATTRIBUTED: Final = 100
"""Reassignments whose plans are looked up; the plans of a few name those of many."""

_MAX_PARTITIONS_PER_COMMAND: Final = 100
"""Maximum number of partitions in a suggested command; run again, it is suggested for the others."""


def warnings_of_others(
    settings: Settings, cluster: Cluster, plan: Plan, pending: Sequence[Change], reassignments: Reassignments
) -> list[str]:
    """Warn of other reassignments; raise RefusedError if one is in the way of the plan's pending changes."""
    others = others_than(plan, pending, reassignments)
    if others.in_the_way:
        raise RefusedError(_refusal(settings, cluster, plan, others.in_the_way))
    running = abbreviate([other.describe for other in others.running])
    owners = "".join(f"; {owner_text(owner)}" for owner in owners_of(settings.warehouse, others.running))
    return [
        *(f"not understood, and assumed not to move: {znode}" for znode in others.not_understood),
        *([f"other reassignments run, not in the way of this plan: {running}{owners}"] if others.running else ()),
        *(
            f"{step.what}: `{command_line(settings, *shlex.split(step.command or ''))}`"
            for step in stalled_steps(others.stalled, owners_of(settings.warehouse, others.stalled))
        ),
    ]


def owners_of(warehouse: Warehouse, reassignments: Iterable[BlockedReassignment]) -> list[MovingPlan]:
    """Return the plans of the warehouse that requested these reassignments."""
    return moving_plans(warehouse, {(other.topic, other.partition): other.goal for other in reassignments})


def owner_text(owner: MovingPlan) -> str:
    """Name a plan, what it moves, and the author of its commit."""
    return f"plan {owner.row.title}, committed by {owner.begun}, moves {abbreviate(owner.partitions)}"


def steps_of_moving_plans(settings: Settings, plan: PlanRecord) -> list[Suggestion]:
    """Name the plans that move partitions which a new plan leaves alone, and how to go on with them."""
    in_progress = ("code", "=", RejectionCode.REASSIGNMENT_IN_PROGRESS.value)
    warehouse, columns = settings.warehouse, ("topic", "partition")
    rejected = warehouse.read("rejections", ("plan_id", "=", plan.plan_id), in_progress, columns=columns)
    keys = {*values_of(rejected.slice(0, MAX_MOVES_ATTRIBUTED), *columns)}
    if not keys:
        return []
    snapshot = find_snapshot(warehouse, plan.snapshot_id)
    of_topics = ("topic", "in", sorted({topic for topic, _ in keys}))
    lists = (*columns, "replicas", "removing_replicas")
    moving = values_of(table_as_of(warehouse, snapshot, "partitions", of_topics, columns=lists), *lists)
    targets = {
        (topic, partition): target(replicas or (), removing or ())
        for topic, partition, replicas, removing in moving
        if (topic, partition) in keys
    }
    return [_step_of(settings, owner) for owner in moving_plans(warehouse, targets)]


def _step_of(settings: Settings, owner: MovingPlan) -> Suggestion:
    name = owner.row.command_name
    if owner.row.status in BEGUN:
        text = f"{owner_text(owner)}; unless that command still runs, continue"
        return suggestion(settings, text, *commit_command(settings, name))
    return suggestion(settings, owner_text(owner), "verify", name)


def stalled_steps(stalled: Sequence[BlockedReassignment], owners: Sequence[MovingPlan] = ()) -> list[Suggestion]:
    """Name the reassignments that do not move and what helps: starting the brokers that are down, or cancelling.

    `owners` are the plans that requested some of them.
    """
    empty = [item for item in stalled if item.is_empty]
    steps = []
    if empty:
        text = f"{pluralise(len(empty), 'requested reassignment')} that cannot be carried out"
        steps.append(Suggestion(f"{text}: {abbreviate([item.describe for item in empty])}", _cancel_command(empty)))
    waiting = {(item.topic, item.partition): item for item in stalled if not item.is_empty}
    for owner in owners:
        owned = [waiting.pop(key) for key in owner.keys if key in waiting]
        if owned:
            cancel = f"`surveyor cancel {shlex.quote(owner.row.command_name)}` ends the plan"
            text = f"{_does_not_move(owned)}; {owner_text(owner)}; only if it cannot be started, {cancel}"
            steps.append(Suggestion(text, shlex.join(["verify", owner.row.command_name])))
    if waiting:
        unowned = [*waiting.values()]
        steps.append(Suggestion(f"{_does_not_move(unowned)}, or cancel", _cancel_command(unowned)))
    return steps


def _does_not_move(waiting: Sequence[BlockedReassignment]) -> str:
    missing = sorted({broker for item in waiting if item.obstacle is not None for broker in item.obstacle.waits_for})
    text = f"{pluralise(len(waiting), 'reassignment', 'does not move', 'do not move')}"
    start = f"start {'broker' if len(missing) == 1 else 'brokers'} {abbreviate(missing)}"
    return f"{text}: {abbreviate([item.describe for item in waiting])}; {start}"


def _cancel_command(reassignments: Sequence[BlockedReassignment]) -> str:
    return shlex.join(
        [
            "cancel",
            "--partitions",
            ",".join(reassignment.name for reassignment in reassignments[:_MAX_PARTITIONS_PER_COMMAND]),
        ]
    )


def _refusal(settings: Settings, cluster: Cluster, plan: Plan, in_the_way: Sequence[BlockedReassignment]) -> str:
    owners = owners_of(settings.warehouse, in_the_way)
    owned = {key for owner in owners for key in owner.keys}
    unowned = [other for other in in_the_way if (other.topic, other.partition) not in owned]
    advice = [_wait_for(settings, cluster, owner) for owner in owners]
    if unowned:
        advice.append(
            f"No plan in {settings.warehouse_uri} moves {abbreviate([other.name for other in unowned])}, so another "
            "tool or warehouse may need that. Wait until kafka-reassign-partitions --list no longer shows it; only if "
            "its owner agrees, cancel it "
            f"(`{command_line(settings, *shlex.split(_cancel_command(unowned)))}`)"
        )
    running = abbreviate([other.describe for other in in_the_way])
    return (
        f"a reassignment that is not part of plan {plan.title} runs: {running}. {'. '.join(advice)}; then commit again"
    )


def _wait_for(settings: Settings, cluster: Cluster, owner: MovingPlan) -> str:
    """Say which commit moves partitions, how far it is, and how to wait for it."""
    holder = cluster.read_lease_holder()
    is_committing = holder is not None and holder.plan == owner.row.plan_id
    begun = f"{holder}" if is_committing else f"committed by {owner.begun}, and that command has ended"
    verify = f"`{command_line(settings, 'verify', owner.row.command_name)}` shows that"
    if owner.row.status == PlanStatus.COMMITTED and not is_committing:
        wait = command_line(settings, "commit", owner.row.command_name, "--apply", "--wait")
        verify = f"{verify}, and `{wait}` waits for it"
    ask = "" if owner.author == this_actor().user else f", or ask {owner.author}"
    progress = _progress(settings.warehouse, cluster, owner)
    return (
        f"Plan {owner.row.title} moves {abbreviate(owner.partitions)} ({begun}; {progress}). "
        f"Wait until it is complete ({verify}){ask}"
    )


def _progress(warehouse: Warehouse, cluster: Cluster, owner: MovingPlan) -> str:
    moves = reassignments_of(read_plan(warehouse, owner.row.plan_id))
    last: dict[Key, Change] = {move.key: move for move in moves}  # wave by wave
    statuses = reassignment_statuses([*last.values()], moves, cluster.read_current(moves))
    complete = sum(status is ReassignmentStatus.COMPLETE for _, status, _ in statuses)
    return f"{complete} of {pluralise(len(last), 'partition')} complete"
