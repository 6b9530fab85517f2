"""`surveyor cancel`: cancel a plan, which turns its running reassignments back and requests nothing more of it.

Dry unless --apply. Replicas that are only added are cancelled as well. Completed moves stay: `surveyor
rollback` moves them back. --partitions does the same for reassignments that no plan requested, and for requests left in
/admin; --throttles removes leftover throttles.
"""

from typing import Annotated

import typer

from jobs.core.errors import SurveyorError, UsageError
from jobs.runtime.approval import Approve
from jobs.runtime.confirmation import approval
from jobs.runtime.console import CommandResult
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def cancel(
    settings: Settings,
    *,
    plan: Annotated[str | None, typer.Argument(help="Id or alias of the plan.")] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC-N,...",
            help="Cancel the reassignments of these partitions, of any origin, and requests for them.",
        ),
    ] = None,
    throttles: Annotated[
        bool,
        typer.Option("--throttles", help="Remove leftover replication throttles of any origin."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it, only show what would be written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option(
            "--skip-unsafe",
            help="Skip reassignments whose cancellation would lose data or replicas, instead of refusing all.",
        ),
    ] = False,
    allow_fewer_copies: Annotated[
        bool,
        typer.Option(
            "--allow-fewer-copies",
            help="Also cancel if in-sync replicas are deleted and original replicas are not live, but one is in sync.",
        ),
    ] = False,
) -> CommandResult:
    """Cancel running reassignments and close their plan, or remove leftover throttles."""
    given = {"PLAN": plan is not None, "--partitions": partitions is not None, "--throttles": throttles}
    if sum(given.values()) != 1:
        named = " and ".join(name for name, is_given in given.items() if is_given) or "none of them"
        raise UsageError(
            "give the plan to cancel (`surveyor show plans` lists them), or --partitions TOPIC-N,..., or --throttles; "
            f"given: {named}"
        )
    approve = approval(yes=yes)
    if throttles:
        return _cancel_throttles(settings, approve, apply=apply)
    if partitions is not None:
        from jobs.execution.partition_cancellation import cancel_partitions, parse_partitions

        keys = parse_partitions(partitions)
        return cancel_partitions(
            settings, keys, approve, apply=apply, skip_unsafe=skip_unsafe, fewer_copies=allow_fewer_copies
        )
    from jobs.execution.cancellation import cancel_plan

    return cancel_plan(
        settings,
        str(plan),
        approve,
        apply=apply,
        skip_unsafe=skip_unsafe,
        fewer_copies=allow_fewer_copies,
    )


def _cancel_throttles(settings: Settings, approve: Approve | None, *, apply: bool) -> CommandResult:
    from jobs.execution.leftover_throttles import find_leftover_throttles, remove_leftover_throttles

    with settings.connect() as cluster:
        throttles = find_leftover_throttles(settings, cluster)
        if not apply or not throttles.configs:
            return throttles.command_result(settings, cluster.read_lease_holder())
        if approve is not None and not approve(throttles.review):
            raise SurveyorError("not cancelled: the question was not answered with yes")
        return remove_leftover_throttles(settings, cluster)


if __name__ == "__main__":
    run_as_script(cancel)
