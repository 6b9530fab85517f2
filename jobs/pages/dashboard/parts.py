"""Parts of the dashboard's pages: tables with a search box, charts, and text that stays text.

Streamlit reads much of what it is given as Markdown; what a cluster is called must not be a link or a picture from
elsewhere, so names are escaped, or shown where nothing is read into them: in cells, charts and `st.text`.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import pyarrow as pa
import streamlit as st

from jobs.adapters.delta.lake import Row
from jobs.pages.dashboard.reading import SHOWN, searched

COLOURS: Final = ("#0072b2", "#d55e00", "#767d86")
"""Told apart by people who see colours otherwise, on light and dark."""
BAR: Final = 20
AROUND: Final = 130
"""Room for the title, the legend and the axis of a chart."""
MOST_BARS: Final = 60

_TOP: Final = alt.Legend(orient="top")
_EVERY: Final = alt.Axis(labelOverlap=False)
_UPRIGHT: Final = alt.Axis(labelAngle=0, labelOverlap=True)

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])")


def plain(text: object) -> str:
    r"""Escape text for where Markdown is read.

    >>> plain("![x](http://y)")
    '\\!\\[x\\]\\(http\\:\\/\\/y\\)'
    """
    return _MARKDOWN.sub(r"\\\1", str(text)).replace("/", "\\/")


def table(rows: pa.Table, what: str, key: str) -> None:
    """Show rows under a search box: the first of those found, and how many there are."""
    words = st.text_input(f"Search {what}", key=f"search-{key}", placeholder="words that a row must have")
    matching = searched(rows, words)
    more = f"; the first {SHOWN:,} are shown" if matching.num_rows > SHOWN else ""
    st.caption(f"{matching.num_rows:,} of {rows.num_rows:,} {what}{more}")
    if matching.num_rows:
        # named as the report names them, and empty where there is nothing
        shown = matching.slice(0, SHOWN).rename_columns([name.replace("_", " ") for name in matching.column_names])
        st.dataframe(shown, hide_index=True, width="stretch", key=f"rows-{key}", placeholder="")


def bars(title: str, rows: Sequence[Row], name: str, columns: Sequence[str]) -> None:
    """Draw a bar for each of these columns of each row; many rows scroll, and what is left out is said."""
    series = [column.replace("_", " ") for column in columns]
    values = [
        {"name": str(row[name]), "what": what, "count": row[column]}
        for row in rows[:MOST_BARS]
        for what, column in zip(series, columns, strict=True)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values), title=title)
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, sort=None, axis=_EVERY),
            yOffset=alt.YOffset("what:N", sort=series),
            x=alt.X("count:Q", title=None, axis=alt.Axis(format=",d", tickMinStep=1)),
            color=_colour("what", series),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("what:N"), alt.Tooltip("count:Q")],
        )
        .properties(height=AROUND + BAR * max(len(values), 1))
    )
    st.altair_chart(chart, width="stretch")
    if len(rows) > MOST_BARS:
        st.caption(f"the first {MOST_BARS} of {len(rows)}")


def lines(title: str, values: Sequence[Row], series: Sequence[str]) -> None:
    """Draw lines of shares over snapshots; each value has `snapshot`, `what` and `share`."""
    chart = (
        alt.Chart(alt.InlineData(values=list(values)), title=title)
        .mark_line(point=True)
        .encode(
            x=alt.X("snapshot:O", title="snapshot", axis=_UPRIGHT),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
            color=_colour("what", series),
            strokeDash=alt.StrokeDash("what:N", title=None, sort=list(series), legend=_TOP),
            tooltip=[alt.Tooltip("snapshot:O"), alt.Tooltip("what:N"), alt.Tooltip("share:Q", format=".1%")],
        )
    )
    st.altair_chart(chart, width="stretch")


def shades(title: str, values: Sequence[Row]) -> None:
    """Draw how many partitions each broker led in each snapshot; values have `broker`, `snapshot` and `leaders`."""
    chart = (
        alt.Chart(alt.InlineData(values=list(values)), title=title)
        .mark_rect()
        .encode(
            x=alt.X("snapshot:O", title="snapshot", axis=_UPRIGHT),
            y=alt.Y("broker:O", title="broker", axis=_EVERY),
            color=alt.Color("leaders:Q", title="led", scale=alt.Scale(scheme="blues")),
            tooltip=[alt.Tooltip("broker:O"), alt.Tooltip("snapshot:O"), alt.Tooltip("leaders:Q")],
        )
        .properties(height=AROUND + BAR * max(len({row["broker"] for row in values}), 1))
    )
    st.altair_chart(chart, width="stretch")


def _colour(field: str, series: Sequence[str]) -> Any:  # noqa: ANN401 - one of Altair's
    colours = list(COLOURS[: len(series)])
    return alt.Color(
        f"{field}:N", title=None, sort=list(series), scale=alt.Scale(domain=list(series), range=colours), legend=_TOP
    )


def metrics(facts: Sequence[Any]) -> None:
    """Show numbers side by side; `facts` as in `jobs.pages.rendering`."""
    with st.container(horizontal=True):
        for fact in facts:
            st.metric(plain(fact.name), fact.value, border=True)
