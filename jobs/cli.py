"""The command `surveyor`: every job under one name."""

import typer
from typer.main import get_command

from jobs import plan, show
from jobs.basics.interrupts import guard
from jobs.cancel import cancel
from jobs.commit import commit
from jobs.demo import demo_command
from jobs.export import export
from jobs.reconcile import reconcile
from jobs.rollback import rollback
from jobs.sizes import sizes
from jobs.snapshot import snapshot
from jobs.vacuum import vacuum
from jobs.verify import verify
from jobs.whatif import whatif

app = typer.Typer(
    name="surveyor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Batch controller and planner for Kafka clusters that keep their metadata in ZooKeeper.",
)


def run(arguments: list[str]) -> int:
    """Run a command line in this process; return its exit code."""
    return int(get_command(app).main(arguments, standalone_mode=False) or 0)


app.command()(snapshot)
app.add_typer(show.app, name="show")
app.add_typer(plan.app, name="plan")
app.command()(commit)
app.command()(reconcile)
app.command()(verify)
app.command()(cancel)
app.command()(rollback)
app.command()(export)
app.command()(whatif)
app.command()(sizes)
app.command()(vacuum)
app.command()(demo_command(run))


def main() -> None:
    """Run the command line."""
    guard()
    app()


if __name__ == "__main__":
    main()
