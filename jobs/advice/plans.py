"""What may be done next with a plan that was made, committed, verified or called back, and the command for it.

In: the plan's row, what is known of it, and the name that the user has for it. Out: steps with commands to copy; none
where nothing is left to do.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from jobs.adapters.delta.warehouse import Row
from jobs.repositories.plans.commit_log import CLOSED
from jobs.repositories.plans.repository import Plan, is_cycle
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, same_line, same_step, suggestion
from planner.reassignment.cancellation import ReassignmentStatus
from schemas.enums import Outcome, PlanKind, PlanStatus

RECONCILE_ONLY_OPTIONS: Final = ("allow_unclean", "remote", "requests", "until_quiet")
"""Options of `surveyor reconcile` that a commit has not."""

UNDONE_OUTCOMES: Final = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED)

BEGUN_STATUSES: Final = frozenset({PlanStatus.COMMITTING, PlanStatus.PARTIAL})


def after_planning(settings: Settings, plan: Row, name: str, *, operations: int) -> list[Suggestion]:
    """What comes after a plan was made, or was found made already."""
    steps = after_review(settings, plan, name, operations=operations)
    is_new = plan["status"] == PlanStatus.PLANNED and steps
    review = suggestion(settings, "review", "show", "plan", name, *settings.typed.get("throttle", ()))
    return [review, *steps] if is_new else steps


def after_review(settings: Settings, plan: Row, name: str, *, operations: int) -> list[Suggestion]:
    """What comes after a plan was shown."""
    status = plan["status"]
    if status == PlanStatus.COMMITTED:
        return [suggestion(settings, "verify", "verify", name)]
    if is_cycle(plan):
        return [suggestion(settings, "see what is due now", "status")]
    if status in BEGUN_STATUSES:
        return [_go_on(settings, name)]
    if status != PlanStatus.PLANNED or not (plan["changes"] or operations):
        return []
    return [_apply(settings, name)]


def after_dry_run(settings: Settings, name: str, *, due: bool) -> list[Suggestion]:
    """The same commit, to be applied, with whatever else it was told."""
    return [same_step(settings, "apply", "commit", name, "--apply", exclude=RECONCILE_ONLY_OPTIONS)] if due else []


def list_all_command(settings: Settings, name: str) -> str:
    """Write the dry run of a commit, with whatever else it was told, that lists everything."""
    return same_line(settings, "commit", name, "--all", exclude=(*RECONCILE_ONLY_OPTIONS, "apply", "yes"))


def after_commit(settings: Settings, name: str, status: str, outcomes: Mapping[str, int]) -> list[Suggestion]:
    """What comes after an attempt that came to its end; `outcomes` are counted by name."""
    if status == PlanStatus.COMMITTED:
        return [suggestion(settings, "verify", "verify", name)]
    if status in CLOSED:  # no commit goes on with it
        return [
            suggestion(settings, "what became of it", "show", "commits", name),
            suggestion(settings, "see what is due now, and plan again", "status"),
        ]
    steps = []
    if any(outcomes.get(outcome.value) for outcome in UNDONE_OUTCOMES):
        steps.append(suggestion(settings, "why", "show", "commits", name))
        steps.append(_go_on(settings, name))
    if outcomes.get(Outcome.STALE.value):
        steps.append(suggestion(settings, "see what is due now", "status"))
    return steps


def after_verification(
    settings: Settings, plan: Plan, seen: Collection[ReassignmentStatus], *, moving: bool, throttled: bool = False
) -> list[Suggestion]:
    """What comes after a look at how far a plan has come; `moving`: replicas are, and could be called back.

    `throttled`: its commit has set a throttle that is set still, as one that was interrupted leaves it.
    """
    steps = list(_after_verification(settings, plan.row, plan.called, seen, moving=moving))
    away = suggestion(settings, "take its throttle away", "commit", plan.called, "--apply")
    is_due = throttled and not moving and away.command not in {step.command for step in steps}
    return [away, *steps] if is_due else steps


def _after_verification(
    settings: Settings, plan: Row, name: str, seen: Collection[ReassignmentStatus], *, moving: bool
) -> Iterator[Suggestion]:
    is_open = plan["status"] in {PlanStatus.PLANNED, *BEGUN_STATUSES} and not is_cycle(plan)
    if ReassignmentStatus.IN_PROGRESS in seen:
        yield suggestion(settings, "look again", "verify", name)
    if moving:
        yield suggestion(settings, "call it back", "cancel", name)
    if is_open and ReassignmentStatus.NOT_STARTED in seen and ReassignmentStatus.IN_PROGRESS not in seen:
        yield _apply(settings, name) if plan["status"] == PlanStatus.PLANNED else _go_on(settings, name)
    if ReassignmentStatus.DIVERGED in seen or (is_cycle(plan) and ReassignmentStatus.NOT_STARTED in seen):
        yield suggestion(settings, "see what is due now", "status")
    if set(seen) == {ReassignmentStatus.COMPLETE} and plan["kind"] == PlanKind.DRAIN:
        brokers = ",".join(map(str, json.loads(plan["parameters"])["brokers"]))
        yield suggestion(settings, "when the work is done", "plan", "undrain", "--brokers", brokers, "--refresh")


def after_cancellation(settings: Settings, plan: Plan, *, again: bool, complete: bool) -> list[Suggestion]:
    """What comes after a plan was called back; `again`: not all of it was; `complete`: some of it was through."""
    if again:
        return [same_step(settings, "cancel again", "cancel", plan.called, "--apply", exclude=["apply"])]
    if complete and plan.row["kind"] == PlanKind.REASSIGN:
        return [suggestion(settings, "lead back what is complete", "rollback", plan.called)]
    return []


def _apply(settings: Settings, name: str) -> Suggestion:
    return suggestion(settings, "apply", *commit_command(settings, name))


def _go_on(settings: Settings, name: str) -> Suggestion:
    return suggestion(settings, "go on", *commit_command(settings, name))


def commit_command(settings: Settings, name: str) -> list[str]:
    """Return the commit of a plan, with the throttle that was typed for it."""
    return ["commit", name, "--apply", *settings.typed.get("throttle", ())]
