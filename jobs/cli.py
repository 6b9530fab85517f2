"""The command `surveyor`: every job under one name."""

import sys
from typing import Annotated, Final

import typer
from typer.main import get_command

from jobs.basics.interrupts import guard
from jobs.runtime.lazy_commands import HELP, add_lazily, spare_pandas

COMMANDS: Final = {
    "jobs.status:status": (
        "Show how the cluster is: brokers, partitions in trouble, imbalance, what is due and the command for it."
    ),
    "jobs.snapshot:snapshot": "Read the cluster from ZooKeeper into the Delta tables.",
    "jobs.commit:commit": "Apply a plan under the fence, or show what that would do.",
    "jobs.reconcile:reconcile": "Snapshot, plan what is due after failures, commit it or show what that would do.",
    "jobs.control:control": "Be the controller: elect, create, reassign and delete in cycles, until told to stop.",
    "jobs.verify:verify": "Show how far a committed plan has come, and how far its replicas have been copied.",
    "jobs.cancel:cancel": "Cancel what runs of a plan, and let nothing more of it be asked for.",
    "jobs.rollback:rollback": "Plan the way back of what a plan moved, to be committed as every plan, or at once.",
    "jobs.export:export": "Write a plan's target assignment for another tool.",
    "jobs.whatif:whatif": (
        "Show what losing brokers would cost: partitions offline, under min ISR, leaders piled up; worst first."
    ),
    "jobs.sizes:sizes": "Ask every live broker how many bytes it holds of which partition, into the table `sizes`.",
    "jobs.doctor:doctor": "Check Java, jars, warehouse, ZooKeeper, permissions, clock and brokers, and say what to do.",
    "jobs.metrics:metrics": "Write figures of the tables for Prometheus: to stdout, into a file, or to whoever asks.",
    "jobs.report:report": (
        "Write one self-contained HTML page: how the cluster is and became so, or a plan before and after."
    ),
    "jobs.dashboard:dashboard": (
        "Serve a page to look around in: snapshots through time, brokers and their partitions, plans and commits."
    ),
    "jobs.vacuum:vacuum": "Drop snapshots older than --keep, and the files that only they needed.",
    "jobs.demo:demo": "Run the whole story on embedded ZooKeeper and real Kafka 3.9 brokers.",
    "jobs.show:app": "Show the tables, now or as of a snapshot.",
    "jobs.plan:app": "Compute a plan from a snapshot; nothing is written to the cluster.",
}
"""Where each command is, and its docstring again, which is shown before its module is imported."""

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
    context_settings=HELP,
)
for place, line in COMMANDS.items():
    add_lazily(app, place, line)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
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
    guard()
    if WITHOUT_SPARK.intersection(sys.argv[1:2]):
        spare_pandas()
    app()


if __name__ == "__main__":
    main()
