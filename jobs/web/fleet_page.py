"""The page of several clusters: their health at the newest snapshots, the worst first, with a link to each one's page.

The report and the dashboard draw the same table and differ in the links.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from markupsafe import Markup

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.core.units import format_age
from jobs.repositories.drained_brokers import drained_brokers
from jobs.snapshots.fleet_health import HealthFigures, figures_of, health_at
from jobs.web.charts import format_number, percent
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


@dataclass(frozen=True, slots=True)
class HealthAtSnapshot:
    """The health of a cluster at a snapshot."""

    snapshot_id: int
    taken_at: datetime
    figures: HealthFigures

    @property
    def json(self) -> Row:
        """The JSON object of the report."""
        return {
            "snapshot_id": self.snapshot_id,
            "taken_at": self.taken_at,
            **msgspec.structs.asdict(self.figures),
        }


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A cluster of the page."""

    cluster: str
    health: HealthAtSnapshot | None
    """At the newest snapshot; None if it is not known."""
    reason: str | None = None
    """Reason why the health is not known."""


def newest_health(warehouse: Warehouse, snapshot: Snapshot, threshold: float) -> HealthAtSnapshot:
    """Return the health of a cluster at a snapshot; `threshold` is the maximum imbalance."""
    drained = drained_brokers(warehouse) if warehouse.has("drained") else set()
    health = health_at(warehouse, snapshot, threshold, drained)
    return HealthAtSnapshot(snapshot.snapshot_id, snapshot.taken_at, figures_of(health))


def rows_of(warehouses: Iterable[Warehouse], newest: Callable[[Warehouse], HealthAtSnapshot]) -> list[FleetRow]:
    """Return the rows of clusters, the worst first; a cluster that cannot be read comes before all others.

    `newest` returns the health of a cluster at its newest snapshot.
    """
    rows = [_row(warehouse, newest) for warehouse in warehouses]
    return sorted(rows, key=_severity)


def _severity(row: FleetRow) -> tuple[bool, tuple[float, ...], str]:
    """Return the sort key by which the worst cluster is first."""
    figures = () if row.health is None else row.health.figures.severity
    return row.health is not None, tuple(-figure for figure in figures), row.cluster


def _row(warehouse: Warehouse, newest: Callable[[Warehouse], HealthAtSnapshot]) -> FleetRow:
    try:
        return FleetRow(warehouse.cluster, newest(warehouse))
    except SurveyorError as error:
        return FleetRow(warehouse.cluster, None, str(error).partition("\n")[0])


def fleet_facts(rows: Sequence[FleetRow]) -> list[Fact]:
    """Return figures of all clusters together."""
    figures = [row.health.figures for row in rows if row.health is not None]
    return [
        Fact("clusters", format_number(len(rows))),
        alarming("clusters not read", len(rows) - len(figures), "bad"),
        alarming("clusters with offline partitions", sum(of_cluster.offline > 0 for of_cluster in figures), "bad"),
        *(
            alarming(f"partitions {heading}" if "broker" not in heading else heading, _sum(figures, name), mood)
            for name, (heading, mood) in FIGURES.items()
            if mood
        ),
    ]


def _sum(figures: Iterable[HealthFigures], name: str) -> int:
    return sum(getattr(of_cluster, name) for of_cluster in figures)


def fleet_table(rows: Sequence[FleetRow], now: datetime, link: Callable[[str], str | None]) -> Markup:
    """Return the table as HTML; `link` returns the address of a cluster's page, None if it has none."""
    return render_part(
        "fleet_table.html",
        headings=[heading for heading, _ in FIGURES.values()],
        rows=[_cells(row, now, link(row.cluster)) for row in rows],
    )


def _cells(row: FleetRow, now: datetime, href: str | None) -> dict[str, Any]:
    health = row.health
    if health is None:
        return {"cluster": row.cluster, "href": href, "reason": row.reason}
    counts = [(getattr(health.figures, name), mood) for name, (_, mood) in FIGURES.items()]
    return {
        "cluster": row.cluster,
        "href": href,
        "reason": None,
        "counts": [(format_number(count), mood if count else "") for count, mood in counts],
        "imbalance": percent(health.figures.imbalance),
        "snapshot": health.snapshot_id,
        "taken_at": shown_time(health.taken_at),
        "age": format_age(health.taken_at, now),
    }


def fleet_page(rows: Sequence[FleetRow], now: datetime, link: Callable[[str], str | None]) -> str:
    """Return the page as HTML."""
    table = fleet_table(rows, now, link)
    return render("fleet.html", facts_of_all=fleet_facts(rows), table=table, made_at=shown_time(now))
