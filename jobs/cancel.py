"""`surveyor cancel`: call a plan back. What runs of it turns back, what was not asked for yet never will be.

No JVM. Dry unless --apply. Works for pure additions too. What is complete stays: `surveyor rollback` leads it back.
With --partitions the same for reassignments that no plan asked for, and for requests in /admin that stay there; with
--throttles for throttles that nothing moves by.
"""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode, UsageError
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
    throttles: Annotated[
        bool,
        typer.Option("--throttles", help="Take away throttles of replication that were left behind, whoever set them."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Let go on what would lose data or replicas by it; else all is refused."),
    ] = False,
    allow_fewer_copies: Annotated[
        bool,
        typer.Option(
            "--allow-fewer-copies",
            help="Cancel also where in-sync copies are deleted and original replicas are dead, if one is in sync.",
        ),
    ] = False,
) -> ExitCode:
    """Call back what still moves of a plan, or of partitions, and throttles left behind."""
    given = {"PLAN": plan is not None, "--partitions": partitions is not None, "--throttles": throttles}
    if sum(given.values()) != 1:
        named = " and ".join(name for name, is_given in given.items() if is_given) or "none of them"
        raise UsageError(
            "give the plan to cancel (`surveyor show plans` lists them), or --partitions TOPIC-N,..., or --throttles; "
            f"given: {named}"
        )
    if throttles:
        from jobs.execution.leftover_throttles import cancel_throttles

        return cancel_throttles(settings, apply=apply, yes=yes)
    if partitions is not None:
        from jobs.execution.partition_cancellation import cancel_partitions

        return cancel_partitions(
            settings, partitions, apply=apply, yes=yes, skip_unsafe=skip_unsafe, fewer_copies=allow_fewer_copies
        )
    from jobs.execution.cancellation import cancel_plan

    return cancel_plan(
        settings, str(plan), apply=apply, yes=yes, skip_unsafe=skip_unsafe, fewer_copies=allow_fewer_copies
    )


if __name__ == "__main__":
    run_alone(cancel)
