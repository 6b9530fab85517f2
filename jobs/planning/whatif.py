"""The impact of losing every broker, rack or pair of brokers, computed on a stored snapshot.

The result is shown worst first. It is also stored in the table `whatif` for dashboards, and replaces earlier rows of
the same snapshot and loss.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Row, quoted
from jobs.adapters.spark.session import start_session
from jobs.core.errors import UsageError
from jobs.planning.planning_tables import PlanningTables
from jobs.preconditions.unread_metadata import SHOWN, unread_in
from jobs.repositories.brokers_last_seen import brokers_last_seen, rack_of_each
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.snapshots import find_snapshot, rows_as_of, table_as_of
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.console import CommandResult, table
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import arrays_of
from planner.columns.numpy_rules import lost_partitions
from planner.topics.crowding import crowding, least_crowding
from planner.whatif.impact import whatif as costs_of_losing
from schemas.enums import FailureScenario
from schemas.rows import Broker, Snapshot
from schemas.text import pluralise

COLUMNS: Final = (
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


MAX_PARTITIONS_NAMED: Final = 10
"""Partitions named in a line, per cost."""

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
    chosen = find_snapshot(settings.lake, snapshot)
    rows = _costs(settings, chosen, loss)
    with progress("naming partitions"):
        _name_partitions(settings, chosen, rows if everything else rows[:limit], everything=everything)
    offline = sum(row["newly_offline"] > 0 for row in rows)
    result = {
        "snapshot_id": chosen.snapshot_id,
        "lose": loss.value,
        "scenarios": len(rows),
        "scenarios_offline": offline,
        "crowded": _crowded(settings, chosen),
        "warnings": _warnings(settings, chosen, rows),
        "rows": rows,
    }
    steps = [*_suggestions(settings, result, is_newest=snapshot is None)]
    people = _for_people(settings, result, len(rows) if everything else limit, everything=everything)
    return CommandResult(result, *people, steps=steps, warnings=result["warnings"])


def _name_partitions(settings: Settings, snapshot: Snapshot, rows: list[Row], *, everything: bool) -> None:
    """Add `partitions` to each row: by cost, the first partitions counted."""
    lake = settings.lake
    seen = view_of(lake, snapshot)
    arrays = arrays_of(seen, default_min_isr_of(lake, snapshot))
    live = {broker.broker_id for broker in seen.brokers}
    understood = {broker.broker_id for broker in seen.brokers if broker.understood}
    drained = drained_brokers(lake)
    topics, numbers = seen.partitions["topic"], seen.partitions["partition"]
    order = np.asarray(pc.sort_indices(seen.partitions, [("topic", "ascending"), ("partition", "ascending")]))
    for row in rows:
        lost = lost_partitions(arrays, live, understood, drained, row["lost"])
        row["partitions"] = {}
        for cost in (field.name for field in fields(lost)):
            places = order[getattr(lost, cost)[order]]
            first = pa.array(places if everything else places[:MAX_PARTITIONS_IN_JSON])
            named = zip(topics.take(first).to_pylist(), numbers.take(first).to_pylist(), strict=True)
            row["partitions"][cost] = [f"{topic}-{number}" for topic, number in named]


def _warnings(settings: Settings, snapshot: Snapshot, rows: list[Row]) -> list[str]:
    """Name what no count includes: partitions without a state, and what is not understood."""
    warnings = []
    if rows and rows[0]["not_judged"]:
        not_judged = pluralise(rows[0]["not_judged"], "partition")
        warnings.append(f"{not_judged} not judged: not understood, or without a state")
    if unread := unread_in(settings.lake, snapshot):
        them = "it" if unread.is_one else "them"
        warnings.append(f"{unread.sentence()}: no loss of {them} is counted; {SHOWN}")
    return warnings


def _crowded(settings: Settings, snapshot: Snapshot) -> int:
    """Count the partitions with more replicas in one rack than necessary on these brokers."""
    lake = settings.lake
    brokers = rows_as_of(lake, snapshot, Broker)
    racks = rack_of_each(brokers, brokers_last_seen(lake, snapshot))
    usable = [row.broker_id for row in brokers if row.understood]
    known_racks = {broker: rack for broker, rack in racks.items() if rack is not None}
    assigned = table_as_of(lake, snapshot, "partitions", columns=("replicas",))["replicas"]
    alike = Counter(map(tuple, pc.fill_null(assigned, []).to_pylist()))
    return sum(
        count
        for replicas, count in alike.items()
        if crowding(replicas, known_racks) > least_crowding(len(replicas), known_racks, usable)
    )


def _suggestions(settings: Settings, result: Row, *, is_newest: bool) -> Iterator[Suggestion]:
    """Yield suggestions about the worst loss, if it takes partitions offline."""
    worst: Row = next(iter(result["rows"]), {"newly_offline": 0})
    if not worst["newly_offline"]:
        if result["crowded"] and result["lose"] == FailureScenario.RACKS.value:
            yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks", "--refresh")
        return
    at = [] if is_newest else ["--as-of", str(result["snapshot_id"])]
    if worst["unclean_only"]:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", *at)
    for broker in worst["lost"][:1]:
        yield suggestion(settings, "show its partitions", "show", "partitions", "--broker", str(broker), *at)
    if result["lose"] == FailureScenario.RACKS.value:
        yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks", "--refresh")


def _costs(settings: Settings, snapshot: Snapshot, lose: FailureScenario) -> list[Row]:
    """Compute and store the impact."""
    lake, snapshot_id = settings.lake, snapshot.snapshot_id
    lake.ensure_tables()
    with progress("starting Spark"):
        at = PlanningTables(
            SparkWarehouse(
                start_session("surveyor whatif", remote=settings.remote, warehouse=settings.warehouse), lake
            ),
            snapshot,
        )
    with progress("losing " + lose.value):
        tables = at["partitions"], at["topics"], at["brokers"], at["broker_configs"]
        rows = [row.asDict() for row in costs_of_losing(*tables, snapshot_id=snapshot_id, lose=lose).collect()]
    lake.replace("whatif", rows, f"snapshot_id = {snapshot_id} AND lose = {quoted(lose.value)}")
    return rows


def _cost_lines(rows: list[Row], *, everything: bool) -> Iterator[str]:
    """Yield a line per scenario and cost with the partitions concerned."""
    for row in rows:
        for cost, what in COSTS.items():
            names = row["partitions"][cost] if everything else row["partitions"][cost][:MAX_PARTITIONS_NAMED]
            if names:
                more = row[cost] - len(names)
                topics = len({name.rpartition("-")[0] for name in row["partitions"][cost]})
                of = "" if topics == 1 else f" of {'at least ' * (row[cost] > MAX_PARTITIONS_IN_JSON)}{topics} topics"
                others = f" and {more} more (--all)" if more else ""
                yield f"  {row['scenario']}: {pluralise(row[cost], 'partition')}{of} {what}: {', '.join(names)}{others}"


def _for_people(settings: Settings, result: Row, limit: int, *, everything: bool) -> list[Table | str]:
    rows: list[Row] = result["rows"]
    title = f"{settings.cluster}, snapshot {result['snapshot_id']}, losing {result['lose']}"
    parts: list[Table | str] = [
        table(title, COLUMNS, rows[:limit]),
        f"{result['scenarios_offline']} of {len(rows)} scenarios take partitions offline",
    ]
    if len(rows) > limit:
        parts.insert(1, f"... and {len(rows) - limit} more; --limit shows more, --json gives all")
    parts[-1:-1] = [*_cost_lines(rows[:limit], everything=everything)]
    if result["crowded"] and result["lose"] == FailureScenario.RACKS.value:
        have = pluralise(result["crowded"], "partition", "has", "have")
        parts.append(f"{have} more replicas in one rack than needed: `plan reassign --fix-racks` spreads them")
    parts += [f"warning: {warning}" for warning in result["warnings"]]
    return parts
