"""`surveyor plan reconcile`: what one cycle finds due after failures, as a plan."""

from typing import Annotated, Final

import typer
from pyspark.sql import functions as F

from jobs.adapters.delta.spark_tables import tallied
from jobs.basics.errors import ExitCode
from jobs.planning.plan import Planned, Planning, question, report_plan
from jobs.planning.tables import vanished_states
from jobs.records.failed_log_dirs import event_lines
from jobs.records.snapshots import SnapshotTables
from jobs.runtime.console import say
from jobs.runtime.settings import Settings
from planner.history.survey import KEY
from planner.history.vanished import vanished_rejections
from planner.leadership.reconcile import changes_of, reconcile_verdicts, rejections_of
from schemas.names import PlanKind

AllowUnclean = Annotated[
    bool,
    typer.Option("--allow-unclean", help="Allow unclean elections, which lose data, where nothing else can lead."),
]

NEW: Final = "leader IS NULL AND understood AND (action IS NOT NULL OR code IS NOT NULL)"
"""Verdicts on partitions without a state znode: new, unless history knows better."""


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


@question
def reconcile(
    settings: Settings,
    *,
    allow_unclean: AllowUnclean = False,
    planning: Planning,
) -> ExitCode:
    """Plan what is due after failures: dead leaders replaced, dead followers out of the ISR, first leaders."""
    return report_plan(settings, planning, lambda at: whats_due(at, allow_unclean=allow_unclean))
