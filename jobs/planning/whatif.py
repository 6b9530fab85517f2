"""The impact of losing every broker, rack or pair of brokers, computed on a stored snapshot.

The result is shown worst first. It is also stored in the table `whatif` for dashboards, and replaces earlier rows of
the same snapshot and loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import quoted, typed
from jobs.adapters.spark.session import start_session
from jobs.core.arrow_rows import StoredRows
from jobs.core.errors import UsageError
from jobs.planning.planning_tables import PlanningTables
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.brokers_last_seen import brokers_last_seen, rack_of_each
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.quarantine import unread_in
from jobs.repositories.snapshots import find_snapshot, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult, Result, table
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import Bools, lost_partitions
from planner.topics.crowding import crowded_rows
from planner.whatif.impact import whatif as costs_of_losing
from schemas.enums import FailureScenario
from schemas.rows import Broker, LossImpact, Snapshot
from schemas.text import MAX_PARTITIONS_NAMED, pluralise

SCENARIO_COLUMNS: Final = (
    "scenario",
    "newly_offline",
    "unclean_only",
    "newly_under_min_isr",
    "leaders_moved",
    "max_leaders",
    "most_leaders_on",
)
"""Columns of the console; --json and the table `whatif` also have the values before any loss."""


def parse_lose(text: str) -> FailureScenario:
    """Parse --lose; raise UsageError for other values.

    >>> parse_lose("racks=1").value, parse_lose("brokers=2").value
    ('racks=1', 'pairs')
    """
    taken = {lose.value: lose for lose in FailureScenario} | {"brokers=2": FailureScenario.PAIRS}
    if text not in taken:
        raise UsageError(f"--lose {text!r}: expected brokers=1, racks=1 or pairs (the same as brokers=2)")
    return taken[text]


MAX_PARTITIONS_IN_JSON: Final = 100
"""Partitions named in a row of --json, per cost."""

COSTS: Final = {
    "newly_offline": "offline",
    "newly_under_min_isr": "under min ISR",
}
"""Counts whose partitions are named on the console, and how they are called there."""


def report_losses(
    settings: Settings, lose: str, snapshot: int | None, limit: int, *, everything: bool = False
) -> CommandResult:
    """Return the impact of losses, the worst first, with the partitions concerned."""
    loss = parse_lose(lose)
    chosen = find_snapshot(settings.warehouse, snapshot)
    impacts = _impacts(settings, chosen, loss)
    shown = impacts if everything else impacts[:limit]
    with progress("naming partitions"):
        named_partitions = _named_partitions(settings, chosen, shown, everything=everything)
    rows = [
        impact.columns() | ({"partitions": named_partitions[number]} if number < len(named_partitions) else {})
        for number, impact in enumerate(impacts)
    ]
    crowded, warnings = _crowded(settings, chosen), _warnings(settings, chosen, impacts)
    result = {
        "snapshot_id": chosen.snapshot_id,
        "lose": loss.value,
        "scenarios": len(rows),
        "scenarios_offline": sum(impact.newly_offline > 0 for impact in impacts),
        "crowded": crowded,
        "warnings": warnings,
        "rows": rows,
    }
    may_spread = crowded > 0 and loss is FailureScenario.RACKS
    at = [] if snapshot is None else ["--as-of", str(chosen.snapshot_id)]
    steps = [*_suggestions(settings, loss, next(iter(impacts), None), at, may_spread=may_spread)]
    title = f"{settings.cluster}, snapshot {chosen.snapshot_id}, losing {loss.value}"
    people = [
        table(title, SCENARIO_COLUMNS, rows[: len(shown)]),
        *(
            [f"... and {len(rows) - limit} more; --limit shows more, --json gives all"]
            if len(rows) > len(shown)
            else []
        ),
        *_cost_lines(shown, named_partitions, everything=everything),
        f"{result['scenarios_offline']} of {len(rows)} scenarios take partitions offline",
        *(_crowded_lines(crowded) if may_spread else ()),
        *(f"warning: {warning}" for warning in warnings),
    ]
    return CommandResult(result, *people, steps=steps, warnings=warnings)


def losses_of_fleet(
    settings: Settings, lose: str, limit: int, parallel: int | None, *, everything: bool = False
) -> CommandResult:
    """Return the impact of losses on each cluster, at its newest snapshot."""
    parse_lose(lose)  # a wrong value is one error, not one of each cluster
    work = partial(report_losses, lose=lose, snapshot=None, limit=limit, everything=everything)
    return run_on_fleet(settings, parallel, work, WHATIF_SUMMARY)


def _fleet_figures(result: Result) -> Result:
    """Return the number of scenarios, and the figures of the worst one."""
    worst: Result = next(iter(result["rows"]), {})
    figures = {name: worst.get(name) for name in SCENARIO_COLUMNS}
    return {
        "snapshot_id": result["snapshot_id"],
        "scenarios_offline": result["scenarios_offline"],
        "scenarios": result["scenarios"],
        **figures,
    }


WHATIF_SUMMARY: Final = FleetSummary(
    title="whatif",
    figures=_fleet_figures,
    shown=("snapshot_id", "scenarios_offline", *SCENARIO_COLUMNS[:4]),
    worst_by=("newly_offline", "scenarios_offline", "newly_under_min_isr"),
)


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
    """Name what no count includes: partitions without a state, and what is not understood."""
    warnings = []
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
    brokers = rows_as_of(warehouse, snapshot, Broker)
    racks = rack_of_each(brokers, brokers_last_seen(warehouse, snapshot))
    usable = [row.broker_id for row in brokers if row.understood and row.is_live]
    known_racks = {broker: rack for broker, rack in racks.items() if rack is not None}
    replicas = StoredRows(table_as_of(warehouse, snapshot, "partitions", columns=("replicas",))).brokers("replicas")
    return int(crowded_rows(replicas, known_racks, usable).sum())


def _suggestions(
    settings: Settings, loss: FailureScenario, worst: LossImpact | None, at: Sequence[str], *, may_spread: bool
) -> Iterator[Suggestion]:
    """Yield suggestions about the worst loss, if it takes partitions offline."""
    if worst is None or not worst.newly_offline:
        if may_spread:
            yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks", "--refresh")
        return
    if worst.unclean_only:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", *at)
    for broker in worst.lost[:1]:
        yield suggestion(settings, "show its partitions", "show", "partitions", "--broker", str(broker), *at)
    if loss is FailureScenario.RACKS:
        yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks", "--refresh")


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
        )
    with progress("losing " + lose.value):
        frames = tables["partitions"], tables["topics"], tables["brokers"], tables["broker_configs"]
        impacts = typed(LossImpact, costs_of_losing(*frames, snapshot_id=snapshot_id, lose=lose).toArrow())
    warehouse.replace("whatif", impacts, f"snapshot_id = {snapshot_id} AND lose = {quoted(lose.value)}")
    return impacts


def _cost_lines(
    impacts: Sequence[LossImpact], named: Sequence[Mapping[str, list[str]]], *, everything: bool
) -> Iterator[str]:
    """Yield a line per scenario and cost with the partitions concerned."""
    for impact, partitions in zip(impacts, named, strict=True):
        for cost, phrase in COSTS.items():
            names = partitions[cost] if everything else partitions[cost][:MAX_PARTITIONS_NAMED]
            if names:
                count: int = getattr(impact, cost)
                topics = len({name.rpartition("-")[0] for name in partitions[cost]})
                extent = "" if topics == 1 else f" of {'at least ' * (count > MAX_PARTITIONS_IN_JSON)}{topics} topics"
                others = f" and {count - len(names)} more (--all-partitions)" if count > len(names) else ""
                counted = f"{pluralise(count, 'partition')}{extent}"
                yield f"  {impact.scenario}: {counted} {phrase}: {', '.join(names)}{others}"


def _crowded_lines(crowded: int) -> Iterator[str]:
    have = pluralise(crowded, "partition", "has", "have")
    yield f"{have} more replicas in one rack than needed: `plan reassign --fix-racks` spreads them"
