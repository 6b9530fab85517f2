"""Components of the dashboard's pages: tables with a search box, charts, and escaped text.

Streamlit interprets many texts as Markdown. A name in a cluster must not become a link or an external image, so names
are escaped or shown without Markdown: in cells, charts and `st.text`.
"""

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import streamlit as st
from markupsafe import Markup

from jobs.web.charts import Chart
from jobs.web.dashboard.cache import ROWS_SHOWN, search_rows
from jobs.web.render import Fact, framed_charts

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


def charts(*drawn: Chart) -> None:
    """Draw charts as in the report, in a frame, because Streamlit removes SVG from HTML of the page itself."""
    st.iframe(framed_charts(drawn), alt=", ".join(chart.title for chart in drawn))


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
