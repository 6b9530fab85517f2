"""The tables and views as docs/tables.md shows them, read from `schemas.columns` and `jobs.sql_views`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Final

from pyspark.sql.types import ArrayType, StructField, StructType

from jobs.sql_views.views import VIEWS, View
from schemas.columns import CHECKS, KEY_COLUMNS, TABLE_COLUMNS
from tests.docs.markdown import code

SEVERAL: Final = 2
"""Tables that have a column with the same meaning, at least, for it to be described once."""

Columns = Mapping[str, str]
"""By name, type and meaning as the page has them."""


def tables_page() -> str:
    """Describe every table: the columns of several, then each with its key and its own columns; and every view."""
    tables = {name: dict(_columns(StructType.fromJson(TABLE_COLUMNS[name].json))) for name in TABLE_COLUMNS}
    earlier = {name: _alike(name, tables) for name in tables}
    counts = Counter(column for name, columns in tables.items() if not earlier[name] for column in columns.items())
    shared = {name: text for (name, text), count in counts.items() if count >= SEVERAL}
    parts = ["### Columns of several tables", _list(shared)]
    for name, columns in tables.items():
        parts += _table(name, {} if earlier[name] else columns, shared, earlier[name])
    parts += ["## Views", "\n".join(map(_view, VIEWS.values()))]
    return "\n\n".join(parts)


def _alike(name: str, tables: Mapping[str, Columns]) -> str | None:
    """Return the earlier table with the same columns, if there is one."""
    return next((other for other in takewhile(name.__ne__, tables) if tables[other] == tables[name]), None)


def _view(view: View) -> str:
    """A view by the comment that its query begins with."""
    comment = " ".join(line.removeprefix("-- ") for line in takewhile(_is_comment, view.sql.strip().splitlines()))
    return f"- {code(view.name)}: {comment}"


def _is_comment(line: str) -> bool:
    return line.startswith("-- ")


def _table(name: str, columns: Columns, shared: Columns, alike: str | None) -> Iterator[str]:
    yield f"### {name}"
    key = f"Key: {', '.join(map(code, KEY_COLUMNS[name]))}."
    checks = " and ".join(map(code, CHECKS.get(name, {}).values()))
    said = {"cluster", *KEY_COLUMNS[name]}
    also = [code(column) for column, text in columns.items() if shared.get(column) == text and column not in said]
    sentences = [
        key,
        f"Delta checks that {checks}." if checks else "",
        "" if columns else f"The columns are those of [{alike}](#{alike}).",
        f"Also {', '.join(also)}." if also else "",
    ]
    yield " ".join(filter(None, sentences))
    own = {column: text for column, text in columns.items() if shared.get(column) != text}
    if own:
        yield _list(own)


def _list(columns: Columns) -> str:
    return "\n".join(f"- {code(column)} {text}" for column, text in columns.items())


def _columns(schema: StructType, within: str = "") -> Iterator[tuple[str, str]]:
    for column in schema:
        yield within + column.name, f"{_type(column)}: {column.metadata['comment']}"
        if isinstance(column.dataType, ArrayType) and isinstance(column.dataType.elementType, StructType):
            yield from _columns(column.dataType.elementType, f"{within}{column.name}.")


def _type(column: StructField) -> str:
    """A column's type as Spark says it; a row in an array has its own lines below."""
    kind = column.dataType
    nested = isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)
    return "array of struct" if nested else code(kind.simpleString())
