"""`surveyor whatif`: simulate the loss of each broker, rack or pair of brokers on a snapshot."""

from typing import Annotated

import typer

from jobs.runtime.completion import snapshots
from jobs.runtime.console import CommandResult
from jobs.runtime.options import on_spark, run_as_script
from jobs.runtime.settings import Settings


@on_spark
def whatif(
    settings: Settings,
    *,
    lose: Annotated[
        str,
        typer.Option(
            help="What to lose in turn: brokers=1, racks=1 or pairs (of brokers). "
            "A broker whose rack is unknown counts as a rack of its own.",
        ),
    ],
    snapshot: Annotated[
        int | None, typer.Option(help="Simulate on this snapshot [default: the newest].", autocompletion=snapshots)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows; --json has all.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="List every partition of every row, not only the first ones.")
    ] = False,
) -> CommandResult:
    """Simulate the loss of brokers or racks and rank the losses by impact."""
    from jobs.planning.whatif import report_losses

    return report_losses(settings, lose, snapshot, limit, everything=everything)


if __name__ == "__main__":
    run_as_script(whatif)
