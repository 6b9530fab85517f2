"""The command `surveyor`: every job under one name."""

import typer

from jobs import plan
from jobs.snapshot import snapshot

app = typer.Typer(
    name="surveyor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Batch controller and planner for Kafka clusters that keep their metadata in ZooKeeper.",
)
app.command()(snapshot)
app.add_typer(plan.app, name="plan")


def main() -> None:
    """Run the command line."""
    app()
