"""The impact of losing every broker, rack or pair of brokers, computed on a stored snapshot.

The result is shown worst first. It is also stored in the table `whatif` for dashboards, and replaces earlier rows of
the same snapshot and loss.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import decode_rows, quote_identifier
from jobs.adapters.spark.session import start_session
from jobs.console_output.losses import MAX_PARTITIONS_IN_JSON, WHATIF_SUMMARY, Losses, losses_result
from jobs.core.arrow_rows import StoredRows
from jobs.core.errors import UsageError
from jobs.planning.planning_tables import PlanningTables
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.brokers_last_seen import racks_as_of
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.snapshots import find_snapshot, later_commit, table_as_of, unread_in
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import run_on_fleet
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import Bools, lost_partitions
from planner.topics.crowding import crowded_rows
from planner.whatif.impact import whatif as costs_of_losing
from schemas.enums import FailureScenario
from schemas.rows import LossImpact, Snapshot
from schemas.text import pluralise


def parse_lose(text: str) -> FailureScenario:
    """Parse --lose; raise UsageError for other values.

    >>> parse_lose("racks=1").value, parse_lose("brokers=2").value
    ('racks=1', 'pairs')
    """
    taken = {lose.value: lose for lose in FailureScenario} | {"brokers=2": FailureScenario.PAIRS}
    if text not in taken:
        raise UsageError(f"--lose {text!r}: expected brokers=1, racks=1 or pairs (the same as brokers=2)")
    return taken[text]


def report_losses(
    settings: Settings, lose: str, snapshot: int | None, limit: int, *, everything: bool = False
) -> CommandResult:
    """Return the impact of losses, the worst first, with the partitions concerned."""
    losses = losses_on(settings, lose, snapshot, limit, everything=everything)
    at = [] if snapshot is None else ["--as-of", str(losses.snapshot.snapshot_id)]
    return losses_result(settings, losses, at, everything=everything)


def losses_on(settings: Settings, lose: str, snapshot: int | None, limit: int, *, everything: bool = False) -> Losses:
    """Compute the impact of losses on a snapshot, and name the partitions of the worst `limit` of them."""
    loss = parse_lose(lose)
    chosen = find_snapshot(settings.warehouse, snapshot)
    impacts = _impacts(settings, chosen, loss)
    shown = impacts if everything else impacts[:limit]
    with progress("naming partitions"):
        named_partitions = _named_partitions(settings, chosen, shown, everything=everything)
    return Losses(
        snapshot=chosen,
        loss=loss,
        impacts=impacts,
        named_partitions=named_partitions,
        crowded=_crowded(settings, chosen),
        warnings=_warnings(settings, chosen, impacts),
    )


def losses_of_fleet(
    settings: Settings, lose: str, limit: int, parallel: int | None, *, everything: bool = False
) -> CommandResult:
    """Return the impact of losses on each cluster, at its newest snapshot."""
    parse_lose(lose)  # a wrong value is one error, not one of each cluster
    work = partial(report_losses, lose=lose, snapshot=None, limit=limit, everything=everything)
    return run_on_fleet(settings, parallel, work, WHATIF_SUMMARY)


def _named_partitions(
    settings: Settings, snapshot: Snapshot, impacts: Sequence[LossImpact], *, everything: bool
) -> list[dict[str, list[str]]]:
    """Return for each impact, by cost, the first partitions counted."""
    warehouse = settings.warehouse
    view = view_of(warehouse, snapshot)
    arrays = arrays_of(view, default_min_isr_of(warehouse, snapshot))
    live = {broker.broker_id for broker in view.brokers}
    understood = {broker.broker_id for broker in view.brokers if broker.understood}
    drained = drained_brokers(warehouse)
    topics, numbers = view.partitions["topic"], view.partitions["partition"]
    order = np.asarray(pc.sort_indices(view.partitions, [("topic", "ascending"), ("partition", "ascending")]))

    def names(counted: Bools) -> list[str]:
        places = order[counted[order]]
        first = pa.array(places if everything else places[:MAX_PARTITIONS_IN_JSON])
        pairs = zip(topics.take(first).to_pylist(), numbers.take(first).to_pylist(), strict=True)
        return [f"{topic}-{number}" for topic, number in pairs]

    marked = (lost_partitions(arrays, live, understood, drained, impact.lost) for impact in impacts)
    return [{field.name: names(getattr(lost, field.name)) for field in fields(lost)} for lost in marked]


def _warnings(settings: Settings, snapshot: Snapshot, impacts: Sequence[LossImpact]) -> list[str]:
    """Name what no count includes: later commits, partitions without a state, and what is not understood."""
    outdated = later_commit(settings.warehouse, snapshot)
    warnings = [f"{outdated}; take a `surveyor snapshot`"] if outdated else []
    if impacts and impacts[0].not_judged:
        not_judged = pluralise(impacts[0].not_judged, "partition")
        warnings.append(f"{not_judged} not judged: not understood, or without a state")
    if unread := unread_in(settings.warehouse, snapshot):
        them = "it" if unread.is_one else "them"
        warnings.append(f"{unread.sentence()}: no loss of {them} is counted; {QUARANTINE_COMMAND}")
    return warnings


def _crowded(settings: Settings, snapshot: Snapshot) -> int:
    """Count the partitions with more replicas in one rack than necessary on these brokers."""
    warehouse = settings.warehouse
    racks = racks_as_of(warehouse, snapshot)
    replicas = StoredRows(table_as_of(warehouse, snapshot, "partitions", columns=("replicas",))).brokers("replicas")
    return int(crowded_rows(replicas, racks.known, racks.usable).sum())


def _impacts(settings: Settings, snapshot: Snapshot, lose: FailureScenario) -> list[LossImpact]:
    """Compute and store the impact."""
    warehouse, snapshot_id = settings.warehouse, snapshot.snapshot_id
    warehouse.ensure_tables()
    with progress("starting Spark"):
        tables = PlanningTables(
            SparkWarehouse(
                start_session("surveyor whatif", remote=settings.remote, warehouse=settings.warehouse_uri), warehouse
            ),
            snapshot,
            racks=racks_as_of(warehouse, snapshot),
        )
    with progress("losing " + lose.value):
        frames = tables["partitions"], tables["topics"], tables["brokers"], tables["broker_configs"]
        impacts = decode_rows(LossImpact, costs_of_losing(*frames, snapshot_id=snapshot_id, lose=lose).toArrow())
    warehouse.replace("whatif", impacts, f"snapshot_id = {snapshot_id} AND lose = {quote_identifier(lose.value)}")
    return impacts
