"""`surveyor whatif`: what the loss of every broker, rack or pair of brokers would cost; no cluster is written to."""

from typing import Annotated

import typer

from jobs.runtime.completion import snapshots
from jobs.runtime.options import on_spark, run_alone
from jobs.runtime.settings import Settings


@on_spark
def whatif(
    settings: Settings,
    *,
    lose: Annotated[
        str,
        typer.Option(
            help="brokers=1, racks=1 or pairs (of brokers): each of them in turn. "
            "A broker without a rack, or not understood, counts as a rack of its own.",
        ),
    ],
    snapshot: Annotated[
        int | None, typer.Option(help="On this snapshot [default: the newest].", autocompletion=snapshots)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows shown; --json gives all.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Name every partition, and those of every row, not only the first.")
    ] = False,
) -> None:
    """What losing brokers would cost: partitions offline, leaders piled up; worst first."""
    from jobs.planning.whatif import report_losses

    report_losses(settings, lose, snapshot, limit, everything=everything)


if __name__ == "__main__":
    run_alone(whatif)
