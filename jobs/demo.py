"""`surveyor demo`: the main job on embedded, real servers, told as a story. It fails unless every record comes back."""

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.options import command
from jobs.runtime.settings import Settings


@command
def demo(settings: Settings, *, context: typer.Context) -> ExitCode:
    """Run the whole story on an embedded ZooKeeper and real Kafka 3.9 brokers."""
    from jobs.demo_scenario.scenario import run_demo

    surveyor = context.find_root().command
    return run_demo(settings, lambda arguments: int(surveyor.main(arguments, standalone_mode=False) or 0))
