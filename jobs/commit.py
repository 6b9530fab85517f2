"""`surveyor commit`: apply an approved plan, or show what that would do. No Spark and no JVM: it starts in a second.

Dry unless --apply.
"""

from typing import Annotated

import typer

from jobs.basics.errors import ExitCode
from jobs.runtime.choices import Mode, Via
from jobs.runtime.options import All, DetailedExitcode, command, run_alone
from jobs.runtime.settings import Settings


@command
def commit(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan.")],
    mode: Annotated[Mode, typer.Option(help="auto asks Kafka's controller where it can execute the plan.")] = Mode.AUTO,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write to the cluster; without it nothing is written.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
    max_plan_age: Annotated[str | None, typer.Option(help="Refuse older plans [default: 24h].")] = None,
    max_changes: Annotated[int | None, typer.Option(min=0, help="Refuse more changes [default: 100000].")] = None,
    max_hold: Annotated[str | None, typer.Option(help="Hold the controllership no longer [default: 30s].")] = None,
    allow_majority_dead: Annotated[
        bool,
        typer.Option("--allow-majority-dead", help="Believe it when most brokers seem dead."),
    ] = False,
    allow_silent: Annotated[
        str | None,
        typer.Option(metavar="BROKERS", help="Brokers, as 2,5, that need not answer before batch mode writes."),
    ] = None,
    via: Annotated[Via, typer.Option(help="How Kafka's controller is asked; zookeeper: before 2.4.")] = Via.ADMIN,
    throttle: Annotated[
        str | None, typer.Option(help="Bytes a second to copy replicas with, as 50MB/s; none takes it away.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Also wait for the last wave of a reassignment.")] = False,
    max_wait: Annotated[str | None, typer.Option(help="Wait no longer, exit with 25 [default: no bound].")] = None,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Apply a plan under the fence, or show what that would do."""
    from jobs.assessment.limits import CommitLimits, broker_ids, seconds
    from jobs.execution.admin.running import Running, bytes_per_second
    from jobs.execution.commit import commit_plan

    defaults = settings.conf.limits
    limits = CommitLimits(
        max_plan_age=defaults.max_plan_age_hours * 3600 if max_plan_age is None else seconds(max_plan_age),
        max_changes=defaults.max_changes if max_changes is None else max_changes,
        allow_majority_dead=allow_majority_dead,
        allow_silent=frozenset() if allow_silent is None else broker_ids(allow_silent),
    )
    hold = defaults.max_hold_seconds if max_hold is None else seconds(max_hold)
    rate = None if throttle is None else bytes_per_second(throttle)
    running = Running(via, rate, wait, None if max_wait is None else seconds(max_wait))
    return commit_plan(
        settings,
        plan,
        mode,
        limits,
        running,
        hold=hold,
        apply=apply,
        yes=yes,
        everything=everything,
        detailed=detailed_exitcode,
    )


if __name__ == "__main__":
    run_alone(commit)
