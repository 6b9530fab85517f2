"""The page of a load replay, `surveyor whatif --load`: the most loaded broker of each hour as a chart and a table."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from jobs.console_output.load_replay import Backtest, HourLoad, backtest_result, figure_texts
from jobs.core.units import format_bytes
from jobs.runtime.atomic_files import replace_file
from jobs.runtime.console import CommandResult
from jobs.runtime.settings import Settings
from jobs.web.charts import Chart, lines
from jobs.web.embedded_table import EmbeddedTable
from jobs.web.render import Fact, render, shown_time
from planner.load.load_figures import SHARES
from schemas.rows import Row


def show_backtest(settings: Settings, out: Path | None, limit: int, backtest: Backtest) -> CommandResult:
    """Return what the command shows, and write the page to a file."""
    result = backtest_result(settings, backtest, limit)
    if out is None:
        return result
    written = replace_file(out, replay_page(settings, backtest, datetime.now(UTC)))
    fields = result.fields | {"path": str(out), "bytes": written}
    return CommandResult(fields, *result.lines, f"page: {out} ({format_bytes(written)})", warnings=())


def replay_page(settings: Settings, backtest: Backtest, now: datetime) -> str:
    """Return the page as HTML."""
    scale = SHARES[backtest.by_capacity]
    return render(
        "replay.html",
        cluster=settings.cluster,
        backtest=backtest,
        facts_of_hours=[
            Fact(name, " → ".join(texts)) for name, texts in (figure_texts(backtest) if backtest.rows else ())
        ],
        chart=worst_chart(backtest, f"Multiple of {scale}, of the resource of which a broker has most"),
        table=_table(backtest),
        made_at=shown_time(now),
    )


def worst_chart(backtest: Backtest, title: str) -> Chart | None:
    """Draw the most loaded broker of each hour, a line for each side that differs; None without hours."""
    hours = [row.hour for row in backtest.rows]
    if not hours:
        return None
    series = {side: [row.worst(side) for row in backtest.rows] for side in backtest.sides}
    at = [(hour - hours[0]).total_seconds() / 3600 for hour in hours]
    return lines(title, [f"{hour:%a %Y-%m-%d %H:%M} UTC" for hour in hours], series, at=at)


def _table(backtest: Backtest) -> EmbeddedTable:
    rows = [_cells(backtest, row) for row in backtest.rows]
    brokers = tuple(f"broker_{side}" for side in backtest.sides)
    choices = ("day", *(f"resource_{side}" for side in backtest.sides))
    return EmbeddedTable("hours", "Hours", pa.Table.from_pylist(rows), brokers, choices)


def _cells(backtest: Backtest, row: HourLoad) -> Row:
    cells: Row = {"hour": f"{row.hour:%Y-%m-%d %H:%M} UTC", "day": f"{row.hour:%A}"}
    for side in backtest.sides:
        broker = getattr(row, f"broker_{side}")
        cells[f"multiple_{side}"] = row.worst(side)
        cells[f"broker_{side}"] = None if broker is None else str(broker)
        cells[f"resource_{side}"] = getattr(row, f"resource_{side}")
    return cells
