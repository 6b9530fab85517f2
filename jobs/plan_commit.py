"""`surveyor plan ... --apply`: a plan that is committed in the process that has made it."""

from typing import TYPE_CHECKING

from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.settings import Settings
from schemas.enums import AS_REQUESTED

if TYPE_CHECKING:
    from jobs.planning.plan_draft import Planner


def plan_and_commit(settings: Settings, options: PlanOptions, planner: "Planner") -> CommandResult:
    """Make a plan; with --apply commit it, wait until its last wave is complete, and verify it."""
    from itertools import chain

    from jobs.core.errors import ExitCode
    from jobs.core.units import parse_seconds
    from jobs.planning.plan_draft import report_plan
    from jobs.repositories.plans.plan_goal import goal_of
    from jobs.repositories.plans.plans_reader import rejection_codes
    from jobs.runtime.suggestions import suggestion
    from schemas.stored_plan import BEGUN

    max_wait = None if options.max_wait is None else parse_seconds("--max-wait", options.max_wait)
    if options.apply:
        _ = settings.address  # without one nothing is planned
    planned = report_plan(settings, options, planner)
    if not options.apply:
        return planned
    if not any(planned.fields[part] for part in ("changes", "operations", "marked_brokers")):
        if rejection_codes(settings.warehouse, planned.fields["plan_id"]) - AS_REQUESTED:
            planned.lines = *planned.lines, "nothing was committed: every change was rejected"
            planned.steps = [*(planned.steps or ()), suggestion(settings, "see what is due now", "status")]
            planned.exit_code = ExitCode.REFUSED
        return planned

    # a plan that is only stored needs none of them
    from jobs.execution.admin.reassignment_options import ReassignmentOptions
    from jobs.execution.admin.throttle_configs import parse_throttle
    from jobs.execution.planned_commit import commit_planned
    from jobs.runtime.confirmation import approval, show_review

    throttle = settings.given_options.get("throttle")
    is_continued = planned.fields["status"] in BEGUN
    done = commit_planned(
        settings,
        planned,
        Mode.AUTO,
        ReassignmentOptions(
            throttle=None if throttle is None else parse_throttle(throttle[-1]), wait=True, max_wait=max_wait
        ),
        approve=approval(yes=options.yes),
        max_changes=None,
        reviewed=show_review(settings, planned, yes=options.yes),
        detailed=options.detailed,
    )
    if is_continued and done.exit_code == ExitCode.DONE:
        again = goal_of(options.command), settings.given_options.get("throttle", ()), ("--apply",)
        text = f"it was of snapshot {planned.fields['snapshot_id']}: plan again for what has changed since"
        done.steps = [*(done.steps or ()), suggestion(settings, text, *chain(*again))]
    return done
