"""A table embedded in a page as JSON in a `<script>` element, by column, with equal texts stored once.

The script of the page draws only the visible rows. 100,000 rows are a few megabytes of JSON, and searching is fast
because each distinct text is searched once.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from jobs.core.masking import masked_text

MAX_CHOICES: Final = 40
"""Distinct values of a column up to which it gets a selection list."""

_ESCAPES: Final = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""Characters that could end the script element or start a comment or a line in it."""


MAX_EMBEDDED_ROWS: Final = 200_000
"""Rows of a table in the page, about ten megabytes."""


@dataclass(frozen=True, slots=True)
class EmbeddedTable:
    """A table of the page; `name` must be unique in it."""

    name: str
    caption: str
    rows: pa.Table
    brokers: tuple[str, ...] = ()
    """Columns of broker ids, to which the broker filter applies."""
    choices: tuple[str, ...] = ()
    """Columns with a selection list."""
    more: str = ""
    """How to show the rows that exceed the limit of the page."""

    @property
    def html(self) -> Markup:
        """The script element; its content is escaped so that it cannot end the element."""
        return Markup('<script type="application/json" id="rows-{}">{}</script>').format(
            self.name,
            Markup(safe_json(self._content())),  # noqa: S704 - escaped for a script element
        )

    @property
    def total(self) -> int:
        return int(self.rows.num_rows)

    @property
    def in_page(self) -> int:
        return min(self.total, MAX_EMBEDDED_ROWS)

    def _content(self) -> dict[str, Any]:
        first = self.rows.slice(0, MAX_EMBEDDED_ROWS)
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
        if name in self.choices and 1 < len(texts) <= MAX_CHOICES:
            column["choices"] = True
        return column


def masked_column(rows: pa.Table, column: str) -> pa.Table:
    """Mask secrets in a column of texts."""
    texts = pa.array([masked_text(text) for text in rows[column].to_pylist()], pa.string())
    return rows.set_column(rows.column_names.index(column), column, texts)


def safe_json(value: Any) -> str:  # noqa: ANN401 - JSON
    r"""Encode JSON for a script element.

    >>> safe_json(["</script><script>alert(1)</script>"])
    '["\\u003c/script\\u003e\\u003cscript\\u003ealert(1)\\u003c/script\\u003e"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    return text
