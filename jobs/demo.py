"""`surveyor demo`: the main workflow on real servers, which fails unless every produced record is read back."""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode, UsageError
from jobs.runtime.options import command
from jobs.runtime.settings import Settings


@command
def demo(
    settings: Settings,
    *,
    context: typer.Context,
    kraft: Annotated[bool, typer.Option("--kraft", help="On a KRaft cluster, without a ZooKeeper.")] = False,
    migration: Annotated[
        bool, typer.Option("--migration", help="Migrate a cluster from ZooKeeper to KRaft, and prove it.")
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="On a KRaft cluster: measure load, and move what counts do not see.")
    ] = False,
    pause: Annotated[
        bool, typer.Option("--pause", help="Wait for Enter before each step, for commands in another terminal.")
    ] = False,
) -> ExitCode:
    """Run a demo on real Kafka 3.9 brokers with an embedded ZooKeeper, in KRaft, or in between."""
    from jobs.demo_scenario.run import Demo, run_demo

    given = {"--kraft": (kraft, Demo.KRAFT), "--migration": (migration, Demo.MIGRATION), "--load": (load, Demo.LOAD)}
    chosen = [demo for is_given, demo in given.values() if is_given] or [Demo.ZOOKEEPER]
    if len(chosen) > 1:
        raise UsageError(f"{', '.join(given)} are separate demos; run one of them")
    surveyor = context.find_root().command
    return run_demo(
        settings, lambda arguments: int(surveyor.main(arguments, standalone_mode=False) or 0), chosen[0], pauses=pause
    )
