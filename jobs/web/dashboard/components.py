"""Components of the dashboard's pages: tables with a search box, charts, and escaped text.

Streamlit interprets many texts as Markdown. A name in a cluster must not become a link or an external image, so names
are escaped or shown without Markdown: in cells, charts and `st.text`.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import altair as alt
import pyarrow as pa
import streamlit as st
from markupsafe import Markup

from jobs.core.units import format_bytes
from jobs.repositories.loads import HOUR
from jobs.web.charts import MAX_MAP_HEIGHT, MIN_ROW_HEIGHT, Group, HourRow
from jobs.web.cluster_page import ABSENCES
from jobs.web.dashboard.cache import ROWS_SHOWN, search_rows
from jobs.web.render import Fact

COLOURS: Final = ("#0072b2", "#d55e00", "#767d86")
"""Distinguishable with colour blindness, on light and dark pages."""
BAR_HEIGHT: Final = 20
MARGIN_HEIGHT: Final = 130
"""Height of the title, legend and axis of a chart, in pixels."""
BARS_DRAWN: Final = 60
MAX_LABELLED_SNAPSHOTS: Final = 20
"""Number of snapshots up to which the cells of a heat map have labels."""
LABEL: Final = "#7f8790"
"""Colour of values in charts, readable on light and dark pages."""
ON_SHADES: Final = "#24292f"
SHADE: Final = "#1f83c4"
"""Colour of cells that are stronger for larger values, on light and dark pages."""

_TOP: Final = alt.Legend(orient="top")
_ALL_LABELS: Final = alt.Axis(labelOverlap=False)
_UPRIGHT: Final = alt.Axis(labelAngle=0, labelOverlap=True)

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])")


def plain_text(text: object) -> str:
    r"""Escape text for Markdown.

    >>> plain_text("![x](http://y)")
    '\\!\\[x\\]\\(http\\:\\/\\/y\\)'
    """
    return _MARKDOWN.sub(r"\\\1", str(text)).replace("/", "\\/")


def table(rows: pa.Table, noun: str, key: str) -> None:
    """Show a search box, the first matching rows and their number."""
    words = st.text_input(f"Search {noun}", key=f"search-{key}", placeholder="words that a row must contain")
    matching = search_rows(rows, words)
    more = f"; the first {ROWS_SHOWN:,} are shown" if matching.num_rows > ROWS_SHOWN else ""
    st.caption(f"{matching.num_rows:,} of {rows.num_rows:,} {noun}{more}")
    if matching.num_rows:
        # labels as in the report, and empty cells for null
        shown = matching.slice(0, ROWS_SHOWN).rename_columns([name.replace("_", " ") for name in matching.column_names])
        st.dataframe(shown, hide_index=True, width="stretch", key=f"rows-{key}", placeholder="")


def bars(title: str, series: Sequence[str], groups: Sequence[Group]) -> None:
    """Draw a bar for each value of each group; a caption reports omitted groups."""
    values = [
        {"name": group.name, "what": name, "count": value}
        for group in groups[:BARS_DRAWN]
        for name, value in zip(series, group.values, strict=True)
    ]
    base = alt.Chart(alt.InlineData(values=values), title=title).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=_ALL_LABELS),
        yOffset=alt.YOffset("what:N", sort=series),
        x=alt.X("count:Q", title=None, axis=alt.Axis(format=",d", tickMinStep=1)),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("what:N"), alt.Tooltip("count:Q")],
    )
    labels = base.mark_text(align="left", dx=4, color=LABEL).encode(text=alt.Text("count:Q", format=",d"))
    chart = base.mark_bar().encode(color=_colour("what", series)) + labels
    st.altair_chart(chart.properties(height=MARGIN_HEIGHT + BAR_HEIGHT * max(len(values), 1)), width="stretch")
    if len(groups) > BARS_DRAWN:
        st.caption(f"the first {BARS_DRAWN} of {len(groups)}")


class SeriesPoint(NamedTuple):
    """A point of a line; the fields are named as in the chart's encoding."""

    snapshot: int
    what: str
    """The name of the line."""
    share: float


def lines(title: str, shares: Sequence[SeriesPoint], series: Sequence[str]) -> None:
    """Draw lines of shares over snapshots."""
    base = alt.Chart(alt.InlineData(values=[point._asdict() for point in shares]), title=title).encode(
        x=alt.X("snapshot:O", title="snapshot", axis=_UPRIGHT),
        y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
        tooltip=[alt.Tooltip("snapshot:O"), alt.Tooltip("what:N"), alt.Tooltip("share:Q", format=".1%")],
    )
    drawn = base.mark_line(point=True).encode(
        color=_colour("what", series),
        strokeDash=alt.StrokeDash("what:N", title=None, sort=list(series), legend=_TOP),
    )
    newest = max((point.snapshot for point in shares), default=0)
    labels = base.transform_filter(alt.datum.snapshot == newest).mark_text(align="right", dy=-8, color=LABEL)
    st.altair_chart(drawn + labels.encode(text=alt.Text("share:Q", format=".1%")), width="stretch")


class LeaderCount(NamedTuple):
    """A cell of the heat map; the fields are named as in the chart's encoding."""

    broker: int
    snapshot: int
    absence: str
    """Reason why the broker may lead none; empty if it was registered."""
    leaders: int
    label: str


def heat_map(title: str, counts: Sequence[LeaderCount]) -> None:
    """Draw how many partitions each broker led in each snapshot."""
    present = [cell for cell in counts if cell.leaders or not cell.absence]
    absent = [cell for cell in counts if cell.absence]
    shaded, framed = (
        alt.Chart(alt.InlineData(values=[cell._asdict() for cell in cells]), title=title).encode(
            x=alt.X("snapshot:O", title="snapshot", axis=_UPRIGHT),
            y=alt.Y("broker:O", title="broker", axis=_ALL_LABELS),
            tooltip=[alt.Tooltip("broker:O"), alt.Tooltip("snapshot:O"), alt.Tooltip("label:N", title="leads")],
        )
        for cells in (present, absent)
    )
    strokes = alt.Scale(domain=list(ABSENCES), range=list(COLOURS[1 : 1 + len(ABSENCES)]))
    layers = [
        shaded.mark_rect().encode(
            color=alt.Color("leaders:Q", title="led", scale=alt.Scale(scheme="blues", domainMin=0)),
        ),
        framed.mark_rect(filled=False, strokeDash=[3, 3], strokeWidth=1.5).encode(
            stroke=alt.Stroke("absence:N", scale=strokes, legend=None),
        ),
    ]
    if len({cell.snapshot for cell in counts}) <= MAX_LABELLED_SNAPSHOTS:
        dark = 0.6 * max((cell.leaders for cell in present), default=0)
        ink = alt.condition(alt.datum.leaders > dark, alt.value("white"), alt.value(ON_SHADES))
        layers.append(shaded.mark_text().encode(text="label:N", color=ink))
        layers.append(framed.transform_filter("!datum.leaders").mark_text(color=LABEL).encode(text="label:N"))
    height = MARGIN_HEIGHT + BAR_HEIGHT * max(len({cell.broker for cell in counts}), 1)
    st.altair_chart(alt.layer(*layers).properties(height=height), width="stretch")
    st.caption("Framed cells: " + "; ".join(f"{name}, it {meaning}" for name, meaning in ABSENCES.items()))


def hour_map(title: str, rows: Sequence[HourRow], hours: Sequence[datetime]) -> None:
    """Draw the bytes per second of each broker by hour, in UTC; cells without a value stay blank."""
    cells = [
        (row.name, hour, value, f"{format_bytes(value)}/s")
        for row in rows
        for hour, value in zip(hours, row.values, strict=True)
        if value is not None
    ]
    names, starts, values, texts = (list(column) for column in zip(*cells, strict=True))
    ends = [hour + HOUR for hour in starts]
    data = pa.table({"name": names, "from": starts, "until": ends, "rate": values, "load": texts})
    utc = alt.Scale(type="utc")
    chart = (
        alt.Chart(data, title=title)
        .mark_rect(color=SHADE)
        .encode(
            x=alt.X("from:T", title=None, scale=utc, axis=alt.Axis(format="%a %d", tickCount="day", grid=False)),
            x2="until:T",
            y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelOverlap=True)),
            opacity=alt.Opacity("rate:Q", legend=None, scale=alt.Scale(domainMin=0, range=[0.08, 1])),
            tooltip=[
                alt.Tooltip("name:N", title="broker"),
                alt.Tooltip("utcyearmonthdatehoursminutes(from):T", title="from, UTC"),
                alt.Tooltip("load:N"),
            ],
        )
    )
    height = max(MIN_ROW_HEIGHT, min(BAR_HEIGHT, MAX_MAP_HEIGHT // len(rows)))
    st.altair_chart(chart.properties(height=MARGIN_HEIGHT + height * len(rows)), width="stretch")
    st.caption(f"faint: 0, strong: {format_bytes(max(values))}/s, blank: not known")


def _colour(field: str, series: Sequence[str]) -> Any:  # noqa: ANN401 - one of Altair's
    colours = list(COLOURS[: len(series)])
    return alt.Color(
        f"{field}:N", title=None, sort=list(series), scale=alt.Scale(domain=list(series), range=colours), legend=_TOP
    )


def cards(facts: Sequence[Fact]) -> None:
    """Show figures side by side, each coloured by its mood, as the report does."""
    items = Markup().join(
        Markup('<div class="{}"><strong>{}</strong>{}</div>').format(fact.mood, fact.value, fact.name) for fact in facts
    )
    st.html(_CARDS + Markup('<div class="cards">{}</div>').format(items))


_CARDS: Final = Markup("""<style>
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; }
.cards div { --mood: rgba(128, 128, 128, .45); padding: .5rem .7rem; border: 1px solid rgba(128, 128, 128, .35);
  border-left: .35rem solid var(--mood); border-radius: 6px;
  background: color-mix(in srgb, var(--mood) 9%, transparent); }
.cards strong { display: block; font-size: 1.45rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.cards .good { --mood: #2da44e; } .cards .warn { --mood: #d29922; } .cards .bad { --mood: #e5484d; }
</style>""")
"""The colours are distinguishable on light and dark pages, between which Streamlit's menu switches."""
