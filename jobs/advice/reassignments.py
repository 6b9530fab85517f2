"""Advice on reassignments that are not part of a plan: wait for them, or cancel those that make no progress."""

import shlex
from collections.abc import Sequence
from typing import Final

from jobs.core.errors import RefusedError
from jobs.preconditions.running_reassignments import Reassignments, others_than
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, command_line
from planner.reassignment.obstacles import BlockedReassignment
from schemas.plan import Plan
from schemas.rows import Change
from schemas.text import abbreviate, pluralise

_MAX_PARTITIONS_PER_COMMAND: Final = 100
"""Maximum number of partitions in a suggested command; run again, it is suggested for the others."""


def warnings_of_others(
    settings: Settings, plan: Plan, pending: Sequence[Change], reassignments: Reassignments
) -> list[str]:
    """Warn of other reassignments; raise RefusedError if one is in the way of the plan's pending changes."""
    others = others_than(plan, pending, reassignments)
    if others.in_the_way:
        raise RefusedError(_refusal(settings, plan, others.in_the_way))
    running = abbreviate([other.describe for other in others.running])
    return [
        *(f"not understood, and assumed not to move: {znode}" for znode in others.not_understood),
        *([f"other reassignments run, not in the way of this plan: {running}"] if others.running else ()),
        *(
            f"{step.what}: `{command_line(settings, *shlex.split(step.command or ''))}`"
            for step in stalled_steps(others.stalled)
        ),
    ]


def stalled_steps(stalled: Sequence[BlockedReassignment]) -> list[Suggestion]:
    """Name the reassignments that do not move and what helps: starting the brokers that are down, or cancelling."""
    empty = [item for item in stalled if item.is_empty]
    waiting = [item for item in stalled if not item.is_empty]
    missing = sorted({broker for item in waiting if item.obstacle is not None for broker in item.obstacle.waits_for})
    steps = []
    if empty:
        text = f"{pluralise(len(empty), 'requested reassignment')} that cannot be carried out"
        steps.append(Suggestion(f"{text}: {abbreviate([item.describe for item in empty])}", _cancel_command(empty)))
    if waiting:
        text = f"{pluralise(len(waiting), 'reassignment', 'does not move', 'do not move')}"
        start = f"start {'broker' if len(missing) == 1 else 'brokers'} {abbreviate(missing)}, or cancel"
        steps.append(
            Suggestion(f"{text}: {abbreviate([item.describe for item in waiting])}; {start}", _cancel_command(waiting))
        )
    return steps


def _cancel_command(reassignments: Sequence[BlockedReassignment]) -> str:
    return shlex.join(
        [
            "cancel",
            "--partitions",
            ",".join(reassignment.name for reassignment in reassignments[:_MAX_PARTITIONS_PER_COMMAND]),
        ]
    )


def _refusal(settings: Settings, plan: Plan, in_the_way: Sequence[BlockedReassignment]) -> str:
    return (
        f"a reassignment that is not part of plan {plan.title} runs: "
        f"{abbreviate([other.describe for other in in_the_way])}; wait until it is complete (`surveyor "
        "verify` of its plan, or kafka-reassign-partitions --list, shows it) or "
        f"cancel it (`{command_line(settings, *shlex.split(_cancel_command(in_the_way)))}`), then commit again"
    )
