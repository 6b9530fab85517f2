"""The command `surveyor`: every job under one name."""

import sys
from typing import Annotated, Final

import typer
from typer.main import get_command

from jobs.core.signals import install_handlers
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.lazy_commands import HELP, add_lazily, spare_pandas

LOOK, RECORD, PLAN = "Look at a cluster", "Take down what is there", "Plan what to change"
CARRY_OUT, BY_ITSELF, KEEP_HOUSE = "Carry out a plan", "Do what is due, all in one", "Keep house, and try it"

PAGE: Final = {
    LOOK: {
        "jobs.status:status": "How the cluster is now, what is due, and the command for it.",
        "jobs.doctor:doctor": "Check machine, warehouse, ZooKeeper, permissions, clock and brokers; say what to do.",
        "jobs.show:app": "Show the tables, now or as of a snapshot.",
        "jobs.whatif:whatif": "What losing brokers would cost: partitions offline, leaders piled up; worst first.",
        "jobs.report:report": "Write one self-contained HTML page: the cluster through time, or a plan to approve.",
        "jobs.dashboard:dashboard": "Serve a page to look around in: snapshots, brokers, partitions, plans, commits.",
        "jobs.metrics:metrics": "Write figures for Prometheus: to stdout, into a file, or to whoever asks.",
    },
    RECORD: {
        "jobs.snapshot:snapshot": "Read the cluster from ZooKeeper into the Delta tables.",
        "jobs.sizes:sizes": "Ask every live broker how many bytes it holds of which partition.",
    },
    PLAN: {
        "jobs.plan:app": "Compute a plan from a snapshot; nothing is written to the cluster.",
        "jobs.rollback:rollback": "Plan the way back of what a plan moved; with --apply, commit it at once.",
        "jobs.export:export": "Write a plan's targets in the format of Kafka's own tools.",
    },
    CARRY_OUT: {
        "jobs.commit:commit": "Write what a plan says, or show what would be written.",
        "jobs.verify:verify": "Show how far a committed plan has come, and how far its replicas have been copied.",
        "jobs.cancel:cancel": "Call back what still moves of a plan, or of partitions, and throttles left behind.",
    },
    BY_ITSELF: {
        "jobs.reconcile:reconcile": "Snapshot, plan what is due after failures, commit it or show what that would do.",
        "jobs.control:control": "Be the controller: elect, create, reassign and delete in cycles, until told to stop.",
    },
    KEEP_HOUSE: {
        "jobs.vacuum:vacuum": "Drop snapshots older than --keep, and the files that only they needed.",
        "jobs.demo:demo": "Run the whole story on an embedded ZooKeeper and real Kafka 3.9 brokers.",
    },
}
"""By what people want: where each command is, and its docstring again, which is shown before its module is imported."""

COMMANDS: Final = {place: line for part in PAGE.values() for place, line in part.items()}

EXAMPLES: Final = """\
Examples:
  export SURVEYOR_ZOOKEEPER=zk1:2181,zk2:2181/kafka
  export SURVEYOR_WAREHOUSE=/data/surveyor
  surveyor status --watch 5s
  surveyor snapshot
  surveyor plan elect --preferred --name balance
  surveyor show plan balance
  surveyor commit balance                # what it would write
  surveyor commit balance --apply
  surveyor verify balance

Only what is given --apply writes to a cluster. `surveyor COMMAND --help` lists
the options of a command, each answer ends with the command that comes next.
"""

WITHOUT_SPARK: Final = frozenset(
    {
        *("cancel", "commit", "dashboard", "doctor", "export", "metrics", "report"),
        *("rollback", "show", "sizes", "status", "vacuum", "verify"),
    }
)
"""Commands that never import Spark, which a contract of import-linter's says of each of their modules."""

app = typer.Typer(
    name="surveyor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Batch controller and planner for Kafka clusters that keep their metadata in ZooKeeper.",
    epilog=EXAMPLES,
    context_settings=HELP,
    cls=HelpPage,
)
for title, part in PAGE.items():
    for place, line in part.items():
        add_lazily(app, place, line, title)


def _show_version(is_given: bool) -> None:  # noqa: FBT001 - as typer calls it
    if is_given:
        from importlib.metadata import version  # noqa: PLC0415 - nobody else needs it

        print(f"surveyor {version('kafka-surveyor')}")  # noqa: T201 - the answer
        raise typer.Exit


@app.callback()
def _before_any_command(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show Surveyor's version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    del version  # looked at already


def run(arguments: list[str]) -> int:
    """Run a command line in this process; return its exit code."""
    return int(get_command(app).main(arguments, standalone_mode=False) or 0)


def main() -> None:
    """Run the command line."""
    install_handlers()
    if WITHOUT_SPARK.intersection(sys.argv[1:2]):
        spare_pandas()
    app()


if __name__ == "__main__":
    main()
