"""The page of several clusters: their health at the newest snapshots, the worst first, with a link to each one's page.

A row has `cluster`, `reason` (why nothing is known of it, or None), `snapshot_id`, `taken_at` and the figures of
`jobs.snapshots.fleet_health`. The report and the dashboard draw the same table and differ in the links.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.core.units import format_duration
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.snapshots import find_snapshot
from jobs.snapshots.fleet_health import WORST_BY, figures_of, health_at
from jobs.web.charts import percent, plainly
from jobs.web.render import Fact, alarming, render, render_part, shown_time
from schemas.rows import Row, Snapshot

FIGURES: Final = {
    "offline": ("offline", "bad"),
    "under_min_isr": ("under min ISR", "bad"),
    "under_replicated": ("under-replicated", "warn"),
    "brokers_gone": ("brokers gone", "bad"),
    "not_understood": ("not understood", "warn"),
    "moving": ("being reassigned", ""),
}
"""The counts of the table, with their heading and the mood of a count that is not 0."""


def newest_health(warehouse: Warehouse, snapshot: Snapshot, threshold: float) -> Row:
    """Return what a row has of a cluster at a snapshot; `threshold` is that of the imbalance."""
    drained = drained_brokers(warehouse) if warehouse.has("drained") else set()
    health = health_at(warehouse, snapshot, threshold, drained)
    return {"snapshot_id": snapshot.snapshot_id, "taken_at": snapshot.taken_at, **figures_of(health.json)}


def rows_of(warehouses: Iterable[Warehouse], threshold: float) -> list[Row]:
    """Return the rows of clusters, the worst first; a cluster that cannot be read comes before all others."""
    rows = [_row(warehouse, threshold) for warehouse in warehouses]
    return sorted(
        rows,
        key=lambda row: (row["reason"] is None, *(-(row.get(name) or 0) for name in WORST_BY), row["cluster"]),
    )


def _row(warehouse: Warehouse, threshold: float) -> Row:
    try:
        return {
            "cluster": warehouse.cluster,
            "reason": None,
            **newest_health(warehouse, find_snapshot(warehouse), threshold),
        }
    except SurveyorError as error:
        return {"cluster": warehouse.cluster, "reason": str(error).partition("\n")[0]}


def fleet_facts(rows: Sequence[Row]) -> list[Fact]:
    """Return figures of all clusters together."""
    known = [row for row in rows if row["reason"] is None]
    return [
        Fact("clusters", plainly(len(rows))),
        alarming("clusters not read", len(rows) - len(known), "bad"),
        alarming("clusters with offline partitions", sum(row["offline"] > 0 for row in known), "bad"),
        *(
            alarming(f"partitions {heading}" if "broker" not in heading else heading, _sum(known, name), mood)
            for name, (heading, mood) in FIGURES.items()
            if mood
        ),
    ]


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(row[name] for row in rows)


def fleet_table(rows: Sequence[Row], now: datetime, link: Callable[[str], str | None]) -> Markup:
    """Return the table as HTML; `link` returns the address of a cluster's page, None if it has none."""
    return render_part(
        "fleet_table.html",
        headings=[heading for heading, _ in FIGURES.values()],
        rows=[_cells(row, now, link(row["cluster"])) for row in rows],
    )


def _cells(row: Row, now: datetime, href: str | None) -> dict[str, Any]:
    if row["reason"] is not None:
        return {"cluster": row["cluster"], "href": href, "reason": row["reason"]}
    return {
        "cluster": row["cluster"],
        "href": href,
        "reason": None,
        "counts": [(plainly(row[name]), mood if row[name] else "") for name, (_, mood) in FIGURES.items()],
        "imbalance": percent(row["imbalance"]),
        "snapshot": row["snapshot_id"],
        "taken_at": shown_time(row["taken_at"]),
        "age": format_duration(max((now - row["taken_at"]).total_seconds(), 0)),
    }


def fleet_page(rows: Sequence[Row], now: datetime, link: Callable[[str], str | None]) -> str:
    """Return the page as HTML."""
    table = fleet_table(rows, now, link)
    return render("fleet.html", facts_of_all=fleet_facts(rows), table=table, made_at=shown_time(now))
