"""`surveyor plan`: compute a plan on Spark from a snapshot and store it for review; no cluster is written to."""

from typing import Annotated, Final

import typer
from pyspark.sql import functions as F

from jobs.adapters.delta import tallied
from jobs.console import say
from jobs.errors import ExitCode
from jobs.failed_log_dirs import event_lines
from jobs.options import DetailedExitcode, command
from jobs.plan_assign import assign
from jobs.plan_config import config
from jobs.plan_delete import delete
from jobs.plan_drain import drain, undrain
from jobs.plan_elect import elect
from jobs.plan_expand import expand
from jobs.plan_names import Alias, Name, ReplaceName
from jobs.plan_reassign import reassign
from jobs.plan_recover import recover
from jobs.planning import Planned, SnapshotId, report_plan
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables
from jobs.vanished import vanished_states
from planner.reconcile import changes_of, reconcile_verdicts, rejections_of
from planner.survey import KEY
from planner.vanished import vanished_rejections
from schemas.names import PlanKind

NEW: Final = "leader IS NULL AND understood AND (action IS NOT NULL OR code IS NOT NULL)"
"""Verdicts on partitions without a state znode: new, unless history knows better."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Compute a plan from a snapshot; nothing is written to the cluster.",
)
for job in (assign, elect, drain, undrain, recover, reassign, expand, config, delete):
    app.command()(job)


@app.command()
@command
def reconcile(
    settings: Settings,
    *,
    snapshot: SnapshotId = None,
    name: Name = None,
    replace_name: ReplaceName = False,
    allow_unclean: Annotated[
        bool,
        typer.Option("--allow-unclean", help="Allow unclean elections, which lose data, where nothing else can lead."),
    ] = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan what is due after failures: dead leaders replaced, dead followers out of the ISR, first leaders."""
    return report_plan(
        settings,
        snapshot,
        Alias(name, replace_name),
        lambda at: whats_due(at, allow_unclean=allow_unclean),
        detailed=detailed_exitcode,
    )


def whats_due(at: SnapshotTables, *, allow_unclean: bool = False) -> Planned:
    """Plan the changes and rejections of one cycle, looking at all partitions once."""
    for line in event_lines(at.tables.lake, at.snapshot):
        say(f"surveyor: {line}")
    known = at["partitions"], at["topics"], at["brokers"], at["broker_configs"]
    judged = reconcile_verdicts(*known, allow_unclean=allow_unclean)
    verdicts, counts = tallied(judged, due="action IS NOT NULL", refused="code IS NOT NULL", stateless=NEW)
    at_most = counts["due"] + counts["refused"]
    rejections = rejections_of(verdicts) if counts["refused"] else None
    if counts["stateless"]:
        vanished = vanished_states(at, verdicts.where(NEW))
        verdicts = verdicts.join(F.broadcast(vanished.select(*KEY)), KEY, "left_anti")
        rejections = rejections_of(verdicts).unionByName(vanished_rejections(vanished))
    return Planned(
        PlanKind.RECONCILE, {"allow_unclean": allow_unclean}, changes_of(verdicts), rejections, at_most=at_most
    )


if __name__ == "__main__":
    app()
