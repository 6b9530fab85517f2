"""What one cycle finds due after failures, as a plan, and what is left to the controller that stays.

`planner.leadership.reconcile` decides; what it takes for new is looked up in history, which may know better. What takes
several steps, and somebody to wait between them, is no part of a plan: reassignments, deletions and elections that are
asked for in /admin. They are named, with what they wait for.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import functions as F

from jobs.adapters.spark.session import tallied
from jobs.planning.plan import Planned
from jobs.planning.tables import vanished_states
from jobs.records.failed_log_dirs import event_lines
from jobs.records.snapshot_tables import SnapshotTables
from jobs.records.snapshots import as_of
from jobs.runtime.console import say
from planner.cycle.compose import Cycle, Tables
from planner.history.survey import KEY
from planner.history.vanished import vanished_rejections
from planner.leadership.reconcile import changes_of, reconcile_verdicts, rejections_of
from schemas.names import PlanKind, RequestKind

WAITING_SHOWN: Final = 20
"""Lines of what waits, at most."""

_MOVING: Final = "size(adding_replicas) + size(removing_replicas) > 0"
_ASKED: Final = frozenset({RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION, RequestKind.DELETE_TOPIC})

NEW: Final = "leader IS NULL AND understood AND (action IS NOT NULL OR code IS NOT NULL)"
"""Verdicts on partitions without a state znode: new, unless history knows better."""


def whats_due(at: SnapshotTables, *, allow_unclean: bool = False) -> Planned:
    """Plan the changes and rejections of one cycle, looking at all partitions once."""
    for line in event_lines(at.tables.lake, at.snapshot):
        say(f"surveyor: {line}")
    for line in waiting_lines(at):
        say(line)
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


def waiting_lines(at: SnapshotTables) -> Iterator[str]:
    """Say what waits for the controller that stays, Kafka's own or `surveyor control`, and for what."""
    lake = at.tables.lake
    requests = as_of(lake, at.snapshot, "requests")
    partitions = at["partitions"]
    is_moving = partitions.where(_MOVING).limit(1).count()
    if not (is_moving or any(row["kind"] in _ASKED for row in requests)):
        return
    tables = Tables(
        partitions=partitions,
        topics=at["topics"],
        brokers=at["brokers"],
        broker_configs=at["broker_configs"],
        requests=at.tables.frame("requests", requests),
        stopped=at.tables.frame("answers", []),
    )
    rows = Cycle(tables).for_who_stays().orderBy("topic", "partition").limit(WAITING_SHOWN + 1).collect()
    for row in rows[:WAITING_SHOWN]:
        name = row.topic if row.partition is None else f"{row.topic}-{row.partition}"
        yield f"  waits for {_who_stays(at)}: {name}: {row.what}: {row.why}"
    if len(rows) > WAITING_SHOWN:
        yield "  ... and more; `surveyor show requests` has what is asked for in /admin"


def _who_stays(at: SnapshotTables) -> str:
    """Who carries it out, as the snapshot shows."""
    controller = at.snapshot["controller_id"]
    live = {row["broker_id"] for row in as_of(at.tables.lake, at.snapshot, "brokers")}
    return f"broker {controller}, the controller" if controller in live else "a controller that stays"
