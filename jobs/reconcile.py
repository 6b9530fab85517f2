"""`surveyor reconcile`: takes a snapshot, plans the repairs that are due, and commits them after a confirmation.

Without --apply it takes the snapshot, stores the plan, and shows the writes of a commit. If it is killed, the same
command continues: it plans the changes that a new snapshot shows to be due. --until-quiet repeats the
cycle; without --apply it shows the first cycle.
"""

from functools import partial
from typing import Annotated

import typer

from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import CommandResult
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
    run_as_script,
    through_zookeeper,
)
from jobs.runtime.settings import Settings


@on_spark
@through_zookeeper
def reconcile(
    settings: Settings,
    *,
    mode: Annotated[Mode, typer.Option(help="Commit mode, as in `surveyor commit`.")] = Mode.AUTO,
    apply: Apply = False,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="With --apply, repeat until no work is due.")
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
) -> CommandResult:
    """Take a snapshot, plan the repairs that are due, and commit the plan."""
    from jobs.execution.commit_options import CommitOptions, commit_limits, hold_seconds
    from jobs.execution.reconcile import reconcile_once, reconcile_until_quiet
    from jobs.planning.reconcile import make_reconcile_plan
    from jobs.runtime.confirmation import approval

    limits = commit_limits(settings, max_changes, allow_silent=allow_silent, allow_majority_dead=allow_majority_dead)
    make_plan = partial(make_reconcile_plan, settings, allow_unclean=allow_unclean, requests=requests)
    options = CommitOptions(
        mode=mode,
        limits=limits,
        hold=hold_seconds(settings, max_hold),
        approve=approval(yes=yes),
        apply=apply,
        everything=everything,
        detailed=detailed_exitcode,
    )
    run = reconcile_until_quiet if apply and until_quiet else reconcile_once
    return run(settings, make_plan, options)


if __name__ == "__main__":
    run_as_script(reconcile)
