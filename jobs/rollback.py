"""`surveyor rollback`: make a new plan that moves a plan's replicas back to their earlier brokers.

The new plan is reviewed and committed like every plan; with --apply it is committed at once. Its waves are the plan's
waves in reverse, computed from the current cluster.
"""

from typing import Annotated

import typer

from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult
from jobs.runtime.options import (
    DetailedExitcode,
    MaxChanges,
    MaxWait,
    Name,
    ReplaceName,
    Throttle,
    Yes,
    check_throttle,
    command,
    run_as_script,
)
from jobs.runtime.settings import Settings


@command
def rollback(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan to roll back.")],
    to_snapshot: Annotated[
        int | None,
        typer.Option(
            help="Restore the replicas of this snapshot [default: the replicas before the plan].",
        ),
    ] = None,
    name: Name = None,
    replace_name: ReplaceName = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Commit the new plan at once; without it, only store the plan.")
    ] = False,
    yes: Yes = False,
    mode: Annotated[Mode, typer.Option(help="Commit mode, as in `surveyor commit`.")] = Mode.AUTO,
    max_changes: MaxChanges = None,
    throttle: Throttle = None,
    max_wait: MaxWait = None,
    detailed_exitcode: DetailedExitcode = False,
) -> CommandResult:
    """Plan the reversal of a plan's moves; with --apply, also commit it."""
    from jobs.execution.admin.reassignment_options import ReassignmentOptions
    from jobs.execution.planned_commit import commit_planned
    from jobs.execution.rollback import commit_rollback, plan_rollback
    from jobs.repositories.plans.names import Alias
    from jobs.runtime.confirmation import approval, show_review

    running = ReassignmentOptions.parsed(throttle, max_wait, wait=True)
    check_throttle(throttle, settings.conf.throttle)
    planned = plan_rollback(settings, plan, to_snapshot, Alias(name, replace_name), detailed=detailed_exitcode)
    if not apply:
        return planned
    reviewed = show_review(settings, planned, yes=yes)
    return commit_rollback(
        settings,
        planned,
        lambda: commit_planned(
            settings,
            planned,
            mode,
            running,
            approve=approval(yes=yes),
            max_changes=max_changes,
            reviewed=reviewed,
            detailed=detailed_exitcode,
        ),
    )


if __name__ == "__main__":
    run_as_script(rollback)
