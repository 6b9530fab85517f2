"""Output of `surveyor whatif --load`: the most loaded broker of each hour as a table and a chart."""

from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from jobs.console_output.text_chart import Point, text_chart
from jobs.runtime.console import CommandResult, Line, Result, table
from jobs.runtime.settings import Settings
from planner.load.findings import UNEVEN_LOAD
from planner.load.load_figures import SHARES, SIDES
from schemas.text import pluralise


class HourLoad(Struct, frozen=True, kw_only=True):
    """The most loaded broker of an hour, as a multiple of its share, and its resource: disk, in, out or cpu."""

    hour: datetime
    worst_before: float | None
    worst_after: float | None
    broker_before: int | None
    broker_after: int | None
    resource_before: str | None
    resource_after: str | None

    def worst(self, side: str) -> float:
        multiple: float | None = getattr(self, f"worst_{side}")
        return multiple or 0.0


class Backtest(Struct, frozen=True, kw_only=True):
    """The hours of an assignment, and those after a plan."""

    snapshot_id: int
    plan_id: str | None
    """None without a plan; then both sides are the assignment of the snapshot."""
    plan: str | None
    by_capacity: bool
    rows: list[HourLoad]
    """The oldest first."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that differ."""
        return SIDES[:1] if self.plan_id is None else SIDES

    def figures(self, side: str) -> Result:
        """Return the worst and the median hour, and the hours in which a broker has much more than its share."""
        multiples = [row.worst(side) for row in self.rows]
        return {
            "worst": max(multiples),
            "median": median(multiples),
            "uneven_hours": sum(multiple > UNEVEN_LOAD for multiple in multiples),
        }


def backtest_result(settings: Settings, backtest: Backtest, limit: int) -> CommandResult:
    """Return what the command shows; the table has the hours with the most loaded brokers before the plan."""
    figures = {side: backtest.figures(side) for side in backtest.sides} if backtest.rows else {}
    fields: Result = {
        "snapshot_id": backtest.snapshot_id,
        "plan_id": backtest.plan_id,
        "hours": len(backtest.rows),
        "by_capacity": backtest.by_capacity,
        **figures,
        "rows": [_row(backtest, row) for row in backtest.rows],
    }
    return CommandResult(fields, *_lines(settings, backtest, limit), warnings=())


def _row(backtest: Backtest, row: HourLoad) -> Result:
    return {name: value for name, value in asdict(row).items() if name.partition("_")[2] in ("", *backtest.sides)}


def _lines(settings: Settings, backtest: Backtest, limit: int) -> Iterator[Line]:
    rows = backtest.rows
    of_plan = "" if backtest.plan is None else f", before and after plan {backtest.plan}"
    title = f"{settings.cluster}, snapshot {backtest.snapshot_id}: load of {pluralise(len(rows), 'hour')}{of_plan}"
    if not rows:
        yield f"{title}: no partition of the snapshot has a load in these hours"
        return
    worst = sorted(rows, key=lambda row: (-max(row.worst(side) for side in backtest.sides), row.hour))[:limit]
    cells = [_row(backtest, row) | {"hour": f"{row.hour:%a %Y-%m-%d %H:%M} UTC"} for row in worst]
    columns = ["hour", *(f"{name}_{side}" for side in backtest.sides for name in ("worst", "broker", "resource"))]
    yield table(title, columns, cells)
    if len(rows) > limit:
        yield f"... and {len(rows) - limit} more hours; --limit shows more, --json gives all"
    for phrase, texts in figure_texts(backtest):
        yield f"{phrase}: {' → '.join(texts)}"
    series: dict[str, list[Point]] = {
        side: [(row.hour.timestamp(), row.worst(side)) for row in rows] for side in backtest.sides
    }
    yield from text_chart(series, (f"{rows[0].hour:%Y-%m-%d %H:%M}", f"{rows[-1].hour:%Y-%m-%d %H:%M} UTC"))


def figure_texts(backtest: Backtest) -> Iterator[tuple[str, list[str]]]:
    """Yield what each figure is, and its values on the sides that differ."""
    figures = [backtest.figures(side) for side in backtest.sides]
    for name, phrase in _PHRASES.items():
        yield phrase.format(scale=SHARES[backtest.by_capacity]), [_text(of_side[name]) for of_side in figures]


_PHRASES: Final = {
    "worst": "most loaded broker, of {scale}",
    "median": "in the median hour",
    "uneven_hours": f"hours in which a broker has more than {UNEVEN_LOAD} times {{scale}}",
}


def _text(figure: float) -> str:
    return f"{figure}" if isinstance(figure, int) else f"{figure:.2f}"
