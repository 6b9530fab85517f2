"""`surveyor plan`: compute a plan on Spark from a snapshot and store it for review; no cluster is written to."""

import typer

from jobs.planning.assign import assign
from jobs.planning.config import config
from jobs.planning.delete import delete
from jobs.planning.drain import drain, undrain
from jobs.planning.elect import elect
from jobs.planning.expand import expand
from jobs.planning.placement.reassign import reassign
from jobs.planning.reconcile import reconcile
from jobs.planning.recover import recover

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Compute a plan from a snapshot; nothing is written to the cluster.",
)
for job in (assign, elect, drain, undrain, recover, reassign, expand, config, delete, reconcile):
    app.command()(job)


if __name__ == "__main__":
    app()
