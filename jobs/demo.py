"""`surveyor demo`: the main workflow on real servers, which fails unless every produced record is read back."""

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.options import command
from jobs.runtime.settings import Settings


@command
def demo(settings: Settings, *, context: typer.Context) -> ExitCode:
    """Run a demo on an embedded ZooKeeper and real Kafka 3.9 brokers."""
    from jobs.demo_scenario.scenario import run_demo

    surveyor = context.find_root().command
    return run_demo(settings, lambda arguments: int(surveyor.main(arguments, standalone_mode=False) or 0))
