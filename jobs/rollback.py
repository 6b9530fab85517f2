"""`surveyor rollback`: a new plan that leads what a plan moved back to where it was. No JVM.

It is reviewed and committed as every plan; with --apply that is done at once. The waves are those of the plan,
reversed, computed from the cluster as it is now.
"""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import Mode
from jobs.runtime.completion import plans, snapshots
from jobs.runtime.options import (
    DetailedExitcode,
    MaxChanges,
    Name,
    ReplaceName,
    Throttle,
    Yes,
    check_throttle,
    command,
    run_alone,
)
from jobs.runtime.settings import Settings


@command
def rollback(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan to undo.", autocompletion=plans)],
    to_snapshot: Annotated[
        int | None,
        typer.Option(
            help="Back to what this snapshot shows [default: to where the plan found it].", autocompletion=snapshots
        ),
    ] = None,
    name: Name = None,
    replace_name: ReplaceName = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Commit the new plan at once; without it, it is only stored.")
    ] = False,
    yes: Yes = False,
    mode: Annotated[Mode, typer.Option(help="As commit takes it.")] = Mode.AUTO,
    max_changes: MaxChanges = None,
    throttle: Throttle = None,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan the way back of what a plan moved; with --apply, commit it at once."""
    from jobs.execution.admin.reassignment_options import ReassignmentOptions, bytes_per_second
    from jobs.execution.rollback import roll_back_plan
    from jobs.repositories.plans.names import Alias

    check_throttle(throttle, settings.conf.throttle)
    return roll_back_plan(
        settings,
        plan,
        to_snapshot,
        Alias(name, replace_name),
        mode,
        running=ReassignmentOptions(throttle=None if throttle is None else bytes_per_second(throttle)),
        max_changes=max_changes,
        apply=apply,
        yes=yes,
        detailed=detailed_exitcode,
    )


if __name__ == "__main__":
    run_alone(rollback)
