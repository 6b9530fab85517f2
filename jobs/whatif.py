"""`surveyor whatif`: simulate the loss of brokers on a snapshot, their restart now, and the load of other brokers."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import UsageError
from jobs.runtime.atomic_files import refuse_unwritable
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, Parallel
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def whatif(
    settings: Settings,
    *,
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="With --load: the id or alias of a plan.", show_default=False)
    ] = None,
    lose: Annotated[
        str | None,
        typer.Option(
            help="What to lose in turn: brokers=1, racks=1 or pairs (of brokers). "
            "Or what to lose together: brokers, as 2 or 2,5, or a rack, as rack=a.",
        ),
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            metavar="BROKERS",
            help="Brokers, as 3 or 3,4, to be restarted at once: exits with 0 if safe now, 23 if not, 22 if unknown.",
        ),
    ] = None,
    restart_order: Annotated[
        bool,
        typer.Option(
            "--restart-order", help="Show the order of a rolling restart now: rack by rack, the controller last."
        ),
    ] = False,
    load: Annotated[
        bool,
        typer.Option(
            "--load",
            help="Show the worst broker by hour, before and after PLAN.",
        ),
    ] = False,
    weeks: Annotated[int | None, typer.Option(min=1, help="With --load: weeks of hours [default: 4].")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="With --load: also write a page with a chart."),
    ] = None,
    add: Annotated[int | None, typer.Option(min=1, help="Show the load with this many new brokers.")] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="BROKERS", help="Show the load without these brokers, as 3 or 3,4.")
    ] = None,
    growth: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Show loads that are higher by this share, as 30%; also with --add, --remove."
        ),
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, help="With --growth: days in which loads grow by it [default: 30].")
    ] = None,
    margin: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --restart and --restart-order: in-sync replicas that must remain beyond min.insync.replicas "
            "[default: 0].",
        ),
    ] = None,
    snapshot: Annotated[
        int | None,
        typer.Option(
            help="Simulate on this snapshot [default: the newest; with --restart the live cluster].",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows; --json has all.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all-partitions", help="List every partition of every row, not only the first ones.")
    ] = False,
    fleet: Fleet = False,
    parallel: Parallel = None,
) -> CommandResult:
    """Simulate lost brokers or racks, restarts, and the load of other brokers."""
    is_scenario = add is not None or remove is not None or growth is not None
    if sum((lose is not None, restart is not None, restart_order, load, is_scenario)) != 1:
        kinds = "--lose, --restart, --restart-order, --load, and --add, --remove or --growth"
        raise UsageError(f"expected exactly one of {kinds}")
    _refuse_stray(
        ("--margin", margin, restart is not None or restart_order, "--restart and --restart-order"),
        ("--weeks", weeks, load, "--load"),
        ("--out", out, load, "--load"),
        ("PLAN", plan, load, "--load"),
        ("--days", days, growth is not None, "--growth"),
    )
    if restart_order:
        from jobs.planning.restart_order import report_restart_order

        if snapshot is not None:
            raise UsageError(f"--snapshot {snapshot}: not with --restart-order, which reads the cluster")
        return report_restart_order(settings, margin or 0)
    if restart is not None:
        from jobs.console_output.restart_safety import restart_result
        from jobs.planning.restart_safety import restart_safety

        safety = restart_safety(settings, restart, margin or 0, snapshot)
        return restart_result(settings, safety, None if everything else limit)
    if load:
        from jobs.planning.load_replay import report_backtest
        from jobs.web.load_replay_page import show_backtest

        if out is not None:
            refuse_unwritable(out)
        return report_backtest(settings, plan, weeks, snapshot, partial(show_backtest, settings, out, limit))
    if lose is None:
        from jobs.planning.load_scenario import Scenario, report_scenario

        return report_scenario(settings, Scenario(add=add, remove=remove, growth=growth, days=days), snapshot)
    from jobs.planning.whatif import losses_of_fleet, report_losses

    if fleet:
        return losses_of_fleet(settings, lose, limit, parallel, everything=everything)
    return report_losses(settings, lose, snapshot, limit, everything=everything)


def _refuse_stray(*options: tuple[str, int | str | Path | None, bool, str]) -> None:
    """Raise UsageError for an option with a value that is given without those that it belongs to."""
    for option, value, is_used, belongs_to in options:
        if value is not None and not is_used:
            raise UsageError(f"{option} {value}: only with {belongs_to}")


if __name__ == "__main__":
    run_as_script(whatif)
