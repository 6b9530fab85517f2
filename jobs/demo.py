"""`surveyor demo`: the main workflow on real servers, which fails unless every produced record is read back."""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.options import command
from jobs.runtime.settings import Settings


@command
def demo(
    settings: Settings,
    *,
    context: typer.Context,
    kraft: Annotated[bool, typer.Option("--kraft", help="On a KRaft cluster, without a ZooKeeper.")] = False,
) -> ExitCode:
    """Run a demo on real Kafka 3.9 brokers with an embedded ZooKeeper, or in KRaft."""
    from jobs.demo_scenario.run import run_demo

    surveyor = context.find_root().command
    return run_demo(
        settings, lambda arguments: int(surveyor.main(arguments, standalone_mode=False) or 0), is_kraft=kraft
    )
