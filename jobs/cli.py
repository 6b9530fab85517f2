"""The command line `surveyor` with all its commands."""

from typing import Annotated, Final

import typer
from typer.main import get_command

from jobs.runtime.command_pages import CommandLine
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.lazy_commands import add_lazily, run_program
from jobs.runtime.pace import DEFAULT, Pace

PAGE: Final = {
    "Everyday": {
        "jobs.status:status": "Show the cluster's health, the pending work and the commands for it.",
        "jobs.plan:app": "Compute and store a plan of changes; with --apply, also commit it.",
        "jobs.commit:commit": "Apply a plan to the cluster, or show what would be written.",
        "jobs.verify:verify": "Show the progress of a committed plan and of its replica copies.",
        "jobs.cancel:cancel": "Cancel running reassignments and close their plan, or remove leftover throttles.",
        "jobs.rollback:rollback": "Plan the reversal of a plan's moves; with --apply, also commit it.",
        "jobs.reconcile:reconcile": "Take a snapshot, plan the repairs that are due, and commit the plan.",
    },
    "Inspect": {
        "jobs.show:app": "Show the tables of a snapshot, or the live cluster.",
        "jobs.whatif:whatif": "Simulate lost brokers or racks, restarts, and the load of other brokers.",
        "jobs.doctor:doctor": "Check the machine, warehouse, ZooKeeper or quorum, permissions, clock and brokers.",
        "jobs.report:report": "Write an HTML report of the cluster's history, of a plan or of a migration.",
        "jobs.dashboard:dashboard": "Serve a web dashboard of snapshots, brokers, partitions, plans and commits.",
        "jobs.metrics:metrics": "Export metrics for Prometheus to stdout, to a file or over HTTP.",
    },
    "Record": {
        "jobs.snapshot:snapshot": "Store a snapshot of the cluster's metadata in the Delta tables.",
        "jobs.sizes:sizes": "Record the size of each replica as reported by the live brokers.",
        "jobs.load:app": "Measure what partitions and brokers carry.",
    },
    "Other": {
        "jobs.control:control": "Run as the cluster's controller until stopped.",
        "jobs.migration:app": "Check what a migration to KRaft needs, and prove that it has lost nothing.",
        "jobs.export:export": "Write a plan's target assignment in the format of Kafka's tools.",
        "jobs.catalog:catalog": "Register the tables by name in a catalogue, or print the SQL for it.",
        "jobs.vacuum:vacuum": "Delete snapshots older than --keep and the files that only they use.",
        "jobs.demo:demo": "Run a demo on real Kafka 3.9 brokers with an embedded ZooKeeper, in KRaft, or in between.",
    },
}
"""Command groups: the import path of each command and its help line, which is shown without importing the module."""

COMMANDS: Final = {place: line for part in PAGE.values() for place, line in part.items()}

EXAMPLES: Final = """\
Examples:
  export SURVEYOR_ZOOKEEPER=zk1:2181,zk2:2181/kafka
  export SURVEYOR_WAREHOUSE=/data/surveyor
  surveyor status
  surveyor plan reassign --add-brokers 4 --apply   # plan, ask, move, wait
  surveyor plan elect --preferred --name balance   # or in steps: plan,
  surveyor commit balance                          # see what it would write,
  surveyor commit balance --apply                  # write,
  surveyor verify balance                          # and verify

Commands change a cluster only if --apply is given. `surveyor COMMAND --help`
lists the everyday options of a command, `--help-all` all of them. Each result
ends with the next command to run.
"""

app = CommandLine(
    name="surveyor",
    no_args_is_help=True,
    help="Plan and carry out changes of Kafka clusters, with ZooKeeper or KRaft.",
    epilog=EXAMPLES,
    cls=HelpPage,
)
for title, part in PAGE.items():
    for place, line in part.items():
        add_lazily(app, place, line, title)


def _show_version(is_given: bool) -> None:  # noqa: FBT001 - as typer calls it
    if is_given:
        from importlib.metadata import version  # noqa: PLC0415 - only --version needs it

        print(f"surveyor {version('kafka-surveyor')}")  # noqa: T201 - the result
        raise typer.Exit


@app.callback()
def _before_any_command(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show Surveyor's version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    del version  # handled by the callback


def run(arguments: list[str]) -> int:
    """Run a command line in this process; return its exit code."""
    return int(get_command(app).main(arguments, standalone_mode=False) or 0)


def main(pace: Pace = DEFAULT) -> None:
    """Run the command line."""
    run_program(app, pace)


if __name__ == "__main__":
    main()
