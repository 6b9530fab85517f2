"""Rows for a table that the page draws itself: JSON in a `<script>`, column by column, equal texts once.

A browser draws the rows that are in view, never all of them. So 100,000 rows are some megabytes of JSON, found in a
blink, because a text is searched once however many rows have it. In: a table in Arrow. Out: an island.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

MOST_CHOICES: Final = 40
"""Different values of a column above which a list to choose from helps nobody."""

_ESCAPES: Final = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""What could end a script, begin a comment in it, or a line of it."""


MOST_ROWS: Final = 200_000
"""Rows of a table in the page: some ten megabytes."""


@dataclass(frozen=True, slots=True)
class EmbeddedTable:
    """A table's rows for the page, under a name of its own."""

    name: str
    caption: str
    rows: pa.Table
    brokers: tuple[str, ...] = ()
    """Columns whose texts name brokers by number, which the broker filter looks at."""
    choices: tuple[str, ...] = ()
    """Columns that can be chosen from."""
    more: str = ""
    """What shows the rows that are too many for the page."""

    @property
    def html(self) -> Markup:
        """The element that holds it; nothing in it can end it."""
        return Markup('<script type="application/json" id="rows-{}">{}</script>').format(
            self.name,
            Markup(safe_json(self._content())),  # noqa: S704 - escaped for this place
        )

    @property
    def total(self) -> int:
        return int(self.rows.num_rows)

    @property
    def in_page(self) -> int:
        return min(self.total, MOST_ROWS)

    def _content(self) -> dict[str, Any]:
        first = self.rows.slice(0, MOST_ROWS)
        return {"rows": self.in_page, "columns": [self._column(name, first[name]) for name in first.column_names]}

    def _column(self, name: str, values: pa.ChunkedArray) -> dict[str, Any]:
        label = name.replace("_", " ")
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return {"label": label, "kind": "number", "values": values.to_pylist()}
        kind = "brokers" if name in self.brokers else "text"
        coded = pc.fill_null(values.cast(pa.string()), "").combine_chunks().dictionary_encode()
        texts = coded.dictionary.to_pylist()
        column = {"label": label, "kind": kind, "values": texts}
        if len(texts) < len(values):
            column["codes"] = coded.indices.to_pylist()
        if name in self.choices and 1 < len(texts) <= MOST_CHOICES:
            column["choices"] = True
        return column


def safe_json(value: Any) -> str:  # noqa: ANN401 - JSON
    r"""Write JSON that may stand in a script element.

    >>> safe_json(["</script><script>alert(1)</script>"])
    '["\\u003c/script\\u003e\\u003cscript\\u003ealert(1)\\u003c/script\\u003e"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    return text
