"""`surveyor reconcile`: one cycle of a controller in one process: snapshot, plan of what is due, question, commit.

Dry unless --apply: then the snapshot is taken and the plan is stored, and what a commit would write is shown. Killed at
any moment, the same command goes on: a new snapshot shows what is still due, and only that is planned. --until-quiet
goes on by itself; dry, it shows the first cycle.
"""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.cli_enums import Mode
from jobs.runtime.options import (
    All,
    AllowMajorityDead,
    AllowSilent,
    AllowUnclean,
    Apply,
    DetailedExitcode,
    MaxChanges,
    MaxHold,
    Requests,
    Yes,
    on_spark,
    run_alone,
)
from jobs.runtime.settings import Settings


@on_spark
def reconcile(
    settings: Settings,
    *,
    mode: Annotated[Mode, typer.Option(help="As commit takes it.")] = Mode.AUTO,
    apply: Apply = False,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="With --apply: again and again, until nothing is due.")
    ] = False,
    yes: Yes = False,
    allow_unclean: AllowUnclean = False,
    requests: Requests = False,
    max_changes: MaxChanges = None,
    max_hold: MaxHold = None,
    allow_majority_dead: AllowMajorityDead = False,
    allow_silent: AllowSilent = None,
    everything: All = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Snapshot, plan what is due after failures, commit it or show what that would do."""
    from jobs.controller.reconcile import ReconcileOptions, reconcile_once, reconcile_until_quiet
    from jobs.preconditions.limits import CommitLimits, hold_seconds

    limits = CommitLimits.of(
        settings, None, max_changes, allow_majority_dead=allow_majority_dead, allow_silent=allow_silent
    )
    hold, question = hold_seconds(settings, max_hold), ReconcileOptions(allow_unclean, requests)
    if apply and until_quiet:
        return reconcile_until_quiet(settings, mode, limits, hold=hold, yes=yes, question=question)
    return reconcile_once(
        settings,
        mode,
        limits,
        hold=hold,
        apply=apply,
        yes=yes,
        question=question,
        everything=everything,
        detailed=detailed_exitcode,
    )


if __name__ == "__main__":
    run_alone(reconcile)
