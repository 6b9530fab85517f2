"""`surveyor whatif`: simulate the loss of brokers on a snapshot, or the restart of brokers now."""

from typing import Annotated

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import Fleet, Parallel
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def whatif(
    settings: Settings,
    *,
    lose: Annotated[
        str | None,
        typer.Option(
            help="What to lose in turn: brokers=1, racks=1 or pairs (of brokers). "
            "Each broker whose rack is unknown counts as a separate rack. "
            "Or what to lose together: brokers, as 2 or 2,5, or a rack, as rack=a.",
        ),
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            metavar="BROKERS",
            help="Brokers, as 3 or 3,4, to be restarted at once: exits with 0 if that is safe now, with 23 if it is "
            "not, with 22 if that is unknown, with 2 for an unknown broker.",
        ),
    ] = None,
    restart_order: Annotated[
        bool,
        typer.Option(
            "--restart-order", help="Show the order of a rolling restart now: rack by rack, the controller last."
        ),
    ] = False,
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
    """Simulate the loss of brokers or racks, or the restart of brokers now."""
    if restart_order and lose is None and restart is None:
        from jobs.planning.restart_order import report_restart_order

        if snapshot is not None:
            raise UsageError(f"--snapshot {snapshot}: not with --restart-order, which reads the cluster")
        return report_restart_order(settings, margin or 0)
    if restart is not None and lose is None and not restart_order:
        from jobs.console_output.restart_safety import restart_result
        from jobs.planning.restart_safety import restart_safety

        safety = restart_safety(settings, restart, margin or 0, snapshot)
        return restart_result(settings, safety, None if everything else limit)
    if lose is None or restart is not None or restart_order:
        raise UsageError("expected exactly one of --lose, --restart and --restart-order")
    if margin is not None:
        raise UsageError(f"--margin {margin}: only with --restart and --restart-order")
    from jobs.planning.whatif import losses_of_fleet, report_losses

    if fleet:
        return losses_of_fleet(settings, lose, limit, parallel, everything=everything)
    return report_losses(settings, lose, snapshot, limit, everything=everything)


if __name__ == "__main__":
    run_as_script(whatif)
