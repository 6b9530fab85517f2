"""`surveyor cancel`: call a plan back. What runs of it turns back, what was not asked for yet never will be.

No JVM. Dry unless --apply. Works for pure additions too. What is complete stays: `surveyor rollback` leads it back.
"""

from typing import Annotated

import typer

from jobs.basics.errors import ExitCode
from jobs.runtime.options import PlanId, command, run_alone
from jobs.runtime.settings import Settings


@command
def cancel(
    settings: Settings,
    *,
    plan: PlanId,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Let go on what would lose data or replicas by it; else all is refused."),
    ] = False,
) -> ExitCode:
    """Call back what still moves of a plan, and let nothing more of it be asked for."""
    from jobs.execution.cancellation import cancel_plan

    return cancel_plan(settings, plan, apply=apply, yes=yes, skip_unsafe=skip_unsafe)


if __name__ == "__main__":
    run_alone(cancel)
