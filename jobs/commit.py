"""`surveyor commit`: apply an approved plan, or show what that would do.

Dry unless --apply.
"""

from typing import Annotated

import typer

from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult
from jobs.runtime.options import (
    All,
    AllowMajorityDead,
    AllowSilent,
    Apply,
    DetailedExitcode,
    MaxChanges,
    MaxHold,
    MaxWait,
    PlanId,
    Throttle,
    Yes,
    check_throttle,
    command,
    run_as_script,
)
from jobs.runtime.settings import Settings


@command
def commit(
    settings: Settings,
    *,
    plan: PlanId,
    mode: Annotated[
        Mode, typer.Option(help="auto: submit the plan to Kafka's controller if it can execute it.")
    ] = Mode.AUTO,
    apply: Apply = False,
    yes: Yes = False,
    max_plan_age: Annotated[str | None, typer.Option(help="Refuse plans older than this [default: 24h].")] = None,
    max_changes: MaxChanges = None,
    max_hold: MaxHold = None,
    allow_majority_dead: AllowMajorityDead = False,
    allow_silent: AllowSilent = None,
    throttle: Throttle = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the last wave of a reassignment is complete.")
    ] = False,
    max_wait: MaxWait = None,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> CommandResult:
    """Apply a plan to the cluster, or show what would be written."""
    from jobs.execution.admin.reassignment_options import ReassignmentOptions
    from jobs.execution.commit import commit_plan
    from jobs.execution.commit_options import CommitOptions, commit_limits, hold_seconds
    from jobs.runtime.confirmation import approval

    limits = commit_limits(settings, max_changes, max_plan_age, allow_silent, allow_majority_dead=allow_majority_dead)
    running = ReassignmentOptions.parsed(throttle, max_wait, wait=wait)
    check_throttle(throttle, settings.conf.throttle)
    options = CommitOptions(
        mode=mode,
        limits=limits,
        hold=hold_seconds(settings, max_hold),
        approve=approval(yes=yes),
        apply=apply,
        running=running,
        everything=everything,
        detailed=detailed_exitcode,
    )
    return commit_plan(settings, plan, options)


if __name__ == "__main__":
    run_as_script(commit)
