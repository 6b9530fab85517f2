"""`surveyor cancel`: call a plan back. What runs of it turns back, what was not asked for yet never will be.

No JVM. Dry unless --apply. Works for pure additions too. What is complete stays: `surveyor rollback` leads it back.
With --partitions the same for reassignments that no plan asked for, and for requests in /admin that stay there.
"""

from typing import Annotated

import typer

from jobs.basics.errors import ExitCode, UsageError
from jobs.runtime.completion import plans
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings


@command
def cancel(
    settings: Settings,
    *,
    plan: Annotated[str | None, typer.Argument(help="Id or alias of the plan.", autocompletion=plans)] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC-N,...",
            help="Call these partitions back in place of a plan, whoever asked for it, and take requests for them out "
            "of /admin/reassign_partitions.",
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Let go on what would lose data or replicas by it; else all is refused."),
    ] = False,
) -> ExitCode:
    """Call back what still moves of a plan or of partitions, and close the plan."""
    if plan is not None and partitions is not None:
        raise UsageError("a plan and --partitions: give one of the two")
    if partitions is not None:
        from jobs.execution.partition_cancellation import cancel_partitions

        return cancel_partitions(settings, partitions, apply=apply, yes=yes, skip_unsafe=skip_unsafe)
    if plan is None:
        raise UsageError("give the plan to cancel, or --partitions TOPIC-N,...; `surveyor show plans` lists plans")
    from jobs.execution.cancellation import cancel_plan

    return cancel_plan(settings, plan, apply=apply, yes=yes, skip_unsafe=skip_unsafe)


if __name__ == "__main__":
    run_alone(cancel)
