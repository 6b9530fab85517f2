"""The impact of losing every broker, rack or pair of brokers, or given brokers together, on a stored snapshot.

The result is shown worst first. Except for given brokers it is also stored in the table `whatif` for dashboards, and
replaces earlier rows of the same snapshot and loss.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse, decode_rows, quote_literal
from jobs.adapters.spark.session import start_session
from jobs.console_output.losses import MAX_PARTITIONS_IN_JSON, WHATIF_SUMMARY, Losses, losses_result
from jobs.core.arrow_rows import StoredRows
from jobs.core.errors import RefusedError, UsageError
from jobs.planning.planning_tables import PlanningTables
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.racks import racks_as_of
from jobs.repositories.snapshots import find_snapshot, later_commit, rows_as_of, table_as_of, unread_in, with_age
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import run_on_fleet
from jobs.runtime.input_files import parse_broker_ids
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import arrays_of
from planner.columns.partition_masks import Bools, lost_partitions
from planner.topics.rack_crowding import crowded_rows
from planner.whatif.impact import BrokersLost
from planner.whatif.impact import whatif as costs_of_losing
from schemas.enums import FailureScenario
from schemas.rows import Broker, LossImpact, Snapshot
from schemas.text import broker_list, join_ids, partition_name, pluralise

RACK: Final = "rack="

RequestedLoss = FailureScenario | list[int] | str
"""A kind of loss, or the ids of brokers or the rack that are lost together."""


def parse_lose(text: str) -> RequestedLoss:
    """Parse --lose; raise UsageError for other values.

    >>> parse_lose("racks=1").value, parse_lose("brokers=2").value, parse_lose("5,2"), parse_lose("rack=b")
    ('racks=1', 'pairs', [2, 5], 'b')
    """
    taken = {lose.value: lose for lose in FailureScenario} | {"brokers=2": FailureScenario.PAIRS}
    if text in taken:
        return taken[text]
    if text.startswith(RACK):
        return text.removeprefix(RACK)
    if not text[:1].isdecimal():
        raise UsageError(
            f"--lose {text!r}: expected brokers=1, racks=1, pairs (the same as brokers=2), or what is lost together: "
            "brokers as in 2,5, or a rack as in rack=a"
        )
    return sorted(parse_broker_ids(text, "--lose"))


def _lost_together(
    warehouse: Warehouse, snapshot: Snapshot, loss: RequestedLoss
) -> tuple[FailureScenario | BrokersLost, list[str]]:
    """Return the loss with the live brokers it consists of, and warnings; raise RefusedError if none is live."""
    if isinstance(loss, FailureScenario):
        return loss, []
    known = racks_as_of(warehouse, snapshot)
    live = {row.broker_id for row in rows_as_of(warehouse, snapshot, Broker) if row.is_live}
    racks = {broker: known.rack_of.get(broker) for broker in sorted(live)}
    rack = None if isinstance(loss, list) else known.name_of.get(loss, loss)
    requested = loss if isinstance(loss, list) else [broker for broker in racks if racks[broker] == rack]
    lost = sorted(racks.keys() & set(requested))
    if not lost:
        known_racks = join_ids(sorted({rack for rack in racks.values() if rack is not None})) or "none"
        named = f"{RACK}{loss}" if isinstance(loss, str) else join_ids(loss)
        raise RefusedError(
            f"--lose {named}: no such broker is live in snapshot {snapshot.snapshot_id}; live are "
            f"{join_ids(sorted(racks))}, racks are {known_racks}. {with_age(snapshot)}: `surveyor snapshot` takes "
            "a new one"
        )
    name = f"broker{'s' * (len(lost) > 1)} {'+'.join(map(str, lost))}" if isinstance(loss, list) else f"rack {loss}"
    gone = [broker for broker in requested if broker not in racks]
    already = [f"{broker_list(gone)} not live in snapshot {snapshot.snapshot_id}: lost already"] if gone else []
    return BrokersLost(name, lost), already


def report_losses(
    settings: Settings, lose: str, snapshot: int | None, limit: int, *, everything: bool = False
) -> CommandResult:
    """Return the impact of losses, the worst first, with the partitions concerned."""
    losses = losses_on(settings, lose, snapshot, limit, everything=everything)
    at = [] if snapshot is None else ["--snapshot", str(losses.snapshot.snapshot_id)]
    return losses_result(settings, losses, at, everything=everything)


def losses_on(settings: Settings, lose: str, snapshot: int | None, limit: int, *, everything: bool = False) -> Losses:
    """Compute the impact of losses on a snapshot, and name the partitions of the worst `limit` of them."""
    requested = parse_lose(lose)
    chosen = find_snapshot(settings.warehouse, snapshot)
    loss, already_lost = _lost_together(settings.warehouse, chosen, requested)
    impacts = _impacts(settings, chosen, loss)
    shown = impacts if everything else impacts[:limit]
    with progress("naming partitions"):
        named_partitions = _named_partitions(settings, chosen, shown, everything=everything)
    return Losses(
        snapshot=chosen,
        loss=f"{loss}",
        impacts=impacts,
        named_partitions=named_partitions,
        crowded=_crowded(settings, chosen),
        warnings=[*already_lost, *_warnings(settings.warehouse, chosen, impacts)],
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
        return [partition_name(topic, number) for topic, number in pairs]

    marked = (lost_partitions(arrays, live, understood, drained, impact.lost) for impact in impacts)
    return [{field.name: names(getattr(lost, field.name)) for field in fields(lost)} for lost in marked]


def _warnings(warehouse: Warehouse, snapshot: Snapshot, impacts: Sequence[LossImpact]) -> list[str]:
    """Name what no count includes: later commits, partitions without a state, and what is not understood."""
    outdated = later_commit(warehouse, snapshot)
    warnings = [f"{outdated}; take a `surveyor snapshot`"] if outdated else []
    if impacts and impacts[0].not_judged:
        not_judged = pluralise(impacts[0].not_judged, "partition")
        warnings.append(f"{not_judged} not judged: not understood, or without a state")
    if unread := unread_in(warehouse, snapshot):
        them = "it" if unread.is_one else "them"
        warnings.append(f"{unread.sentence()}: no loss of {them} is counted; {QUARANTINE_COMMAND}")
    return warnings


def _crowded(settings: Settings, snapshot: Snapshot) -> int:
    """Count the partitions with more replicas in one rack than necessary on these brokers."""
    warehouse = settings.warehouse
    racks = racks_as_of(warehouse, snapshot)
    replicas = StoredRows(table_as_of(warehouse, snapshot, "partitions", columns=("replicas",))).brokers("replicas")
    return int(crowded_rows(replicas, racks.known, racks.usable).sum())


def _impacts(settings: Settings, snapshot: Snapshot, lose: FailureScenario | BrokersLost) -> list[LossImpact]:
    """Compute the impact; store it unless it is of given brokers, which no dashboard shows."""
    warehouse, snapshot_id = settings.warehouse, snapshot.snapshot_id
    warehouse.ensure_tables()
    with progress("starting the engine"):
        tables = PlanningTables(
            SparkWarehouse(start_session("surveyor whatif", place=settings.place), warehouse),
            snapshot,
            racks=racks_as_of(warehouse, snapshot),
        )
    with progress(f"losing {lose}"):
        frames = tables["partitions"], tables["topics"], tables["brokers"], tables["broker_configs"]
        impacts = decode_rows(LossImpact, costs_of_losing(*frames, snapshot_id=snapshot_id, lose=lose).toArrow())
    if isinstance(lose, FailureScenario):
        warehouse.replace("whatif", impacts, f"snapshot_id = {snapshot_id} AND lose = {quote_literal(lose.value)}")
    return impacts
