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
    from jobs.core.units import parse_seconds
    from jobs.execution.admin.reassignment_options import ReassignmentOptions, bytes_per_second
    from jobs.execution.commit import commit_plan
    from jobs.runtime.commit_limits import commit_limits, hold_seconds
    from jobs.runtime.confirmation import approval

    limits = commit_limits(
        settings, max_plan_age, max_changes, allow_majority_dead=allow_majority_dead, allow_silent=allow_silent
    )
    hold = hold_seconds(settings, max_hold)
    rate = None if throttle is None else bytes_per_second(throttle)
    check_throttle(throttle, settings.conf.throttle)
    running = ReassignmentOptions(rate, wait, None if max_wait is None else parse_seconds("--max-wait", max_wait))
    return commit_plan(
        settings,
        plan,
        mode,
        limits,
        running,
        approve=approval(yes=yes),
        hold=hold,
        apply=apply,
        everything=everything,
        detailed=detailed_exitcode,
    )


if __name__ == "__main__":
    run_as_script(commit)
